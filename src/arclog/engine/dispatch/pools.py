"""The engine's side of `ports.storage.pools`: limits, resources and workers as one caller sees them.

Pools belong to the installation, not to a tenant. Callers of the server's own tenant (`scope.tenant`) see and may
change all of them; other callers see only what concerns them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from arclog.engine.commits.engine import Engine
from arclog.engine.dispatch.worker_registry import silent_before
from arclog.model.errors import NotAllowed, NotFound, RequestRejected
from arclog.model.ids import MICROS, minted_at_ms, timestamp
from arclog.model.principal import checked_name
from arclog.ports.boundary import Boundary
from arclog.ports.storage.pools import (
    EACH,
    Limit,
    LimitView,
    NewResource,
    PoolView,
    Resource,
    ResourceRecord,
    ResourceView,
    Scale,
    Share,
    WorkerRecord,
    WorkerView,
    next_token,
    tokens,
)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MOST = 1_000_000


class EnginePools:
    """Implements `ports.storage.pools.PoolApi`. Without a boundary, the caller owns the store."""

    def __init__(self, engine: Engine, boundary: Boundary | None = None) -> None:
        self._engine = engine
        self._store = engine.store
        self._boundary = boundary or Boundary.owner(engine.settings)
        #: '' sees everything
        self._tenant = "" if self._boundary.keeps_installation else self._boundary.reach.tenant

    # -- pools --------------------------------------------------------------------------------------------------------

    async def pools(self) -> list[PoolView]:
        shares, limits, workers = await self._shares(), await self._limits(), await self._workers()
        return [self._pool(name, shares, limits, workers) for name in self._names(shares, limits, workers)]

    def _names(self, shares: Sequence[Share], limits: Sequence[Limit], workers: Sequence[WorkerRecord]) -> list[str]:
        names = {share.pool for share in shares} | {limit.pool for limit in limits}
        return sorted(names | {pool for worker in workers if self._is_here(worker) for pool in worker.pools})

    async def set_limit(self, pool: str, tenant: str, concurrency: int) -> PoolView:
        self._check_owner()
        _check_place(pool, tenant)
        if not 0 <= concurrency <= _MOST:
            raise RequestRejected(f"concurrency: {concurrency} is not between 0 and {_MOST:,}; 0 stops all claims")
        await self._store.set_limit(Limit(pool, tenant, concurrency))
        return await self._changed(pool)

    async def remove_limit(self, pool: str, tenant: str) -> PoolView:
        self._check_owner()
        _check_place(pool, tenant)
        if not await self._store.remove_limit(pool, tenant):
            raise NotFound(f"{_place(pool, tenant)} has no limit; `arclog pool list` shows all limits")
        return await self._changed(pool)

    async def _changed(self, pool: str) -> PoolView:
        self._look_again()
        return self._pool(pool, await self._shares(), await self._limits(), await self._workers())

    def _pool(
        self, name: str, shares: Sequence[Share], limits: Sequence[Limit], workers: Sequence[WorkerRecord]
    ) -> PoolView:
        mine = [share for share in shares if name in ("", share.pool)]
        here = [worker for worker in self._here(name, workers) if not worker.draining]
        return PoolView(
            name=name,
            waiting=sum(queue.issued for queue in mine),
            oldest_s=self._oldest_s(mine),
            busy=sum(queue.claimed for queue in mine),
            workers=len(here),
            slots=sum(queue.slots for queue in here),
            limits=[LimitView(limit.tenant, limit.concurrency) for limit in limits if limit.pool == name],
        )

    async def scale(self, pool: str) -> Scale:
        return self._scale(pool, await self._shares(), await self._limits(), await self._workers())

    async def scales(self) -> list[Scale]:
        """Return the scale of every pool."""
        shares, limits, workers = await self._shares(), await self._limits(), await self._workers()
        names = [name for name in self._names(shares, limits, workers) if name]
        return [self._scale(name, shares, limits, workers) for name in names]

    def _scale(
        self, pool: str, shares: Sequence[Share], limits: Sequence[Limit], workers: Sequence[WorkerRecord]
    ) -> Scale:
        shares = [share for share in shares if share.pool == pool]
        workers = [worker for worker in self._here(pool, workers) if not worker.draining]
        most = next((limit.concurrency for limit in limits if (limit.pool, limit.tenant) == (pool, "")), None)
        backlog, busy = sum(share.issued for share in shares), sum(share.claimed for share in shares)
        settings = self._engine.settings
        slot_counts = [worker.slots for worker in workers if worker.slots]
        per_worker = sum(slot_counts) / len(slot_counts) if slot_counts else float(settings.integer("worker.slots"))
        paces = [worker.pace for worker in workers if worker.pace]
        service_s = sum(paces) / len(paces) / MICROS if paces else ASSUMED_S
        wait_s = settings.number("pools.scale_wait_s")
        slots = wanted_slots(backlog, busy, service_s, wait_s, most)
        return Scale(
            pool=pool,
            backlog=backlog,
            oldest_s=self._oldest_s(shares),
            busy=busy,
            workers=len(workers),
            slots=sum(slot_counts),
            slots_per_worker=round(per_worker, 3),
            service_s=round(service_s, 6),
            wanted_workers=wanted_workers(slots, per_worker),
        )

    # -- resources ----------------------------------------------------------------------------------------------------

    async def resources(self) -> list[ResourceView]:
        now = await self._store.time()
        return [_resource_view(resource, now) for resource in await self._store.resources()]

    async def set_resource(self, name: str, new: NewResource) -> ResourceView:
        self._check_owner()
        await self._store.set_resource(_resource(name, new))
        self._look_again()
        now = await self._store.time()
        return next(
            _resource_view(resource, now)
            for resource in await self._store.resources()
            if resource.resource.name == name
        )

    async def remove_resource(self, name: str) -> None:
        self._check_owner()
        if not await self._store.remove_resource(name):
            raise NotFound(f"resource {name[:64]!r} has no limit; `arclog resource list` shows all limits")
        self._look_again()

    # -- workers ------------------------------------------------------------------------------------------------------

    async def workers(self) -> list[WorkerView]:
        return [self._worker(worker) for worker in await self._workers()]

    async def drain(self, worker_id: str = "", pool: str = "") -> list[WorkerView]:
        self._check_owner()
        if bool(worker_id) == bool(pool):
            raise RequestRejected("name either a worker id or a pool to drain")
        known = await self._workers()
        chosen = [worker for worker in known if worker.worker_id == worker_id] if worker_id else self._here(pool, known)
        if not chosen:
            problem = f"worker {worker_id[:200]!r} is not known" if worker_id else f"pool {pool!r} has no worker"
            raise NotFound(f"{problem}; `arclog workers` lists all workers")
        leaving = [worker for worker in chosen if worker.leaves]
        if worker_id and not leaving:
            raise RequestRejected(
                f"worker {worker_id} runs inside a server, or is too old to be drained: stop its process"
            )
        for leaver in leaving:
            await self._store.drain_worker(leaver.worker_id)
            for listener in self._engine.hints.on_leaving:
                listener(leaver.worker_id)
        gone = {worker.worker_id for worker in leaving}
        return [self._worker(worker) for worker in await self._workers() if worker.worker_id in gone]

    def _worker(self, worker: WorkerRecord) -> WorkerView:
        state = "silent" if not self._is_here(worker) else "draining" if worker.draining else "working"
        seen = timestamp(worker.seen_at)
        about = (worker.pools, worker.kinds, worker.slots, worker.busy, worker.host, worker.version)
        return WorkerView(worker.worker_id, state, *about, seen)

    # -- visibility ---------------------------------------------------------------------------------------------------

    def _check_owner(self) -> None:
        if self._tenant:
            name = self._boundary.name
            own = self._engine.settings.text("scope.tenant")
            raise NotAllowed(f"{name} cannot change limits that all tenants share; only an admin of tenant {own} can")

    async def _shares(self) -> list[Share]:
        return [share for share in await self._store.shares() if self._tenant in ("", share.tenant)]

    async def _limits(self) -> list[Limit]:
        return [
            limit
            for limit in await self._store.limits()
            if not self._tenant or limit.tenant in ("", EACH, self._tenant)
        ]

    async def _workers(self) -> list[WorkerRecord]:
        return [
            worker for worker in await self._store.workers() if not self._tenant or worker.tenant in ("", self._tenant)
        ]

    def _here(self, pool: str, workers: Sequence[WorkerRecord]) -> list[WorkerRecord]:
        return [
            worker
            for worker in workers
            if self._is_here(worker) and (not pool or not worker.pools or pool in worker.pools)
        ]

    def _is_here(self, worker: WorkerRecord) -> bool:
        return worker.seen_at >= silent_before(self._engine.clock, self._engine.settings)

    def _oldest_s(self, shares: Sequence[Share]) -> float:
        oldest = min((share.oldest for share in shares if share.oldest), default=0)
        waited = self._engine.clock.now() / MICROS - minted_at_ms(oldest) / 1000 if oldest else 0.0
        return max(round(waited, 3), 0.0)

    def _look_again(self) -> None:
        self._engine.queues.limits_changed()
        self._engine.hints.offer_heard()


def _check_place(pool: str, tenant: str) -> None:
    if pool and not _NAME.fullmatch(pool):
        raise RequestRejected(f"{pool[:80]!r} is not a valid pool name: letters, digits, `_`, `.` and `-`, at most 64")
    if tenant not in ("", EACH):
        checked_name(tenant, "tenant")


def _place(pool: str, tenant: str) -> str:
    where = f"pool {pool}" if pool else "all pools together"
    return where if not tenant else f"each tenant in {where}" if tenant == EACH else f"tenant {tenant} in {where}"


def _resource(name: str, new: NewResource) -> Resource:
    if not _NAME.fullmatch(name):
        raise RequestRejected(
            f"{name[:80]!r} is not a valid resource name: letters, digits, `_`, `.` and `-`, at most 64"
        )
    if not new.rate and new.concurrency is None:
        raise RequestRejected(f"resource {name}: set a rate (10/s, 100/m, 5/h), a concurrency, or both")
    if new.concurrency is not None and not 0 <= new.concurrency <= _MOST:
        raise RequestRejected(f"resource {name}: concurrency {new.concurrency} is not from 0 to {_MOST:,}")
    if not 1 <= new.burst <= _MOST:
        raise RequestRejected(f"resource {name}: burst {new.burst} is not between 1 and {_MOST:,}")
    interval = 0
    if new.rate:
        parts = _RATE.fullmatch(new.rate)
        times = float(parts[1]) if parts else 0.0
        if parts is None or not times or _SECONDS[parts[2]] * MICROS / times < 1:
            raise RequestRejected(f"resource {name}: {new.rate[:40]!r} is not a rate; write 10/s, 0.5/s, 100/m or 5/h")
        interval = round(_SECONDS[parts[2]] * MICROS / times)
    return Resource(name, interval, new.burst, new.concurrency)


def _resource_view(record: ResourceRecord, now: int) -> ResourceView:
    resource = record.resource
    left = tokens(record, now)
    wait_s = (next_token(record) - now) / MICROS if left == 0 else 0.0
    return ResourceView(
        resource.name,
        _rate(resource.interval),
        resource.burst,
        resource.concurrency,
        record.held,
        left,
        max(wait_s, 0.0),
    )


def _rate(interval: int) -> str:
    """Return a rate in the form in which it may have been written."""
    for unit, seconds in _SECONDS.items() if interval else ():
        times = seconds * MICROS / interval
        if times >= 1 or unit == "h":
            return f"{times:.6g}/{unit}"
    return ""


#: The assumed duration of a command, in seconds, while none has been measured.
ASSUMED_S = 1.0


def wanted_slots(backlog: int, busy: int, service_s: float, wait_s: float, limit: int | None = None) -> int:
    """Return the number of slots that a pool needs to finish its waiting and running commands within `wait_s`
    (`pools.scale_wait_s`): at most one for each command, at most the pool's limit, and at least those in use.
    """
    commands = backlog + busy
    enough = math.ceil(commands * service_s / wait_s - 1e-9)
    slots = min(commands, max(busy, enough, min(backlog, 1)))
    return slots if limit is None else min(slots, max(limit, busy))


def wanted_workers(slots: int, slots_per_worker: float) -> int:
    return math.ceil(slots / slots_per_worker - 1e-9)
