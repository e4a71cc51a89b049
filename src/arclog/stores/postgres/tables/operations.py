"""Schedules, the outbox, duties, node numbers, snapshots and the clock."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.ids import MAX_ID, MAX_NODE
from arclog.ports.storage.duties import DutyRecord
from arclog.ports.storage.outbox import Delivery
from arclog.stores.postgres.connection.values import columns, ints, texts
from arclog.stores.postgres.part import Part, shown
from arclog.stores.records import lost_race

_SCHEDULE = msgspec.json.Decoder(Schedule)


class Operations(Part):
    # -- schedules ----------------------------------------------------------------------------------------------------

    async def add_schedule(self, schedule: Schedule) -> None:
        row = (schedule.tenant, schedule.name, schedule.revision, schedule.wakes_at, msgspec.json.encode(schedule))
        if not await self._pool.write(self._sql["add_schedule"], *row):
            raise Conflict(f"there is a schedule {schedule.name} already")

    async def schedule(self, tenant: str, name: str) -> Schedule | None:
        rows = await self._pool.read(self._sql["schedule"], tenant, name)
        return _SCHEDULE.decode(rows[0][0]) if rows else None

    async def schedules(self, tenant: str = "", *, after: str = "", limit: int = 1000) -> list[Schedule]:
        if tenant:
            rows = await self._pool.read(self._sql["schedules_of_tenant"], tenant, after, limit)
        else:
            rows = await self._pool.read(self._sql["schedules"], after, limit)
        return [_SCHEDULE.decode(body) for (body,) in rows]

    async def late_schedules(self, before: int, limit: int = 1000) -> list[Schedule]:
        rows = await self._pool.read(self._sql["late_schedules"], before, limit)
        return [_SCHEDULE.decode(body) for (body,) in rows]

    async def next_schedules(self, tenant: str, limit: int = 20) -> list[Schedule]:
        rows = await self._pool.read(self._sql["next_schedules"], tenant, limit)
        return [_SCHEDULE.decode(body) for (body,) in rows]

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        [outcome] = await self.change_schedules([schedule], owner, until)
        if isinstance(outcome, Conflict):
            raise outcome
        return outcome

    async def change_schedules(
        self, schedules: Sequence[Schedule], owner: str = "", until: int = 0
    ) -> list[Schedule | Conflict]:
        changed = {(each.tenant, each.name): replace(each, revision=each.revision + 1) for each in schedules}
        rows = [
            (new.revision, new.wakes_at, owner, until, msgspec.json.encode(new), *key, new.revision - 1)
            for key, new in sorted(changed.items())  # in the order in which others change them, too
        ]
        found = await self._pool.write(self._sql["change_schedules"], *columns("iitibtti", rows)) if rows else ()
        won = {(tenant, name) for tenant, name in found}
        return [new if key in won else lost_race(new) for key, new in changed.items()]

    async def remove_schedule(self, tenant: str, name: str) -> bool:
        return bool(await self._pool.write(self._sql["remove_schedule"], tenant, name))

    async def lease_schedules(self, owner: str, now: int, until: int, limit: int = 100) -> list[Schedule]:
        rows = await self._pool.write(self._sql["lease_schedules"], owner, now, until, limit)
        return [_SCHEDULE.decode(body) for (body,) in rows]

    # -- the outbox ---------------------------------------------------------------------------------------------------

    async def deliveries(self, execution_id: int) -> list[Delivery]:
        return [Delivery(*row) for row in await self._pool.read(self._sql["deliveries"], execution_id)]

    async def lease_deliveries(
        self, now: int, until: int, limit: int = 100, *, but: Sequence[str] = ()
    ) -> list[Delivery]:
        leased = await self._pool.write(self._sql["lease_deliveries"], now, until, limit, texts(but))
        return [Delivery(*row) for row in leased]

    async def attempted(self, delivery: Delivery) -> None:
        changes = (delivery.state, delivery.due, delivery.attempts, shown(delivery.problem))
        await self._pool.write(self._sql["attempted"], *changes, delivery.execution_id, delivery.n)

    async def told_executions(self, limit: int = 100) -> list[int]:
        return [execution_id for (execution_id,) in await self._pool.read(self._sql["told_executions"], limit)]

    async def given_up(self, since: int, limit: int = 100) -> list[Delivery]:
        return [Delivery(*row) for row in await self._pool.read(self._sql["given_up"], since, limit)]

    async def settle_deliveries(self, execution_id: int) -> None:
        await self._pool.write(self._sql["settle_deliveries"], execution_id)

    # -- duties -------------------------------------------------------------------------------------------------------

    async def lease_duty(self, duty: str, owner: str, now: int, until: int) -> bool:
        return bool(await self._pool.write(self._sql["lease_duty"], duty, owner, now, until))

    async def position(self, duty: str) -> int:
        rows = await self._pool.read(self._sql["duty_position"], duty)
        return rows[0][0] if rows else 0

    async def move_position(self, duty: str, owner: str, now: int, position: int) -> bool:
        return bool(await self._pool.write(self._sql["move_position"], duty, owner, now, position))

    async def duties(self) -> list[DutyRecord]:
        return [DutyRecord(*row) for row in await self._pool.read(self._sql["duties"])]

    # -- odds ---------------------------------------------------------------------------------------------------------

    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        if drop is None:
            await self._pool.write(self._sql["put_snapshot"], execution_id, seq, code, body)
        else:
            await self._pool.write(self._sql["put_next_snapshot"], execution_id, seq, code, body, ints(drop))

    async def past_snapshots(self, execution_id: int, code: str) -> list[int]:
        return [seq for (seq,) in await self._pool.read(self._sql["past_snapshots"], execution_id, code)]

    async def snapshot(self, execution_id: int, code: str, last: int = MAX_ID) -> tuple[int, bytes] | None:
        for statement in ("snapshot", "past_snapshot"):
            rows = await self._pool.read(self._sql[statement], execution_id, code, last)
            if rows:
                return (rows[0][0], rows[0][1])
        return None

    async def changed_elsewhere(self) -> bool:
        return False  # the bus tells

    async def time(self) -> int:
        [(now,)] = await self._pool.read(self._sql["time"])
        return int(now)

    async def lease_node(self, owner: str, now: int, until: int) -> int:
        _, rows = await self._pool.run(
            [(self._sql["lock_nodes"], ()), (self._sql["lease_node"], (owner, now, until, MAX_NODE))],
            again=True,  # an owner is given its own number again
        )
        if not rows:
            raise StoreUnavailable(
                f"all {MAX_NODE + 1} node numbers of {self.place} are leased; stop a process that uses it, "
                "or wait for a lease to end"
            )
        return int(rows[0][0])
