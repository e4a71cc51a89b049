"""Duties of servers on PostgreSQL: crashes that they count together."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.marks import Crash
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.duties import Duties as SqlDuties
from arclog.stores.sql.part import Call


class Duties(SqlDuties, PostgresPart):
    # -- crashes: see `ports.storage.marks.CrashBook` ---------------------------------------------------------------

    async def add_crashes(self, work: Sequence[tuple[int, int]], at: int, since: int) -> list[Crash]:
        calls: list[Call] = [("forget_crashes", (since,))]
        calls += [("add_crash", (*one, at)) for one in work]
        *_, rows = await self._run([*calls, ("crashes", ())])
        return [Crash(*row) for row in rows]

    async def pause_crash(self, crash: Crash) -> None:
        await self._write("pause_crash", crash.execution_id, crash.work, crash.paused_at)

    async def forget_crash(self, execution_id: int, work: int = 0) -> None:
        await self._write("forget_crash", execution_id, work)
