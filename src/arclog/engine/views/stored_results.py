"""What runs stored outside the log: telling of it, reading it, and letting go of it.

A ref opens nothing by itself: it must be in the books of an execution of the caller's tenant. `collect` may die between
any two of its steps: what it did stands, and the next one does the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from arclog.engine.commits.engine import Engine
from arclog.engine.duties.duty import Has, always
from arclog.model.errors import NotFound, ResultStoreAway, ResultUnavailable
from arclog.model.ids import MICROS, timestamp
from arclog.model.refs import DATA, LIST, as_ref, kept_elsewhere, kept_until, parse_ref, ref_text
from arclog.ports.results import Results, StoredBlob
from arclog.ports.storage.store import ExecutionRecord, is_imported
from arclog.ports.storage.stored_results import ResultRecord
from arclog.ports.views.api import Collected, StoredResult

#: records that are looked at in one piece: the loop of an embedded store does nothing else meanwhile
_PAGE = 200
#: contents of one piece
_CONTENTS = 100
#: executions whose end is remembered while results are looked through; these come in order of their executions
_REMEMBERED = 10_000


class Stored:
    """The results of one engine's executions."""

    def __init__(self, engine: Engine, results: Results, tenant: str | None = None) -> None:
        """With a tenant, `collect` also handles only the results of that tenant."""
        self._engine = engine
        self._results = results
        self._everybodys = tenant is None
        self._tenant = engine.settings.text("scope.tenant") if tenant is None else tenant
        self._keep = round(engine.settings.number("results.keep_s") * MICROS)
        self._retention = round(engine.settings.number("store.retention_s") * MICROS)
        self._grace = round(engine.settings.number("results.orphan_grace_s") * MICROS)

    async def listed(self, record: ExecutionRecord, after: int, limit: int) -> list[StoredResult]:
        number, tenant = record.execution_id, record.new.scope.tenant
        if tenant != self._tenant:
            raise NotFound(f"there is no execution {number} of tenant {self._tenant} (ARCLOG_SCOPE_TENANT)")
        return [_described(result) for result in await self._engine.store.results(number, after=after, limit=limit)]

    async def described(self, ref: str) -> StoredResult:
        record = await self._record_of(ref)
        until = await _Ends(self._engine, self._keep).until(record)
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
        """The result store that its event names."""
        events = await self._engine.store.events(record.execution_id, after=record.seq - 1, limit=1)
        known = events[0].event.payload.get("result_ref") if events else None
        return as_ref(known).store if known else self._results.name

    async def _record_of(self, ref: str) -> ResultRecord:
        parsed = parse_ref(ref)
        store = self._engine.store
        record = await store.result(parsed.execution_id, parsed.name, parsed.sha256)
        if record is None or record.tenant != self._tenant:
            raise NotFound(
                f"there is no stored result {ref} of tenant {self._tenant}; `arclog result list {parsed.execution_id}` shows "
                "those of its run"
            )
        return record

    # -- gc -----------------------------------------------------------------------------------------------------------

    async def collect(self, *, dry_run: bool = False, has: Has = always) -> Collected:
        """Let go of records whose time is over, then remove content that nobody keeps. In pieces: before each `has` is asked
        whether to continue, and what was done so far stands.
        """
        done: Counter[str] = Counter()
        await self._collect(done, has, dry_run=dry_run)
        about = ("results", "contents", "bytes", "leftovers", "executions", "reclaimed")
        return Collected(dry_run, *(done[place] for place in about))

    async def _collect(self, done: Counter[str], has: Has, *, dry_run: bool) -> None:
        now = self._engine.clock.now()
        ends = _Ends(self._engine, self._keep)
        if not await self._let_go(done, has, ends, now, dry_run=dry_run):
            return
        looked_at = 0
        async for blob in self._results.all():
            looked_at += 1
            if looked_at % _CONTENTS == 0 and not await has():
                return
            if not self._is_ours(blob.tenant):
                continue
            if blob.stored_at > now - self._grace or await self._is_kept(ends, blob, now):
                continue
            if dry_run or await self._results.remove(blob.tenant, blob.sha256, blob.stored_at):
                done.update(contents=1, bytes=blob.stored_bytes)
        if self._everybodys:
            if not dry_run and await has():
                done["leftovers"] = await self._results.leftovers(now - self._grace)
            await self._retire(done, has, now, dry_run=dry_run)
            while not dry_run and await has() and (size := await self._engine.store.reclaim()):
                done["reclaimed"] += size

    async def _let_go(self, done: Counter[str], has: Has, ends: _Ends, now: int, *, dry_run: bool) -> bool:
        """Whether to continue."""
        store = self._engine.store
        after = (0, "", "")
        while page := await store.kept_results(after=after, limit=_PAGE):
            due = [record for record in page if self._is_ours(record.tenant) and await ends.is_over(record, now)]
            done["results"] += len(due) if dry_run or not due else await store.remove_results(due, now)
            after = (page[-1].execution_id, page[-1].name, page[-1].sha256)
            if not await has():
                return False
        return True

    async def _retire(self, done: Counter[str], has: Has, now: int, *, dry_run: bool) -> None:
        """Remove runs past retention, after their results were released."""
        if not self._retention:
            return
        store, before = self._engine.store, now - self._retention
        if dry_run:
            done["executions"] = await store.retire(before, dry_run=True)
            return
        while await has() and (count := await store.retire(before)):
            done["executions"] += count

    def _is_ours(self, tenant: str) -> bool:
        return self._everybodys or tenant == self._tenant

    async def _is_kept(self, ends: _Ends, blob: StoredBlob, now: int) -> bool:
        after = (0, "")
        while page := await self._engine.store.keepers(blob.tenant, blob.sha256, after=after):
            for record in page:
                if not await ends.is_over(record, now):
                    return True
            after = (page[-1].execution_id, page[-1].name)
        return False


class _Ends:
    """When executions, and the roots of their trees, ended."""

    def __init__(self, engine: Engine, keep: int) -> None:
        self._engine = engine
        self._keep = keep
        self._known: dict[int, tuple[int | None, int | None]] = {}

    async def is_over(self, record: ResultRecord, now: int) -> bool:
        until = await self.until(record)
        return until is not None and until <= now

    async def until(self, record: ResultRecord) -> int | None:
        ended_at, root_ended_at = await self._of(record.execution_id)
        return kept_until(record.scope, record.expires_at, ended_at, root_ended_at, self._keep)

    async def _of(self, execution_id: int) -> tuple[int | None, int | None]:
        facts = self._known.get(execution_id)
        if facts is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            facts = self._known[execution_id] = await self._look_up(execution_id)
        return facts

    async def _look_up(self, execution_id: int) -> tuple[int | None, int | None]:
        """The end of an execution and that of its root; None of one that has not ended."""
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
