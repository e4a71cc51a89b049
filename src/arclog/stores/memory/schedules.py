"""Schedules of the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict
from arclog.stores.memory.tables import Tables


class Schedules(Tables):
    """Which schedules there are, and who looks after them now."""

    async def add_schedule(self, schedule: Schedule) -> None:
        self._check_open()
        key = (schedule.tenant, schedule.name)
        if key in self._schedules:
            raise Conflict(f"there is a schedule {schedule.name} already")
        self._schedules[key] = schedule

    async def schedule(self, tenant: str, name: str) -> Schedule | None:
        self._check_open()
        return self._schedules.get((tenant, name))

    async def schedules(self, tenant: str = "", *, after: str = "", limit: int = 1000) -> list[Schedule]:
        self._check_open()
        found = sorted(key for key in self._schedules if tenant in {"", key[0]} and key[1] > after)
        return [self._schedules[key] for key in found[:limit]]

    async def late_schedules(self, before: int, limit: int = 1000) -> list[Schedule]:
        self._check_open()
        late = sorted(
            (each for each in self._schedules.values() if each.wakes_at <= before), key=lambda each: -each.wakes_at
        )
        return late[:limit]

    async def next_schedules(self, tenant: str, limit: int = 20) -> list[Schedule]:
        self._check_open()
        found = [each for (owner, _), each in self._schedules.items() if owner == tenant]
        return sorted(found, key=lambda each: (each.wakes_at, each.name))[:limit]

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        self._check_open()
        key = (schedule.tenant, schedule.name)
        known = self._schedules.get(key)
        if known is None or known.revision != schedule.revision:
            raise Conflict(f"schedule {schedule.name} was changed or removed meanwhile: read it again")
        changed = self._schedules[key] = replace(schedule, revision=schedule.revision + 1)
        self._schedule_leases[key] = (owner, until)
        return changed

    async def change_schedules(
        self, schedules: Sequence[Schedule], owner: str = "", until: int = 0
    ) -> list[Schedule | Conflict]:
        outcomes: list[Schedule | Conflict] = []
        for each in schedules:
            try:
                outcomes.append(await self.change_schedule(each, owner, until))
            except Conflict as lost:
                outcomes.append(lost)
        return outcomes

    async def remove_schedule(self, tenant: str, name: str) -> bool:
        self._check_open()
        self._schedule_leases.pop((tenant, name), None)
        return self._schedules.pop((tenant, name), None) is not None

    async def lease_schedules(self, owner: str, now: int, until: int, limit: int = 100) -> list[Schedule]:
        self._check_open()
        free = sorted(
            (each.wakes_at, key)
            for key, each in self._schedules.items()
            if each.wakes_at <= now and self._schedule_leases.get(key, ("", 0))[1] <= now
        )
        for _, key in free[:limit]:
            self._schedule_leases[key] = (owner, until)
        return [self._schedules[key] for _, key in free[:limit]]
