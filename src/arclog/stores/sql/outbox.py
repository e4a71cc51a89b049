"""The outbox: what is still to be delivered, and to whom."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.outbox import Delivery
from arclog.stores.sql.part import SqlPart


class Outbox(SqlPart):
    async def deliveries(self, execution_id: int) -> list[Delivery]:
        return [Delivery(*row) for row in await self._look_up("deliveries", execution_id)]

    async def lease_deliveries(
        self, now: int, until: int, limit: int = 100, *, but: Sequence[str] = ()
    ) -> list[Delivery]:
        left_out = self._texts(but)
        if not await self._is_due("due_deliveries", now, left_out):
            return []
        rows = await self._write("lease_deliveries", now, until, limit, left_out)
        return sorted((Delivery(*row) for row in rows), key=lambda each: (each.due, each.execution_id, each.n))

    async def attempted(self, delivery: Delivery) -> None:
        changes = (delivery.state, delivery.due, delivery.attempts, self._shown(delivery.problem))
        await self._write("attempted", *changes, delivery.execution_id, delivery.n)

    async def told_executions(self, limit: int = 100) -> list[int]:
        return [execution_id for (execution_id,) in await self._look_up("told_executions", limit)]

    async def given_up(self, since: int, limit: int = 100) -> list[Delivery]:
        return [Delivery(*row) for row in await self._list("given_up", since, limit)]

    async def settle_deliveries(self, execution_id: int) -> None:
        await self._write("settle_deliveries", execution_id)
