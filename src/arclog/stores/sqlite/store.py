"""`ports.storage.store` on one SQLite file: what goes to the writer, what to the reader."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from arclog.model.config.schedules import Schedule
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.ids import MAX_ID
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.duties import DutyRecord
from arclog.ports.storage.event_search import EventQuery, FoundEvents
from arclog.ports.storage.outbox import Delivery
from arclog.ports.storage.pools import Contest, Limit, QueueHead, Resource, ResourceRecord, Share, WorkerRecord
from arclog.ports.storage.statistics import RunCount
from arclog.ports.storage.store import (
    Append,
    Appended,
    Backlog,
    CommandRecord,
    ExecutionFilter,
    ExecutionRecord,
    Ingested,
    LogBatch,
    Mark,
    Scope,
    StepRunRecord,
    StoredEvent,
    Timer,
)
from arclog.ports.storage.stored_results import ResultRecord
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter, LogLine
from arclog.stores.rows import Codec
from arclog.stores.searching import Key, MarkRow, ScannedRow, search
from arclog.stores.sqlite import grouped, reads, writes
from arclog.stores.sqlite.lanes import Writer
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.readers import Execute, Readers
from arclog.stores.sqlite.retention import Retention
from arclog.stores.sqlite.tables import access, claims, duties, outbox, pools, schedules, searches, task_logs

log = logging.getLogger("arclog.store")

R = TypeVar("R")

#: A process that writes whenever it is asked whether others do says so of them after so many questions.
_UNSEEN = 5

#: From so many appends on, statements for all of them cost less than statements for each.
_GROUPED = 8

#: So many events are read like a row: a thread's work would be less than the way to it and back.
_FEW = 64


class SqliteStore:
    """The embedded store. Several processes may have the same file open."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self._clock = clock
        self.path = os.fspath(path)
        busy = settings.number("store.busy_timeout_s")
        self._codec = Codec(settings)
        self._writer = Writer(self.path, busy, clock)
        readers = settings.integer("store.readers")
        self._reader = Readers(self.path, busy, "arclog-reader", readers)
        #: for reads whose length others decide: quick ones do not wait behind them
        self._lists = Readers(self.path, busy, "arclog-lists", readers)
        self._retention = Retention(self._writer, self._lists)
        #: the write-ahead log as it was when somebody last asked whether others write
        self._touched: tuple[int, int, int] | None = None
        self._version: int | None = None
        self._unseen = 0
        self._search_rows = settings.integer("events.search_rows")

    async def open(self) -> None:
        await self._writer.open()
        self._reader.open()
        self._lists.open()

    async def close(self) -> None:
        await self._lists.close()
        await self._reader.close()
        await self._writer.close()

    async def _look_up(self, work: Callable[[Execute], R]) -> R:
        """A read of a few rows: at once when the writer's connection is free, else on the reader's."""
        found = self._writer.peek(work)
        return found[0] if found is not None else await self._reader.do(work)

    # -- the log ------------------------------------------------------------------------------------------------------

    async def append(self, append: Append) -> Appended:
        derived = self._codec.derive(append)
        return await self._writer.do(lambda tx: writes.append(tx, append, derived))

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if len(appends) < _GROUPED:
            return await asyncio.gather(*map(self._outcome, appends))
        try:
            items = [(each, self._codec.derive(each)) for each in appends]
            return list(await self._writer.do(lambda tx: grouped.append_all(tx, items), aside=True))
        except StoreUnavailable as problem:
            return [type(problem)(*problem.args) for _ in appends]  # a raised exception belongs to one raiser
        except Exception as problem:  # noqa: BLE001 - one of them cannot be stored, and nothing was written
            log.info("%d appends cannot be stored together: %s; each is stored by itself", len(appends), problem)
            return await asyncio.gather(*map(self._outcome, appends))

    async def _outcome(self, append: Append) -> Appended | Exception:
        try:
            return await self.append(append)
        except Exception as problem:  # noqa: BLE001 - it is the answer of this one
            return problem

    async def ingested(self, execution_id: int, event_ids: Sequence[int]) -> list[Ingested]:
        return await self._look_up(lambda execute: reads.ingested(execute, execution_id, event_ids))

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        def work(execute: Execute) -> list[StoredEvent]:
            return reads.events(execute, self._codec, execution_id, after, limit, types)

        return await (self._look_up(work) if limit <= _FEW and not types else self._reader.do(work))

    async def step_events(
        self, execution_id: int, step: str, run: int, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        return await self._reader.do(
            lambda execute: reads.step_events(execute, self._codec, execution_id, step, run, after, limit)
        )

    async def tail(self, *, after: int = 0, limit: int = 100) -> list[LogBatch]:
        return await self._reader.do(lambda execute: reads.tail(execute, self._codec, after, limit))

    async def marks(self, event_type: str, *, since: int = 0, limit: int = 1000) -> list[Mark]:
        return await self._reader.do(lambda execute: reads.marks(execute, event_type, since, limit))

    async def search(self, query: EventQuery, *, cursor: str = "", limit: int = 100) -> FoundEvents:
        return await search(self, query, cursor, limit, self._search_rows)

    async def mark_page(self, bit: int, after: Key, query: EventQuery, limit: int) -> list[MarkRow]:
        return await self._reader.do(lambda execute: searches.mark_page(execute, bit, after, query, limit))

    async def scanned_page(self, after: int, bits: int, query: EventQuery, limit: int) -> list[ScannedRow]:
        return await self._reader.do(
            lambda execute: searches.scanned_page(execute, self._codec, after, bits, query, limit)
        )

    async def position_before(self, ts: int) -> int:
        return await self._reader.do(lambda execute: searches.position_before(execute, ts))

    async def events_at(self, keys: Sequence[Key]) -> list[StoredEvent]:
        return await self._reader.do(lambda execute: searches.events_at(execute, self._codec, keys))

    # -- executions ---------------------------------------------------------------------------------------------------

    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        return await self._look_up(lambda execute: reads.execution(execute, execution_id))

    async def executions(
        self, which: ExecutionFilter = ExecutionFilter(), *, before: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        return await self._lists.do(lambda execute: reads.executions(execute, which, before, limit))

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        return await self._look_up(lambda execute: reads.pending_paths(execute, after, limit))

    async def live_in_path(
        self, tenant: str, path: str, state: str, *, after: int = 0, limit: int = 50
    ) -> list[ExecutionRecord]:
        return await self._reader.do(lambda execute: reads.live_in_path(execute, tenant, path, state, after, limit))

    async def awaiting_approval(self, tenant: str, *, after: int = 0, limit: int = 50) -> list[ExecutionRecord]:
        return await self._reader.do(lambda execute: reads.awaiting_approval(execute, tenant, after, limit))

    async def idle(self, before: int, *, after: int = 0, limit: int = 100) -> list[ExecutionRecord]:
        return await self._lists.do(lambda execute: reads.idle(execute, before, after, limit))

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        return await (self._retention.count(before) if dry_run else self._retention.retire(before))

    async def reclaim(self) -> int:
        return await self._retention.reclaim()

    async def run_counts(
        self, tenant: str, *, project: str = "", environment: str = "", since: int = 0, limit: int = 1000
    ) -> list[RunCount]:
        return await self._reader.do(
            lambda execute: reads.run_counts(execute, tenant, project, environment, since, limit)
        )

    async def step_runs(self, execution_id: int) -> list[StepRunRecord]:
        return await self._reader.do(lambda execute: reads.step_runs(execute, execution_id))

    async def by_run_id(self, run_id: str) -> ExecutionRecord | None:
        return await self._look_up(lambda execute: reads.by_run_id(execute, run_id))

    async def by_idempotency_key(self, scope: Scope, key: str) -> ExecutionRecord | None:
        return await self._look_up(lambda execute: reads.by_idempotency_key(execute, scope, key))

    # -- plans --------------------------------------------------------------------------------------------------------

    async def register_plan(
        self,
        digest: str,
        path: str,
        body: bytes,
        source: str,
        at: int,
        *,
        tenant: str,
        project: str = "",
        environment: str = "",
    ) -> PlanRecord:
        scope = Scope(tenant, project, environment)
        return await self._writer.do(lambda tx: writes.register_plan(tx, digest, path, body, source, at, scope))

    async def plan(self, digest: str) -> PlanRecord | None:
        return await self._look_up(lambda execute: reads.plan(execute, digest))

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        scope = Scope(tenant, project, environment)
        return await self._look_up(lambda execute: reads.registered(execute, path, version, scope))

    async def catalog(
        self,
        *,
        tenant: str,
        prefix: str = "",
        after: str = "",
        limit: int = 100,
        archived: bool = False,
        project: str = "",
        environment: str = "",
    ) -> list[CatalogRecord]:
        scope = Scope(tenant, project, environment)
        return await self._lists.do(lambda execute: reads.catalog(execute, scope, prefix, after, limit, archived))

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        scope = Scope(tenant, project, environment)
        return await self._look_up(lambda execute: reads.catalog_path(execute, scope, path))

    async def versions(
        self,
        path: str,
        *,
        tenant: str,
        before: int = 0,
        limit: int = 100,
        project: str = "",
        environment: str = "",
    ) -> list[PlanRecord]:
        scope = Scope(tenant, project, environment)
        return await self._lists.do(lambda execute: reads.versions(execute, scope, path, before, limit))

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        await self._writer.do(lambda tx: writes.archive(tx, tenant, path, at))

    # -- commands -----------------------------------------------------------------------------------------------------

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
        known, within = frozenset(kinds), Scope(tenant, project, environment)
        return await self._writer.do(
            lambda tx: claims.claim(tx, worker_id, limit, lease_until, known, pools, execution_id, within)
        )

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        return await self._writer.do(lambda tx: writes.heartbeat(tx, worker_id, held, lease_until))

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        return await self._reader.do(lambda execute: reads.expired(execute, now, limit))

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        return await self._look_up(lambda execute: reads.commands(execute, execution_id))

    async def backlog(self) -> list[Backlog]:
        return await self._lists.do(reads.backlog)

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        return await self._look_up(lambda execute: reads.granted(execute, by))

    # -- timers -------------------------------------------------------------------------------------------------------

    async def due_timers(self, now: int, limit: int = 100, *, latest: bool = False) -> list[Timer]:
        return await self._look_up(lambda execute: reads.due_timers(execute, now, limit, latest=latest))

    async def coming_timers(self, after: int, until: int, limit: int = 100) -> list[int]:
        return await self._reader.do(lambda execute: reads.coming_timers(execute, after, until, limit))

    async def next_due(self) -> int | None:
        return await self._look_up(reads.next_due)

    # -- schedules and the outbox -------------------------------------------------------------------------------------

    async def add_schedule(self, schedule: Schedule) -> None:
        await self._writer.do(lambda tx: schedules.add(tx, schedule))

    async def schedule(self, tenant: str, name: str) -> Schedule | None:
        return await self._look_up(lambda execute: schedules.one(execute, tenant, name))

    async def schedules(self, tenant: str = "", *, after: str = "", limit: int = 1000) -> list[Schedule]:
        return await self._lists.do(lambda execute: schedules.several(execute, tenant, after, limit))

    async def late_schedules(self, before: int, limit: int = 1000) -> list[Schedule]:
        return await self._lists.do(lambda execute: schedules.late(execute, before, limit))

    async def next_schedules(self, tenant: str, limit: int = 20) -> list[Schedule]:
        return await self._reader.do(lambda execute: schedules.upcoming(execute, tenant, limit))

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        return await self._writer.do(lambda tx: schedules.change(tx, schedule, owner, until))

    async def change_schedules(
        self, changed: Sequence[Schedule], owner: str = "", until: int = 0
    ) -> list[Schedule | Conflict]:
        return await self._writer.do(lambda tx: schedules.change_all(tx, changed, owner, until))

    async def remove_schedule(self, tenant: str, name: str) -> bool:
        return await self._writer.do(lambda tx: schedules.remove(tx, tenant, name))

    async def lease_schedules(self, owner: str, now: int, until: int, limit: int = 100) -> list[Schedule]:
        if not await self._look_up(lambda execute: execute(SQL["free_schedules"], (now, now, 1)).fetchall()):
            return []  # it is asked every second: no commit for nothing
        return await self._writer.do(lambda tx: schedules.lease(tx, owner, now, until, limit))

    async def deliveries(self, execution_id: int) -> list[Delivery]:
        return await self._look_up(lambda execute: outbox.several(execute, execution_id))

    async def lease_deliveries(
        self, now: int, until: int, limit: int = 100, *, but: Sequence[str] = ()
    ) -> list[Delivery]:
        if not await self._look_up(lambda execute: outbox.due(execute, now, 1, but)):
            return []
        return await self._writer.do(lambda tx: outbox.lease(tx, now, until, limit, but))

    async def attempted(self, delivery: Delivery) -> None:
        await self._writer.do(lambda tx: outbox.attempted(tx, delivery))

    async def told_executions(self, limit: int = 100) -> list[int]:
        return await self._look_up(lambda execute: outbox.told(execute, limit))

    async def given_up(self, since: int, limit: int = 100) -> list[Delivery]:
        return await self._lists.do(lambda execute: outbox.given_up(execute, since, limit))

    async def settle_deliveries(self, execution_id: int) -> None:
        await self._writer.do(lambda tx: outbox.settle(tx, execution_id))

    # -- duties -------------------------------------------------------------------------------------------------------

    async def lease_duty(self, duty: str, owner: str, now: int, until: int) -> bool:
        return await self._writer.do(lambda tx: duties.lease(tx, duty, owner, now, until))

    async def position(self, duty: str) -> int:
        return await self._look_up(lambda execute: duties.position(execute, duty))

    async def move_position(self, duty: str, owner: str, now: int, position: int) -> bool:
        return await self._writer.do(lambda tx: duties.move(tx, duty, owner, now, position))

    async def duties(self) -> list[DutyRecord]:
        return await self._look_up(duties.several)

    # -- pools --------------------------------------------------------------------------------------------------------

    async def set_limit(self, limit: Limit) -> None:
        await self._writer.do(lambda tx: pools.set_limit(tx, limit))

    async def remove_limit(self, pool: str, tenant: str) -> bool:
        return await self._writer.do(lambda tx: pools.remove_limit(tx, pool, tenant))

    async def limits(self) -> list[Limit]:
        return await self._look_up(pools.limits)

    async def set_resource(self, resource: Resource) -> None:
        await self._writer.do(lambda tx: pools.set_resource(tx, resource))

    async def remove_resource(self, name: str) -> bool:
        return await self._writer.do(lambda tx: pools.remove_resource(tx, name))

    async def resources(self) -> list[ResourceRecord]:
        return await self._look_up(pools.resources)

    async def shares(self) -> list[Share]:
        return await self._lists.do(pools.shares)

    async def queue_heads(self, tenant: str, limit: int = 100) -> list[QueueHead]:
        return await self._reader.do(lambda execute: pools.queue_heads(execute, tenant, limit))

    async def contest(self, pool: str) -> Contest:
        return await self._look_up(lambda execute: pools.contest(execute, pool))

    async def ahead(self, execution_id: int, command_id: int) -> int:
        return await self._lists.do(lambda execute: pools.ahead(execute, execution_id, command_id))

    async def see_worker(self, worker: WorkerRecord, forget: int) -> bool:
        return await self._writer.do(lambda tx: pools.see_worker(tx, worker, forget))

    async def workers(self) -> list[WorkerRecord]:
        return await self._lists.do(pools.workers)

    async def drain_worker(self, worker_id: str) -> bool:
        return await self._writer.do(lambda tx: pools.drain_worker(tx, worker_id))

    # -- results stored outside the log -------------------------------------------------------------------------------

    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        return await self._look_up(lambda execute: reads.result(execute, execution_id, name, sha256))

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        return await self._reader.do(lambda execute: reads.results(execute, "results", (execution_id, after, limit)))

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        return await self._lists.do(lambda execute: reads.results(execute, "kept_results", (*after, limit)))

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        return await self._lists.do(lambda execute: reads.results(execute, "keepers", (tenant, sha256, *after, limit)))

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        return await self._writer.do(lambda tx: writes.remove_results(tx, records, at))

    # -- caches and odds ----------------------------------------------------------------------------------------------

    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        await self._writer.do(lambda tx: writes.put_snapshot(tx, execution_id, seq, code, body, drop))

    async def past_snapshots(self, execution_id: int, code: str) -> list[int]:
        return await self._reader.do(lambda execute: reads.past_snapshots(execute, execution_id, code))

    async def snapshot(self, execution_id: int, code: str, last: int = MAX_ID) -> tuple[int, bytes] | None:
        return await self._look_up(lambda execute: reads.snapshot(execute, execution_id, code, last))

    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        if lines:
            await self._writer.do(lambda tx: task_logs.append(tx, lines, max_bytes))

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        return await self._lists.do(lambda execute: task_logs.read(execute, execution_id, after, limit, where))

    async def changed_elsewhere(self) -> bool:
        """Every commit touches the write-ahead log; SQLite knows whether it was another connection's."""
        try:
            found = os.stat(f"{self.path}-wal")  # noqa: PTH116 - asked every second: no object is needed for it
        except OSError:
            return False
        touched = (found.st_ino, found.st_size, found.st_mtime_ns)
        if touched == self._touched:
            return False
        seen = self._writer.peek(lambda execute: execute("PRAGMA data_version").get)
        if seen is None:  # this process is writing just now: the next call looks
            self._unseen += 1
            return self._unseen % _UNSEEN == 0
        self._touched, self._unseen = touched, 0
        before, self._version = self._version, seen[0]
        return before != self._version

    async def time(self) -> int:
        return self._clock.now()

    async def lease_node(self, owner: str, now: int, until: int) -> int:
        return await self._writer.do(lambda tx: writes.lease_node(tx, owner, now, until, self.path))

    # -- callers ------------------------------------------------------------------------------------------------------

    async def add_key(self, key: KeyRecord) -> None:
        await self._writer.do(lambda tx: access.add_key(tx, key))

    async def key(self, key_id: str) -> KeyRecord | None:
        return await self._look_up(lambda execute: access.key(execute, key_id))

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        return await self._lists.do(lambda execute: access.keys(execute, tenant))

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        return await self._writer.do(lambda tx: access.revoke_key(tx, key_id, at))

    async def has_keys(self) -> bool:
        return await self._look_up(access.has_keys)

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        await self._writer.do(lambda tx: access.add_session(tx, session, most))

    async def session(self, digest: str) -> SessionRecord | None:
        return await self._look_up(lambda execute: access.session(execute, digest))

    async def remove_session(self, digest: str) -> bool:
        return await self._writer.do(lambda tx: access.remove_session(tx, digest))

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        if entries:
            await self._writer.do(lambda tx: access.add_audit(tx, entries, keep_from))

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        return await self._lists.do(lambda execute: access.audit(execute, tenant, decision, before, limit))
