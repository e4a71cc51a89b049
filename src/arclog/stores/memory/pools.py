"""Limits, resources and workers: what bounds the claims, and who makes them."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter, itemgetter

from msgspec.structs import replace

from arclog.ports.storage.pools import Contest, Limit, QueueHead, Resource, ResourceRecord, Share, WorkerRecord
from arclog.ports.storage.store import CommandRecord
from arclog.stores.claim_choice import carried_over
from arclog.stores.memory.tables import Tables


class Pools(Tables):
    async def set_limit(self, limit: Limit) -> None:
        self._check_open()
        self._limits[limit.pool, limit.tenant] = limit.concurrency

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        self._check_open()
        return self._limits.pop((pool, tenant), None) is not None

    async def limits(self) -> list[Limit]:
        self._check_open()
        return [Limit(*place, most) for place, most in sorted(self._limits.items())]

    async def set_resource(self, resource: Resource) -> None:
        self._check_open()
        known = self._resources.get(resource.name)
        full_at = 0 if known is None else carried_over(resource, known.full_at, self._clock.now())
        self._resources[resource.name] = ResourceRecord(resource, full_at)

    async def remove_resource(self, name: str) -> bool:
        self._check_open()
        return self._resources.pop(name, None) is not None

    async def resources(self) -> list[ResourceRecord]:
        self._check_open()
        return list(self._held_resources().values())

    async def shares(self) -> list[Share]:
        self._check_open()
        commands = self._all_commands()
        counts = Counter((each.pool, self._tenant_of(each), each.state) for each in commands)
        found = []
        for pool, tenant in sorted({(pool, tenant) for pool, tenant, state in counts if state != "held"}):
            waiting = [
                each.command_id
                for each in commands
                if (each.pool, self._tenant_of(each), each.state) == (pool, tenant, "issued")
            ]
            found.append(Share(pool, tenant, len(waiting), counts[pool, tenant, "claimed"], min(waiting, default=0)))
        return found

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        self._check_open()
        heads: dict[tuple[str, tuple[str, ...], tuple[str, ...]], CommandRecord] = {}
        for each in self._all_commands():
            lane = (each.pool, each.kinds, each.resources)
            if each.state == "issued" and self._tenant_of(each) == tenant:
                heads[lane] = min(heads.get(lane, each), each, key=attrgetter("order", "command_id"))
        return [
            QueueHead(each.pool, each.kinds, each.command_id, each.execution_id, each.step)
            for _, each in sorted(heads.items(), key=itemgetter(0))
        ][:limit]

    async def contest(self, pool: str) -> Contest:
        self._check_open()
        tenants = sorted(
            {self._tenant_of(each) for each in self._all_commands() if each.pool == pool and each.state == "issued"}
        )
        return Contest(
            tuple(sorted({*tenants[:1], *tenants[-1:]})), any(where in ("", pool) for where, _ in self._limits)
        )

    async def ahead(self, execution_id: int, command_id: int) -> int:
        self._check_open()
        execution = self._executions.get(execution_id)
        mine = None if execution is None else execution.commands.get(command_id)
        if mine is None:
            return 0
        place = (mine.pool, self._tenant_of(mine))
        return sum(
            1
            for each in self._all_commands()
            if each.state == "issued"
            and (each.pool, self._tenant_of(each)) == place
            and (each.order, each.command_id) < (mine.order, mine.command_id)
        )

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        self._check_open()
        self._seen = {key: each for key, each in self._seen.items() if each.seen_at >= forget}
        known = self._seen.get(worker.worker_id)
        leaving = known is not None and known.draining
        self._seen[worker.worker_id] = replace(worker, draining=leaving)
        return leaving

    async def workers(self) -> list[WorkerRecord]:
        self._check_open()
        return sorted(self._seen.values(), key=attrgetter("worker_id"))

    async def drain_worker(self, worker_id: str) -> bool:
        self._check_open()
        known = self._seen.get(worker_id)
        if known is not None:
            self._seen[worker_id] = replace(known, draining=True)
        return known is not None
