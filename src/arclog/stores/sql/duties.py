"""Duties: which server does what only one may do, and how far it is; node numbers."""

from __future__ import annotations

from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MAX_NODE
from arclog.ports.storage.duties import DutyRecord
from arclog.stores.sql.part import SqlPart


class Duties(SqlPart):
    async def lease_duty(self, duty: str, owner: str, now: int, until: int) -> bool:
        return bool(await self._write("lease_duty", duty, owner, now, until))

    async def position(self, duty: str) -> int:
        rows = await self._look_up("duty_position", duty)
        return rows[0][0] if rows else 0

    async def move_position(self, duty: str, owner: str, now: int, position: int) -> bool:
        return bool(await self._write("move_position", duty, owner, now, position))

    async def duties(self) -> list[DutyRecord]:
        return [DutyRecord(*row) for row in await self._look_up("duties")]

    async def lease_node(self, owner: str, now: int, until: int) -> int:
        lease = ("lease_node", (owner, now, until, MAX_NODE))
        *_, rows = await self._run([("lock_nodes", ()), lease], again=True)  # an owner is given its own number again
        if not rows:
            raise StoreUnavailable(
                f"all {MAX_NODE + 1} node numbers of {self.place} are leased; stop a process that uses it, "
                "or wait for a lease to end"
            )
        return int(rows[0][0])
