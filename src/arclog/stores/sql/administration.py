"""Records of servers (leases of duties, node numbers, schedules, the outbox) and of access (API keys, sessions, the
audit).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.ids import MAX_ID, MAX_NODE
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.ports.storage.duties import DutyRecord
from arclog.ports.storage.outbox import Delivery
from arclog.stores.records import key_columns, key_record, session_columns, session_record
from arclog.stores.sql.part import Call, Rows, SqlPart

# ── duties ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Duties of servers: their leases, node numbers, schedules, and the outbox.

_DECODER = msgspec.json.Decoder(Schedule)


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
        *_, rows = await self._run([("lock_nodes", ()), lease], again=True)  # an owner gets its own number again
        if not rows:
            raise StoreUnavailable(
                f"all {MAX_NODE + 1} node numbers of {self.place} are leased; stop a process that uses it, "
                "or wait for a lease to end"
            )
        return int(rows[0][0])

    # -- schedules --------------------------------------------------------------------------------------------------

    async def add_schedule(self, schedule: Schedule) -> None:
        row = (schedule.tenant, schedule.name, schedule.revision, schedule.wakes_at, msgspec.json.encode(schedule))
        if not await self._write("add_schedule", *row):
            raise Conflict(f"there is a schedule {schedule.name} already")

    async def schedule(self, tenant: str, name: str) -> Schedule | None:
        rows = await self._look_up("schedule", tenant, name)
        return _DECODER.decode(rows[0][0]) if rows else None

    async def schedules(self, tenant: str = "", *, after: str = "", limit: int = 1000) -> list[Schedule]:
        if tenant:
            return _decoded(await self._list("schedules_of_tenant", tenant, after, limit))
        return _decoded(await self._list("schedules", after, limit))

    async def count_schedules(self, tenant: str) -> int:
        return int((await self._read("count_schedules", tenant))[0][0])

    async def late_schedules(self, before: int, limit: int = 1000) -> list[Schedule]:
        return _decoded(await self._list("late_schedules", before, limit))

    async def next_schedules(self, tenant: str, limit: int = 20) -> list[Schedule]:
        return _decoded(await self._read("next_schedules", tenant, limit))

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        [outcome] = await self.change_schedules([schedule], owner, until)
        if isinstance(outcome, Conflict):
            raise outcome
        return outcome

    async def change_schedules(
        self, schedules: Sequence[Schedule], owner: str = "", until: int = 0
    ) -> list[Schedule | Conflict]:
        changed = {
            (schedule.tenant, schedule.name): replace(schedule, revision=schedule.revision + 1)
            for schedule in schedules
        }
        rows = [
            (new.revision, new.wakes_at, owner, until, msgspec.json.encode(new), *key, new.revision - 1)
            for key, new in sorted(changed.items())  # the same order in every process prevents deadlocks
        ]
        answers = await self._run(self._calls_for("change_schedules", "iitibtti", rows)) if rows else []
        won = {tuple(row) for answer in answers for row in answer}
        return [new if key in won else _lost_race(new) for key, new in changed.items()]

    async def remove_schedule(self, tenant: str, name: str) -> bool:
        return bool(await self._write("remove_schedule", tenant, name))

    async def lease_schedules(self, owner: str, now: int, until: int, limit: int = 100) -> list[Schedule]:
        if not await self._is_due("free_schedules", now):
            return []
        leased = _decoded(await self._write("lease_schedules", owner, now, until, limit))
        return sorted(leased, key=lambda schedule: (schedule.wakes_at, schedule.tenant, schedule.name))

    # -- the outbox -------------------------------------------------------------------------------------------------

    async def deliveries(self, execution_id: int) -> list[Delivery]:
        return [Delivery(*row) for row in await self._look_up("deliveries", execution_id)]

    async def lease_deliveries(
        self, now: int, until: int, limit: int = 100, *, but: Sequence[str] = ()
    ) -> list[Delivery]:
        left_out = self._texts(but)
        if not await self._is_due("due_deliveries", now, left_out):
            return []
        rows = await self._write("lease_deliveries", now, until, limit, left_out)
        return sorted(
            (Delivery(*row) for row in rows), key=lambda delivery: (delivery.due, delivery.execution_id, delivery.n)
        )

    async def attempted(self, delivery: Delivery) -> None:
        changes = (delivery.state, delivery.due, delivery.attempts, self._shown(delivery.problem))
        await self._write("attempted", *changes, delivery.execution_id, delivery.n)

    async def executions_to_settle(self, limit: int = 100) -> list[int]:
        return [execution_id for (execution_id,) in await self._look_up("executions_to_settle", limit)]

    async def given_up(self, since: int, limit: int = 100) -> list[Delivery]:
        return [Delivery(*row) for row in await self._list("given_up", since, limit)]

    async def settle_deliveries(self, execution_id: int) -> None:
        await self._write("settle_deliveries", execution_id)


def _decoded(rows: Rows) -> list[Schedule]:
    return [_DECODER.decode(body) for (body,) in rows]


def _lost_race(schedule: Schedule) -> Conflict:
    return Conflict(f"schedule {schedule.name} was changed or removed meanwhile: read it again")


# ── access ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# API keys, sessions and the audit.

#: number of expired audit entries that are removed at a time, in addition to the number of added ones
_FORGOTTEN = 500


class Access(SqlPart):
    async def add_key(self, key: KeyRecord) -> None:
        if not await self._write("add_key", *key_columns(key)):
            raise Conflict(f"there is a key {key.key_id} already")

    async def key(self, key_id: str) -> KeyRecord | None:
        rows = await self._look_up("key", key_id)
        return key_record(rows[0]) if rows else None

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        return [key_record(row) for row in await self._list("keys", tenant)]

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        _, rows = await self._run([("revoke_key", (at, key_id)), ("key", (key_id,))])
        return key_record(rows[0]) if rows else None

    async def has_keys(self) -> bool:
        [(some,)] = await self._look_up("has_keys")
        return bool(some)

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        calls: list[Call] = [("forget_sessions", (session.created_at,)), ("add_session", session_columns(session))]
        if most:
            calls.append(("trim_sessions", (session.tenant, session.subject, most)))
        await self._run(calls)

    async def session(self, digest: str) -> SessionRecord | None:
        rows = await self._look_up("session", digest)
        return session_record(rows[0]) if rows else None

    async def remove_session(self, digest: str) -> bool:
        return bool(await self._write("remove_session", digest))

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        if not entries:
            return
        rows = [(entry.at, *map(self._shown, msgspec.structs.astuple(entry)[1:])) for entry in entries]
        calls = self._calls_for("add_audit", "itttttttt", rows)
        if keep_from > 0:
            calls.insert(0, ("forget_audit", (keep_from, _FORGOTTEN + len(entries))))
        await self._run(calls)

    async def trim_audit(self, tenant: str, principal: str, of_caller: int, of_tenant: int) -> None:
        await self._run(
            [
                ("trim_audit_of_caller", (tenant, principal, of_caller)),
                ("trim_audit_of_tenant", (tenant, of_tenant)),
            ]
        )

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        narrowed = {"of_tenant": tenant, "by_decision": decision}
        name = "_".join(["audit", *(column for column, value in narrowed.items() if value)])
        rows = await self._list(name, *filter(None, narrowed.values()), before or MAX_ID, limit)
        return [(pos, AuditEntry(*entry)) for pos, *entry in rows]
