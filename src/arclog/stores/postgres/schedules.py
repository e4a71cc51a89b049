"""Changes to schedules in the PostgreSQL store: those of one moment are one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arclog.stores.postgres.batching import Change, Changes
from arclog.stores.postgres.connection.values import columns
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.schedules import Schedules as SqlSchedules


class Schedules(SqlSchedules, PostgresPart):
    _changes: Changes

    async def _change_schedule(self, row: tuple[Any, ...]) -> bool:
        return await self._changes.put(_key(row), row)

    async def _change_schedules(self, rows: Sequence[Change]) -> set[tuple[str, str]]:
        """Which of them were changed."""
        if len(rows) == 1:
            return {_key(rows[0])} if await self._write("change_schedule", *rows[0]) else set()
        changed = await self._write("change_schedules", *columns("iitibtti", rows))
        return {(tenant, name) for tenant, name in changed}


def _key(row: Change) -> tuple[str, str]:
    """Tenant and name of a changed schedule."""
    return row[5], row[6]
