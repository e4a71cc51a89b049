"""Stored results for readers: lists, descriptions and content.

A ref alone gives no access: it must be recorded for an execution of the caller's tenant.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from arclog.engine.commits.engine import Engine
from arclog.model.errors import NotFound, ResultStoreAway, ResultUnavailable
from arclog.model.ids import MICROS, timestamp
from arclog.model.refs import DATA, LIST, as_ref, kept_elsewhere, kept_until, parse_ref, ref_text
from arclog.ports.boundary import Boundary
from arclog.ports.results import Results
from arclog.ports.storage.store import ExecutionRecord, is_imported
from arclog.ports.storage.stored_results import ResultRecord
from arclog.ports.views.api import StoredResult

#: maximum number of executions whose end is cached; results are read in order of their executions
_REMEMBERED = 10_000


class Stored:
    """The results of one engine's executions."""

    def __init__(self, engine: Engine, results: Results, boundary: Boundary) -> None:
        self._engine = engine
        self._results = results
        self._boundary = boundary
        self._keep = round(engine.settings.number("results.keep_s") * MICROS)

    async def listed(self, record: ExecutionRecord, after: int, limit: int) -> list[StoredResult]:
        number, tenant = record.execution_id, record.new.scope.tenant
        if not self._boundary.owns(tenant):
            home = self._boundary.home.tenant
            raise NotFound(f"there is no execution {number} of tenant {home} (ARCLOG_SCOPE_TENANT)")
        return [_described(result) for result in await self._engine.store.results(number, after=after, limit=limit)]

    async def described(self, ref: str) -> StoredResult:
        record = await self._record_of(ref)
        until = await Ends(self._engine, self._keep).until(record)
        events = await self._engine.store.events(record.execution_id, after=record.seq - 1, limit=1)
        preview = events[0].event.payload.get("preview") if events else None
        blob = None if record.removed_at is not None else await self._results.find(record.tenant, record.sha256)
        return _described(
            record,
            preview=preview if isinstance(preview, str) else None,
            stored_bytes=None if blob is None else blob.stored_bytes,
            kept_until=None if until is None else timestamp(until),
        )

    async def content(self, ref: str, start: int, end: int | None) -> AsyncIterator[bytes]:
        record = await self._record_of(ref)
        if record.removed_at is not None:
            run = await self._engine.store.execution(record.execution_id)
            if run is not None and is_imported(run.new):
                raise ResultUnavailable(
                    f"{ref} was removed before run {record.execution_id} was exported: the imported run does not have it"
                )
            day = timestamp(record.removed_at)[:10]
            raise ResultUnavailable(f"{ref} was removed by gc on {day}; run the step that created it again")
        try:
            async for chunk in self._results.chunks(record.tenant, record.sha256, start, end):
                yield chunk
        except ResultStoreAway:
            raise
        except ResultUnavailable:
            store = await self._store_of(record)
            if store == self._results.name:
                raise
            raise kept_elsewhere(ref, store, self._results.name) from None

    async def _store_of(self, record: ResultRecord) -> str:
        """Return the result store that its event names."""
        events = await self._engine.store.events(record.execution_id, after=record.seq - 1, limit=1)
        recorded = events[0].event.payload.get("result_ref") if events else None
        return as_ref(recorded).store if recorded else self._results.name

    async def _record_of(self, ref: str) -> ResultRecord:
        parsed = parse_ref(ref)
        store = self._engine.store
        record = await store.result(parsed.execution_id, parsed.name, parsed.sha256)
        if record is None or not self._boundary.owns(record.tenant):
            raise NotFound(
                f"there is no stored result {ref} of tenant {self._boundary.home.tenant}; `arclog result list {parsed.execution_id}` shows "
                "those of its run"
            )
        return record


class Ends:
    """The end times of executions and of the roots of their trees."""

    def __init__(self, engine: Engine, keep: int) -> None:
        self._engine = engine
        self._keep = keep
        self._cached: dict[int, tuple[int | None, int | None]] = {}

    async def is_over(self, record: ResultRecord, now: int) -> bool:
        until = await self.until(record)
        return until is not None and until <= now

    async def until(self, record: ResultRecord) -> int | None:
        ended_at, root_ended_at = await self._of(record.execution_id)
        return kept_until(record.scope, record.expires_at, ended_at, root_ended_at, self._keep)

    async def _of(self, execution_id: int) -> tuple[int | None, int | None]:
        facts = self._cached.get(execution_id)
        if facts is None:
            if len(self._cached) >= _REMEMBERED:
                self._cached.clear()
            facts = self._cached[execution_id] = await self._look_up(execution_id)
        return facts

    async def _look_up(self, execution_id: int) -> tuple[int | None, int | None]:
        """Return the end of an execution and that of its root; None if it has not ended."""
        ends: list[int | None] = []
        while execution_id:
            record = await self._engine.store.execution(execution_id)
            if record is None:
                break
            now = record.now
            ends.append(None if now.terminal_event is None else now.ended_at or record.new.created_at)
            execution_id = record.new.parent_execution_id
        return (ends[0], ends[-1]) if ends else (None, None)


def _described(
    record: ResultRecord,
    *,
    preview: str | None = None,
    stored_bytes: int | None = None,
    kept_until: str | None = None,
) -> StoredResult:
    return StoredResult(
        ref=ref_text(record.execution_id, record.name, record.sha256),
        execution_id=str(record.execution_id),
        name=record.name,
        step=record.step,
        run=record.run,
        task=record.task,
        kind=DATA if record.rows is None else LIST,
        content_type=record.content_type,
        bytes=record.bytes,
        rows=record.rows,
        sha256=record.sha256,
        scope=record.scope,
        stored_at=timestamp(record.stored_at),
        expires_at=None if record.expires_at is None else timestamp(record.expires_at),
        removed_at=None if record.removed_at is None else timestamp(record.removed_at),
        seq=record.seq,
        preview=preview,
        stored_bytes=stored_bytes,
        kept_until=kept_until,
    )
