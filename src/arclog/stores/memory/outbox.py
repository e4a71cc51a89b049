"""The outbox: what is still to be delivered, and to whom."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.ports.storage.outbox import DEAD, PENDING, Delivery, NewDelivery, receiver_of
from arclog.stores.memory.tables import Tables


class Outbox(Tables):
    def _put_in_outbox(self, execution_id: int, tell: Sequence[NewDelivery], at: int) -> None:
        for n, new in enumerate(tell, 1):
            self._outbox[execution_id, n] = Delivery(
                execution_id, n, new.url, new.secret, new.event, new.body, at, PENDING, at, 0, ""
            )

    async def deliveries(self, execution_id: int) -> list[Delivery]:
        self._check_open()
        return [each for (owner, _), each in sorted(self._outbox.items()) if owner == execution_id]

    async def lease_deliveries(
        self, now: int, until: int, limit: int = 100, *, but: Sequence[str] = ()
    ) -> list[Delivery]:
        self._check_open()
        free = sorted(
            (each.due, key)
            for key, each in self._outbox.items()
            if each.state == PENDING and each.due <= now and self._outbox_leases.get(key, 0) <= now
            if receiver_of(each.url) not in but
        )
        for _, key in free[:limit]:
            self._outbox_leases[key] = until
        return [self._outbox[key] for _, key in free[:limit]]

    async def attempted(self, delivery: Delivery) -> None:
        self._check_open()
        key = (delivery.execution_id, delivery.n)
        known = self._outbox.get(key)
        if known is not None and known.state == PENDING:
            self._outbox[key] = replace(
                known,
                state=delivery.state,
                due=delivery.due,
                attempts=delivery.attempts,
                problem=delivery.problem,
            )
            self._outbox_leases.pop(key, None)

    async def told_executions(self, limit: int = 100) -> list[int]:
        self._check_open()
        waiting = {key[0] for key, each in self._outbox.items() if each.state == PENDING}
        return sorted({key[0] for key in self._outbox} - waiting - self._settled)[:limit]

    async def given_up(self, since: int, limit: int = 100) -> list[Delivery]:
        self._check_open()
        dead = [each for (owner, _), each in self._outbox.items() if each.state == DEAD and owner >= since]
        return sorted(dead, key=lambda each: (-each.execution_id, each.n))[:limit]

    async def settle_deliveries(self, execution_id: int) -> None:
        self._check_open()
        self._settled.add(execution_id)
