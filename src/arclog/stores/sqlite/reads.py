"""What the reader does: plain functions over a connection's `execute`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw
import msgspec

from arclog.model.events import REGISTRY
from arclog.model.ids import MAX_ID
from arclog.ports.catalog import CatalogRecord, PlanRecord
from arclog.ports.store import (
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
from arclog.ports.stored_results import ResultRecord
from arclog.stores.records import backlog_of, command_record, execution_record, result_record
from arclog.stores.rows import Codec, bits_of, decode
from arclog.stores.sqlite.queries import SQL

Execute = Callable[..., Any]

_ALL_TYPES = -1
_LIVE = frozenset({"PENDING", "RUNNING"})
_PAYLOAD = msgspec.json.Decoder(dict[str, Any])


def events(
    execute: Execute, codec: Codec, execution_id: int, after: int, limit: int, types: Sequence[str]
) -> list[StoredEvent]:
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
    name = "live_executions" if which.states and _LIVE.issuperset(which.states) else "executions"
    if which.parent:
        name = "children_of"
    states = msgspec.json.encode(which.states).decode()
    narrowed = (states, which.path, which.tenant, limit, which.parent, int(which.children), which.since, which.name)
    return [
        execution_record(row)
        for row in execute(SQL[name], (before or MAX_ID, *narrowed, which.project, which.environment))
    ]


def live(execute: Execute, which: ExecutionFilter, after: int, limit: int) -> list[ExecutionRecord]:
    states = msgspec.json.encode(which.states).decode()
    given = (after, states, which.path, which.tenant, limit, which.project, which.environment)
    return [execution_record(row) for row in execute(SQL["oldest_live"], given)]


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
    given = (after, prefix, limit, archived, scope.tenant, scope.project, scope.environment)
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


def due_timers(execute: Execute, now: int, limit: int) -> list[Timer]:
    rows = execute(SQL["due_timers"], (now, limit))
    return [Timer(owner, timer_id, due, decode(payload, _PAYLOAD)) for owner, timer_id, due, payload in rows]


def next_due(execute: Execute) -> int | None:
    due: int | None = execute(SQL["next_due"]).get
    return due


def result(execute: Execute, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
    row = execute(SQL["result"], (execution_id, name, sha256)).fetchone()
    return None if row is None else result_record(row)


def results(execute: Execute, name: str, bindings: tuple[Any, ...]) -> list[ResultRecord]:
    """Those that the named query finds."""
    return [result_record(row) for row in execute(SQL[name], bindings)]


def snapshot(execute: Execute, execution_id: int, code: str) -> tuple[int, bytes] | None:
    row = execute(SQL["snapshot"], (execution_id, code)).fetchone()
    return None if row is None else (row[0], row[1])


def backlog(execute: Execute) -> list[Backlog]:
    return backlog_of(execute(SQL["backlog"]).fetchall())
