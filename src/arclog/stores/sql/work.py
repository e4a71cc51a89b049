"""Work: commands and timers, and the pools, limits, resources and workers that claims depend on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from arclog.ports.storage.pools import MOST_AHEAD, Contest, Limit, Resource, Share, WorkerRecord
from arclog.ports.storage.store import Backlog, CommandRecord, Timer
from arclog.stores.claim_choice import ClaimRequest
from arclog.stores.records import command_record, worker_columns, worker_record
from arclog.stores.rows import decode
from arclog.stores.sql.part import Rows, SqlPart

_PAYLOAD = msgspec.json.Decoder(dict[str, Any])


class Work(SqlPart):
    async def claim(
        self,
        worker_id: str,
        *,
        limit: int,
        lease_until: int,
        kinds: Sequence[str],
        pools: Sequence[str] = ("default",),
        execution_id: int = 0,
        tenant: str = "",
        project: str = "",
        environment: str = "",
    ) -> list[CommandRecord]:
        if limit <= 0:
            return []
        within = (project, environment) if project or environment else ()
        asked = ClaimRequest(worker_id, limit, lease_until, tuple(kinds), tuple(pools), execution_id, tenant, within)
        return command_records(await self._claim(asked))

    @abstractmethod
    async def _claim(self, asked: ClaimRequest) -> Rows:
        """Return rows of commands, in the order in which they were chosen; see `stores.claim_choice`."""

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        if not held:
            return []
        answers = await self._run(self._calls_for("heartbeat", "ii", held, worker_id, lease_until))
        kept = {command_id for rows in answers for (command_id,) in rows}
        return [command_id for command_id, _ in held if command_id not in kept]

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        return command_records(await self._read("expired", now, limit))

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        return command_records(await self._look_up("commands", execution_id))

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        return command_records(await self._look_up("granted", *by))

    async def backlog(self) -> list[Backlog]:
        pools: dict[str, dict[str, int]] = {}
        for pool, sign, count, oldest, first_end in await self._list("backlog"):
            if sign == 0:
                pools.setdefault(pool, {}).update(issued=count, oldest=oldest)
            elif sign > 0:
                pools.setdefault(pool, {}).update(claimed=count, first_lease_end=first_end)
        return [Backlog(pool, **figures) for pool, figures in sorted(pools.items())]

    async def due_timers(self, now: int, limit: int = 100, *, latest: bool = False) -> list[Timer]:
        rows = await self._look_up("latest_timers" if latest else "due_timers", now, limit)
        return [Timer(owner, timer_id, due, decode(payload, _PAYLOAD)) for owner, timer_id, due, payload in rows]

    async def coming_timers(self, after: int, until: int, limit: int = 100) -> list[int]:
        return [owner for (owner,) in await self._read("coming_timers", after, until, limit)]

    async def next_due(self) -> int | None:
        [(due,)] = await self._look_up("next_due")
        return due  # type: ignore[no-any-return]  # a column of numbers

    # -- pools ------------------------------------------------------------------------------------------------------

    async def set_limit(self, limit: Limit) -> None:
        await self._write("set_limit", limit.pool, limit.tenant, limit.concurrency)

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        return bool(await self._write("remove_limit", pool, tenant))

    async def limits(self) -> list[Limit]:
        return [Limit(*row) for row in await self._look_up("limits")]

    async def set_resource(self, resource: Resource) -> None:
        about = (resource.name, resource.interval, resource.burst, resource.concurrency)
        await self._write("set_resource", *about, await self.time())

    async def remove_resource(self, name: str) -> bool:
        return bool(await self._write("remove_resource", name))

    async def shares(self) -> list[Share]:
        return [Share(*row) for row in await self._list("shares")]

    async def contest(self, pool: str) -> Contest:
        [(first, last, limited)] = await self._look_up("contest", pool)
        return Contest(() if first is None else tuple(sorted({first, last})), bool(limited))

    async def ahead(self, execution_id: int, command_id: int) -> int:
        [(count,)] = await self._list("ahead", execution_id, command_id, MOST_AHEAD)
        return int(count)

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        seen = replace(worker, host=self._shown(worker.host), version=self._shown(worker.version))
        calls = [("forget_workers", (forget,)), ("see_worker", worker_columns(seen))]
        _, [(draining,)] = await self._run(calls, again=True)
        return bool(draining)

    async def workers(self) -> list[WorkerRecord]:
        return [worker_record(row) for row in await self._list("workers")]

    async def drain_worker(self, worker_id: str) -> bool:
        return bool(await self._write("drain_worker", worker_id))


def command_records(rows: Rows) -> list[CommandRecord]:
    return [command_record(row) for row in rows]
