"""Crashes that the servers of one database count together."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.marks import Crash
from arclog.stores.postgres.connection.pipeline import Call
from arclog.stores.postgres.part import Part


class Crashes(Part):
    """Implements `ports.marks.CrashBook`."""

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        calls: list[Call] = [(self._sql["forget_crashes"], (since,))]
        calls += [(self._sql["add_crash"], (*one, at)) for one in work]
        *_, rows = await self._pool.run([*calls, (self._sql["crashes"], ())])
        return [Crash(*row) for row in rows]

    async def pause_crash(self, crash: Crash) -> None:
        await self._pool.write(self._sql["pause_crash"], crash.execution_id, crash.work, crash.paused_at)

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        await self._pool.write(self._sql["forget_crash"], execution_id, work)
