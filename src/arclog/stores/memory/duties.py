"""Duties: which server does what only one may do, and how far it is; node numbers."""

from __future__ import annotations

from msgspec.structs import replace

from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MAX_NODE
from arclog.ports.storage.duties import DutyRecord
from arclog.stores.memory.tables import Duty, Tables


class Duties(Tables):
    async def lease_duty(self, duty: str, owner: str, now: int, until: int) -> bool:
        self._check_open()
        held = self._duties.get(duty, Duty(owner))
        if held.owner != owner and held.until > now:
            return False
        self._duties[duty] = replace(held, owner=owner, until=until)
        return True

    async def position(self, duty: str) -> int:
        self._check_open()
        return self._duties.get(duty, Duty("")).position

    async def move_position(self, duty: str, owner: str, now: int, position: int) -> bool:
        self._check_open()
        held = self._duties.get(duty)
        if held is None or held.owner != owner or held.until <= now or held.position > position:
            return False
        self._duties[duty] = replace(held, position=position)
        return True

    async def duties(self) -> list[DutyRecord]:
        self._check_open()
        return [DutyRecord(name, held.owner, held.until, held.position) for name, held in sorted(self._duties.items())]

    async def lease_node(self, owner: str, now: int, until: int) -> int:
        self._check_open()
        node = next((number for number, (holder, _) in self._nodes.items() if holder == owner), None)
        if node is None:
            taken = {number for number, (_, end) in self._nodes.items() if end > now}
            node = next((number for number in range(MAX_NODE + 1) if number not in taken), None)
            if node is None:
                raise StoreUnavailable(f"all {MAX_NODE + 1} node numbers are leased; wait for a lease to end")
        self._nodes[node] = (owner, until)
        return node
