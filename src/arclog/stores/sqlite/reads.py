"""What the reader does: plain functions over a connection's `execute`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby, islice
from typing import Any

import apsw
import msgspec

from arclog.model.events import REGISTRY
from arclog.model.ids import MAX_ID
from arclog.model.status import EXECUTION_STATES
from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.statistics import HOUR, RunCount
from arclog.ports.storage.store import (
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
from arclog.stores.records import backlog_of, command_record, execution_record, first_path, result_record
from arclog.stores.rows import Codec, bits_of, decode
from arclog.stores.sqlite.queries import SQL

Execute = Callable[..., Any]

_ALL_TYPES = -1
_PAYLOAD = msgspec.json.Decoder(dict[str, Any])


def events(
    execute: Execute, codec: Codec, execution_id: int, after: int, limit: int, types: Sequence[str]
) -> list[StoredEvent]:
    if not (types or after):
        return _page(execute(SQL["first_rows"], (execution_id,)), codec, execution_id, limit, 0)
    bits = bits_of(types) if types else _ALL_TYPES
    wanted = frozenset(types)
    rows = execute(SQL["rows_of"], (execution_id, after + 1, MAX_ID, bits))
    if not wanted:
        return _page(rows, codec, execution_id, limit, after)
    return _page(rows, codec, execution_id, limit, after, lambda it: it.event.type in wanted)


def step_events(
    execute: Execute, codec: Codec, execution_id: int, step: str, run: int, after: int, limit: int
) -> list[StoredEvent]:
    bounds = execute(SQL["step_bounds"], (execution_id, step, run)).fetchone()
    if bounds is None:
        return []
    first = max(bounds[0], after + 1)
    last = MAX_ID if bounds[1] is None else bounds[1]
    rows = execute(SQL["rows_of"], (execution_id, first, last, _ALL_TYPES))
    return _page(rows, codec, execution_id, limit, first - 1, lambda it: it.event.run == run and it.event.step == step)


def _page(
    rows: apsw.Cursor,
    codec: Codec,
    execution_id: int,
    limit: int,
    after: int,
    wanted: Callable[[StoredEvent], bool] | None = None,
) -> list[StoredEvent]:
    page: list[StoredEvent] = []
    try:
        for seq0, base, ts, body in rows:
            if len(page) >= limit:
                break
            found = codec.stored(execution_id, seq0, base, ts, body)
            if seq0 <= after:  # only the first row can begin before the page
                found = found[after + 1 - seq0 :]
            page += found if wanted is None else filter(wanted, found)
    finally:
        rows.close()  # an unfinished cursor would keep this snapshot of the file alive
    return page[: max(limit, 0)]


def tail(execute: Execute, codec: Codec, after: int, limit: int) -> list[LogBatch]:
    rows = execute(SQL["tail"], (after, limit)).fetchall()
    return [
        LogBatch(pos, owner, codec.stored(owner, seq0, base, ts, body)) for pos, owner, seq0, base, ts, body in rows
    ]


def marks(execute: Execute, event_type: str, since: int, limit: int) -> list[Mark]:
    row = REGISTRY.get(event_type)
    if row is None:
        return []
    return [Mark(event_type, *found) for found in execute(SQL["marks"], (row.bit, since, limit))]


def execution(execute: Execute, execution_id: int) -> ExecutionRecord | None:
    return _first(execute(SQL["execution"], (execution_id,)))


def executions(execute: Execute, which: ExecutionFilter, before: int, limit: int) -> list[ExecutionRecord]:
    """Where something narrows the list, each walk is along an index in which all that it passes is wanted."""
    first, part = before or MAX_ID, (which.project, which.environment)
    if which.parent or which.children:
        states = msgspec.json.encode(which.states).decode()
        narrowed = (first, states, which.path, which.tenant, limit, which.since, which.name, *part)
        if which.level == "top":
            return []
        if which.parent:
            rows = execute(SQL["children_of"], (*narrowed, which.parent))
        else:
            rows = execute(SQL["live_children"], narrowed)
        return [execution_record(row) for row in rows]
    if not (which.states or which.path or which.tenant or which.name or which.level or any(part)):
        return [execution_record(row) for row in execute(SQL["executions"], (first, which.since, limit))]
    page = (first, which.since, limit)
    walks = [
        [number for (number,) in execute(SQL[name], (*keys, *page, *more, *part, which.level))]
        for name, keys, more in _walks(execute, which)
    ]
    # A run that ends meanwhile is met in both of its states.
    newest = islice((number for number, _ in groupby(merge(*walks, reverse=True))), limit)
    return [record for number in newest if (record := execution(execute, number)) is not None]


def _walks(execute: Execute, which: ExecutionFilter) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Statement, what the index is narrowed to, what is looked at in the rows."""
    # In the order in which a run takes them: one that changes its state meanwhile is not missed.
    states = [state for state in EXECUTION_STATES if not which.states or state in which.states]
    for tenant in [which.tenant] if which.tenant else _steps(execute, "next_tenant"):
        starts: list[tuple[str, tuple[str, ...], tuple[str, ...]]]
        if which.path:
            starts = [("in_path", (tenant, which.path), (which.name,))]
        elif which.name:
            names = _steps(execute, "next_name", tenant)
            starts = [("with_name", (tenant, name), ()) for name in names if which.name in name]
        else:
            starts = [("in_state", (tenant,), ())]
        for statement, keys, more in starts:
            for state in states:
                yield statement, (*keys, state), more


def _steps(execute: Execute, statement: str, *keys: str) -> Iterator[str]:
    """The values that an index has, one look-up each."""
    last = ""
    while row := execute(SQL[statement], (*keys, last)).fetchone():
        (last,) = row
        yield last


def pending_paths(execute: Execute, after: tuple[str, str], limit: int) -> list[tuple[str, str]]:
    """Steps from pair to pair, one look-up each."""
    found: list[tuple[str, str]] = []
    while len(found) < limit:
        pair = execute(SQL["next_pending_path"], (*after, MAX_ID)).fetchone()
        if pair is None:
            break
        found.append(pair)
        after = pair
    return found


def live_in_path(execute: Execute, tenant: str, path: str, state: str, after: int, limit: int) -> list[ExecutionRecord]:
    return [execution_record(row) for row in execute(SQL["live_in_path"], (tenant, path, state, after, limit))]


def awaiting_approval(execute: Execute, tenant: str, after: int, limit: int) -> list[ExecutionRecord]:
    return [execution_record(row) for row in execute(SQL["awaiting_approval"], (tenant, after, limit))]


def run_counts(execute: Execute, tenant: str, project: str, environment: str, since: int, limit: int) -> list[RunCount]:
    rows = execute(SQL["run_counts"], (tenant, project, environment, since - HOUR, limit))
    return [RunCount(*row) for row in rows]


def idle(execute: Execute, before: int, after: int, limit: int) -> list[ExecutionRecord]:
    return [execution_record(row) for row in execute(SQL["idle"], (after, before, limit))]


def by_idempotency_key(execute: Execute, scope: Scope, key: str) -> ExecutionRecord | None:
    return _first(execute(SQL["by_idempotency_key"], (scope.tenant, scope.project, scope.environment, key)))


def by_run_id(execute: Execute, run_id: str) -> ExecutionRecord | None:
    return _first(execute(SQL["by_run_id"], (run_id,)))


def ingested(execute: Execute, execution_id: int, event_ids: Sequence[int]) -> list[Ingested]:
    rows = execute(SQL["ingested"], (execution_id, msgspec.json.encode(event_ids).decode()))
    return [Ingested(event_id, digest.hex(), seq) for event_id, digest, seq in rows]


def _first(rows: apsw.Cursor) -> ExecutionRecord | None:
    row = rows.fetchone()
    return None if row is None else execution_record(row)


def step_runs(execute: Execute, execution_id: int) -> list[StepRunRecord]:
    return [StepRunRecord(*row) for row in execute(SQL["step_runs"], (execution_id,))]


def plan(execute: Execute, digest: str) -> PlanRecord | None:
    row = execute(SQL["plan"], (digest,)).fetchone()
    return None if row is None else PlanRecord(*row)


def registered(execute: Execute, path: str, version: int, scope: Scope) -> PlanRecord | None:
    given = (path, version, scope.tenant, scope.project, scope.environment)
    row = execute(SQL["registered"], given).fetchone()
    return None if row is None else PlanRecord(*row)


def catalog(execute: Execute, scope: Scope, prefix: str, after: str, limit: int, archived: bool) -> list[CatalogRecord]:
    given = (first_path(after, prefix), prefix, limit, archived, scope.tenant, scope.project, scope.environment)
    return [CatalogRecord(*row) for row in execute(SQL["catalog"], given)]


def catalog_path(execute: Execute, scope: Scope, path: str) -> CatalogRecord | None:
    row = execute(SQL["catalog_path"], (scope.tenant, path, scope.project, scope.environment)).fetchone()
    return None if row is None else CatalogRecord(*row)


def versions(execute: Execute, scope: Scope, path: str, before: int, limit: int) -> list[PlanRecord]:
    given = (path, before, limit, scope.tenant, scope.project, scope.environment)
    return [PlanRecord(*row) for row in execute(SQL["versions"], given)]


def expired(execute: Execute, now: int, limit: int) -> list[CommandRecord]:
    return _commands(execute(SQL["expired"], (now, limit)))


def commands(execute: Execute, execution_id: int) -> list[CommandRecord]:
    return _commands(execute(SQL["commands"], (execution_id,)))


def granted(execute: Execute, by: tuple[int, int, int]) -> list[CommandRecord]:
    return _commands(execute(SQL["granted"], by))


def _commands(rows: Iterable[Any]) -> list[CommandRecord]:
    return [command_record(row) for row in rows]


def due_timers(execute: Execute, now: int, limit: int, *, latest: bool) -> list[Timer]:
    rows = execute(SQL["latest_timers" if latest else "due_timers"], (now, limit))
    return [Timer(owner, timer_id, due, decode(payload, _PAYLOAD)) for owner, timer_id, due, payload in rows]


def coming_timers(execute: Execute, after: int, until: int, limit: int) -> list[int]:
    return [owner for (owner,) in execute(SQL["coming_timers"], (after, until, limit))]


def next_due(execute: Execute) -> int | None:
    due: int | None = execute(SQL["next_due"]).get
    return due


def result(execute: Execute, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
    row = execute(SQL["result"], (execution_id, name, sha256)).fetchone()
    return None if row is None else result_record(row)


def results(execute: Execute, name: str, bindings: tuple[Any, ...]) -> list[ResultRecord]:
    """Those that the named query finds."""
    return [result_record(row) for row in execute(SQL[name], bindings)]


def snapshot(execute: Execute, execution_id: int, code: str, last: int) -> tuple[int, bytes] | None:
    for statement in ("snapshot", "past_snapshot"):
        row = execute(SQL[statement], (execution_id, code, last)).fetchone()
        if row is not None:
            return (row[0], row[1])
    return None


def past_snapshots(execute: Execute, execution_id: int, code: str) -> list[int]:
    return [seq for (seq,) in execute(SQL["past_snapshots"], (execution_id, code))]


def backlog(execute: Execute) -> list[Backlog]:
    return backlog_of(execute(SQL["backlog"]).fetchall())
