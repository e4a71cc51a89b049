"""Records of servers (leases of duties, node numbers, schedules, the outbox) and of access (API keys, sessions, the
audit, sealed credentials).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.ids import MAX_NODE
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.ports.storage.duties import DutyRecord
from arclog.ports.storage.outbox import DEAD, PENDING, Delivery, NewDelivery, receiver_of
from arclog.stores.memory.tables import Duty, Tables

# ── duties ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Duties of servers: their leases, node numbers, schedules, and the outbox.


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

    # -- schedules --------------------------------------------------------------------------------------------------

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
        keys = sorted(key for key in self._schedules if tenant in {"", key[0]} and key[1] > after)
        return [self._schedules[key] for key in keys[:limit]]

    async def count_schedules(self, tenant: str) -> int:
        self._check_open()
        return sum(of == tenant for of, _ in self._schedules)

    async def late_schedules(self, before: int, limit: int = 1000) -> list[Schedule]:
        self._check_open()
        late = sorted(
            (schedule for schedule in self._schedules.values() if schedule.wakes_at <= before),
            key=lambda schedule: -schedule.wakes_at,
        )
        return late[:limit]

    async def next_schedules(self, tenant: str, limit: int = 20) -> list[Schedule]:
        self._check_open()
        schedules = [schedule for (owner, _), schedule in self._schedules.items() if owner == tenant]
        return sorted(schedules, key=lambda schedule: (schedule.wakes_at, schedule.name))[:limit]

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        self._check_open()
        key = (schedule.tenant, schedule.name)
        current = self._schedules.get(key)
        if current is None or current.revision != schedule.revision:
            raise Conflict(f"schedule {schedule.name} was changed or removed meanwhile: read it again")
        changed = self._schedules[key] = replace(schedule, revision=schedule.revision + 1)
        self._schedule_leases[key] = (owner, until)
        return changed

    async def change_schedules(
        self, schedules: Sequence[Schedule], owner: str = "", until: int = 0
    ) -> list[Schedule | Conflict]:
        outcomes: list[Schedule | Conflict] = []
        for schedule in schedules:
            try:
                outcomes.append(await self.change_schedule(schedule, owner, until))
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
            (schedule.wakes_at, key)
            for key, schedule in self._schedules.items()
            if schedule.wakes_at <= now and self._schedule_leases.get(key, ("", 0))[1] <= now
        )
        for _, key in free[:limit]:
            self._schedule_leases[key] = (owner, until)
        return [self._schedules[key] for _, key in free[:limit]]

    # -- the outbox -------------------------------------------------------------------------------------------------

    def _put_in_outbox(self, execution_id: int, deliveries: Sequence[NewDelivery], at: int) -> None:
        for n, new in enumerate(deliveries, 1):
            self._outbox[execution_id, n] = Delivery(
                execution_id, n, new.url, new.secret, new.event, new.body, at, PENDING, at, 0, ""
            )

    async def deliveries(self, execution_id: int) -> list[Delivery]:
        self._check_open()
        return [delivery for (owner, _), delivery in sorted(self._outbox.items()) if owner == execution_id]

    async def lease_deliveries(
        self, now: int, until: int, limit: int = 100, *, but: Sequence[str] = ()
    ) -> list[Delivery]:
        self._check_open()
        free = sorted(
            (delivery.due, key)
            for key, delivery in self._outbox.items()
            if delivery.state == PENDING and delivery.due <= now and self._outbox_leases.get(key, 0) <= now
            if receiver_of(delivery.url) not in but
        )
        for _, key in free[:limit]:
            self._outbox_leases[key] = until
        return [self._outbox[key] for _, key in free[:limit]]

    async def attempted(self, delivery: Delivery) -> None:
        self._check_open()
        key = (delivery.execution_id, delivery.n)
        entry = self._outbox.get(key)
        if entry is not None and entry.state == PENDING:
            self._outbox[key] = replace(
                entry,
                state=delivery.state,
                due=delivery.due,
                attempts=delivery.attempts,
                problem=delivery.problem,
            )
            self._outbox_leases.pop(key, None)

    async def executions_to_settle(self, limit: int = 100) -> list[int]:
        self._check_open()
        waiting = {key[0] for key, delivery in self._outbox.items() if delivery.state == PENDING}
        return sorted({key[0] for key in self._outbox} - waiting - self._settled)[:limit]

    async def given_up(self, since: int, limit: int = 100) -> list[Delivery]:
        self._check_open()
        dead = [delivery for (owner, _), delivery in self._outbox.items() if delivery.state == DEAD and owner >= since]
        return sorted(dead, key=lambda delivery: (-delivery.execution_id, delivery.n))[:limit]

    async def settle_deliveries(self, execution_id: int) -> None:
        self._check_open()
        self._settled.add(execution_id)


# ── access ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# API keys, sessions, the audit, and sealed credentials.


class Access(Tables):
    async def add_key(self, key: KeyRecord) -> None:
        self._check_open()
        if key.key_id in self._callers:
            raise Conflict(f"there is a key {key.key_id} already")
        self._callers[key.key_id] = key

    async def key(self, key_id: str) -> KeyRecord | None:
        self._check_open()
        return self._callers.get(key_id)

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        self._check_open()
        keys = [key for key in self._callers.values() if tenant in ("", key.tenant)]
        return sorted(keys, key=lambda key: (key.created_at, key.key_id))

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        self._check_open()
        key = self._callers.get(key_id)
        if key is not None and key.revoked_at is None:
            key = self._callers[key_id] = replace(key, revoked_at=at)
        return key

    async def has_keys(self) -> bool:
        self._check_open()
        return bool(self._callers)

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        self._check_open()
        now = session.created_at
        self._sessions = {digest: session for digest, session in self._sessions.items() if session.expires_at > now}
        self._sessions[session.digest] = session
        subject = (session.tenant, session.subject)
        own = sorted(
            (old for old in self._sessions.values() if (old.tenant, old.subject) == subject),
            key=lambda old: (-old.created_at, old.digest),
        )
        for old in own[most:] if most else ():
            del self._sessions[old.digest]

    async def session(self, digest: str) -> SessionRecord | None:
        self._check_open()
        return self._sessions.get(digest)

    async def remove_session(self, digest: str) -> bool:
        self._check_open()
        return self._sessions.pop(digest, None) is not None

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        self._check_open()
        self._audit = [entry for entry in self._audit if entry[1].at >= keep_from]
        for entry in entries:
            self._audited += 1
            self._audit.append((self._audited, entry))

    async def trim_audit(self, tenant: str, principal: str, of_caller: int, of_tenant: int) -> None:
        self._check_open()
        own = [pos for pos, entry in self._audit if (entry.tenant, entry.principal) == (tenant, principal)]
        removed = set(own[: max(0, len(own) - of_caller)])
        left = [pos for pos, entry in self._audit if entry.tenant == tenant and pos not in removed]
        removed |= set(left[: max(0, len(left) - of_tenant)])
        self._audit = [record for record in self._audit if record[0] not in removed]

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        self._check_open()
        entries = [
            (position, entry)
            for position, entry in reversed(self._audit)
            if tenant in ("", entry.tenant) and decision in ("", entry.decision) and (not before or position < before)
        ]
        return entries[:limit]

    # -- sealed credentials -----------------------------------------------------------------------------------------

    async def put_secret(self, secret: SealedSecret) -> None:
        self._check_open()
        if any(sealed.key != secret.key for sealed in self._sealed.values()):
            raise Conflict(f"the secrets of the store are sealed with another key than {secret.key}")
        self._sealed[secret.info.name, secret.info.scope] = secret

    async def secret(self, name: str, scopes: Sequence[str]) -> SealedSecret | None:
        self._check_open()
        secrets = (self._sealed.get((name, scope)) for scope in sorted(scopes, key=len, reverse=True))
        return next((secret for secret in secrets if secret is not None), None)

    async def secrets(self) -> list[SecretInfo]:
        self._check_open()
        return [sealed.info for _, sealed in sorted(self._sealed.items(), key=lambda item: item[0])]

    async def secrets_key(self) -> str:
        self._check_open()
        return next((sealed.key for sealed in self._sealed.values()), "")

    async def remove_secret(self, name: str, scope: str) -> bool:
        self._check_open()
        return self._sealed.pop((name, scope), None) is not None
