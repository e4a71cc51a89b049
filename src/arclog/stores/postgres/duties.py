"""Schedules of the PostgreSQL store, whose changes of one moment are one request, and crashes that servers count together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arclog.ports.storage.marks import Crash
from arclog.stores.postgres.batching import Change, Changes
from arclog.stores.postgres.connection.values import columns
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.duties import Duties as SqlDuties
from arclog.stores.sql.part import Call


class Duties(SqlDuties, PostgresPart):
    _changes: Changes

    async def _change_schedule(self, row: tuple[Any, ...]) -> bool:
        return await self._changes.put(_key(row), row)

    async def _change_schedules(self, rows: Sequence[Change]) -> set[tuple[str, str]]:
        """Which of them were changed."""
        if len(rows) == 1:
            return {_key(rows[0])} if await self._write("change_schedule", *rows[0]) else set()
        changed = await self._write("change_schedules", *columns("iitibtti", rows))
        return {(tenant, name) for tenant, name in changed}

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


def _key(row: Change) -> tuple[str, str]:
    """Tenant and name of a changed schedule."""
    return row[5], row[6]
