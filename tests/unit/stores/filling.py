"""Stores with many runs, made fast: one run is written through the port, the others are copies of its rows."""

from __future__ import annotations

from typing import Any

import apsw

from arclog.model.events import Event
from arclog.model.ids import EPOCH_MS, compose
from arclog.ports.storage.store import Append, ExecutionState, NewExecution, Scope

#: between the ids of two copies: a tenth of a second
STEP = 100 << 22
FIRST = compose(EPOCH_MS + 1000, 0, 0)
RUNNING = ExecutionState("RUNNING", started_at=1)
_TABLES = ("executions", "log", "mark", "step_runs")


def minted_us(execution_id: int) -> int:
    return ((execution_id >> 22) + EPOCH_MS) * 1000


async def whole_run(
    store: Any, execution_id: int = FIRST, *, steps: int = 5, tenant: str = "default", **last: Any
) -> None:
    """A run of so many steps that has ended."""
    at = minted_us(execution_id)
    new = NewExecution(f"run-{execution_id}", "a", "flows/a", 1, "d" * 64, Scope(tenant, "p", "e"), at)
    names = ("playbook.execution.requested", "playbook.request.evaluated", "playbook.started", "workflow.started")
    await store.append(Append(execution_id, 0, [Event(name, 1) for name in names], execution_id + 1, RUNNING, new))
    head = len(names)
    for number in range(steps):
        step = f"s{number}"
        kinds = ("step.scheduled", "step.started", "task.started", "task.done", "step.done", "next.evaluated")
        events = [Event(name, 1, step, 1, payload={"x": "y" * 30}) for name in kinds]
        await store.append(Append(execution_id, head, events, execution_id + 10 + head, RUNNING))
        head += len(events)
    end = ExecutionState("COMPLETED", started_at=1, ended_at=at + 5000, terminal_event="playbook.finished")
    events = [Event("workflow.finished", 1), Event("playbook.finished", 1)]
    await store.append(Append(execution_id, head, events, execution_id + 10 + head, end, **last))


def copies(connection: apsw.Connection, count: int, original: int = FIRST) -> list[int]:
    """So many more runs like one, with later ids; these."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS n (i INTEGER PRIMARY KEY); DELETE FROM n")
    connection.execute(
        "WITH RECURSIVE r (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r WHERE i < ?) INSERT INTO n SELECT i FROM r",
        (count,),
    )
    later = f"n.i * {STEP}"
    moved = {
        "execution_id": f"t.execution_id + {later}",
        "base": f"t.base + {later}",
        "pos": "NULL",
        "run_id": f"'run-' || (t.execution_id + {later})",
        **{name: f"t.{name} + ({later} >> 22) * 1000" for name in ("ts", "created_at", "ended_at")},
    }
    with connection:
        for table in _TABLES:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            values = ", ".join(moved.get(name, f"t.{name}") for name in columns)
            connection.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM n CROSS JOIN {table} t "
                "WHERE t.execution_id = ? ORDER BY n.i",
                (original,),
            )
    return [original + n * STEP for n in range(1, count + 1)]


#: rows of every table that grows, as PostgreSQL makes them: {n} runs, and as much of everything else
POSTGRES = """
INSERT INTO arclog.executions (execution_id, head, state, current_step, started_at, ended_at, terminal_event, paused, error, over,
    run_id, name, path, version, plan, tenant, project, environment, created_at, idempotency_key, parent, origin, origin_seq, origin_how)
SELECT {first} + n * 1000, 9, CASE WHEN n % 20 = 0 THEN 'RUNNING' ELSE 'COMPLETED' END, NULL, n, n, NULL, false, NULL, n % 20 <> 0,
    'run-' || n, 'a', 'flows/' || n % 50, 1, 'd', 't' || n % 100, 'p', 'e', n, CASE WHEN n % 7 = 0 THEN 'key' || n ELSE '' END,
    CASE WHEN n % 10 = 0 THEN {first} + (n - 1) * 1000 ELSE 0 END,
    CASE WHEN n % 10 = 5 THEN {first} + (n - 1) * 1000 ELSE 0 END, n, CASE WHEN n % 10 = 5 THEN 'fork' ELSE '' END
FROM generate_series(1, {n}) n;
INSERT INTO arclog.log (execution_id, seq0, seq1, base, ts, types, pos, body)
SELECT {first} + n * 1000, k, k, n * 100 + k, n, 3, n * 10 + k, '[]' FROM generate_series(1, {n}) n, generate_series(1, 3) k;
INSERT INTO arclog.mark (event_type, ts, execution_id, seq)
SELECT k, n, {first} + n * 1000, k FROM generate_series(1, {n}) n, generate_series(0, 2) k;
INSERT INTO arclog.step_runs (execution_id, step, run, seq0, seq1, until, status)
SELECT {first} + n * 1000, 's' || k, 1, 1, 2, 2, 'done' FROM generate_series(1, {n}) n, generate_series(1, 2) k;
INSERT INTO arclog.commands (execution_id, command_id, step, run, kinds, pool, item0, item1, fence, worker_id, lease_until,
    by_command, by_fence, by_n, tenant, rank, resources)
SELECT {first} + n * 1000, n, 's', 1, ARRAY['noop'::bytea], 'p' || n % 3, 0, 0, 0, '', CASE WHEN n % 10 = 0 THEN n ELSE 0 END,
    0, 0, 0, 't' || n % 100, n, CASE WHEN n % 50 = 0 THEN '["r"]' ELSE '' END
FROM generate_series(1, {n}) n;
INSERT INTO arclog.timers (execution_id, timer_id, due, payload) SELECT {first} + n * 1000, 't', n, '' FROM generate_series(1, {n}) n;
INSERT INTO arclog.ingested (execution_id, event_id, digest, seq) SELECT {first} + n * 1000, n, '', 1 FROM generate_series(1, {n}) n;
INSERT INTO arclog.plans (digest, body) SELECT 'd' || n, '' FROM generate_series(1, {n}) n;
INSERT INTO arclog.catalog (tenant, path, version, digest, source, created_at)
SELECT 't' || n % 100, 'flows/' || n % 500, n, 'd' || n, '', n FROM generate_series(1, {n}) n;
INSERT INTO arclog.catalog_scopes (tenant, path, version, project, environment)
SELECT 't' || n % 100, 'flows/' || n % 500, n, 'p', 'e' FROM generate_series(1, {n}) n;
INSERT INTO arclog.archived (tenant, path, archived_at) SELECT 't1', 'flows/' || n, n FROM generate_series(1, {n}) n;
INSERT INTO arclog.snapshots (execution_id, seq, code, body) SELECT {first} + n * 1000, 1, 'c', '' FROM generate_series(1, {n}) n;
INSERT INTO arclog.past_snapshots (execution_id, seq, code, body) SELECT {first} + n * 1000, 1, 'c', '' FROM generate_series(1, {n}) n;
INSERT INTO arclog.task_log_sizes (execution_id, bytes, cut) SELECT {first} + n * 1000, 1, false FROM generate_series(1, {n}) n;
INSERT INTO arclog.task_logs (pos, execution_id, at, step, run, task, task_run, attempt, iteration, stream, text)
SELECT n, {first} + n * 1000, n, 's', 1, 't', 1, 1, '', CASE WHEN n % 5 = 0 THEN 'progress' ELSE 'stdout' END, ''
FROM generate_series(1, {n}) n;
INSERT INTO arclog.results (execution_id, name, sha256, bytes, content_type, tenant, scope, stored_at, step, run, task, seq)
SELECT {first} + n * 1000, 'n', 'h' || n, 1, 't', 't' || n % 100, 1, n, 's', 1, 't', 1 FROM generate_series(1, {n}) n;
INSERT INTO arclog.schedules (tenant, name, revision, wakes_at, body)
SELECT 't' || n % 100, 's' || n, 1, n, '' FROM generate_series(1, {n}) n;
INSERT INTO arclog.outbox (execution_id, n, url, secret, event, body, created_at, state, due, attempts, problem, lease_until, settled)
SELECT {first} + n * 1000, 1, 'u', '', 'completed', '', n, CASE WHEN n % 100 = 0 THEN 'pending' ELSE 'delivered' END, n, 0, '', 0,
    n % 100 <> 0 FROM generate_series(1, {n}) n;
INSERT INTO arclog.keys (key_id, name, hash, tenant, roles, created_at, project, environment)
SELECT 'k' || n, 'n', 'h', 't', '[]', n, '', '' FROM generate_series(1, {n}) n;
INSERT INTO arclog.audit (at, decision, principal, tenant, method, route, target, address, reason)
SELECT n, CASE WHEN n % 50 = 0 THEN 'denied' ELSE 'granted' END, 'p', 't' || n % 100, '', '', '', '', '' FROM generate_series(1, {n}) n;
INSERT INTO arclog.service (pool, tenant, served) SELECT 'p' || n % 3, 't' || n, n FROM generate_series(1, {n}) n;
INSERT INTO arclog.lanes (pool, tenant, kinds, resources, held, served, rank, command_id)
SELECT 'p' || n % 3, 't' || n, ARRAY['noop'::bytea], '', n % 3, n % 5, n, n FROM generate_series(1, {n}) n;
INSERT INTO arclog.holding (pool, tenant, held) SELECT 'p' || n % 3, 't' || n, 1 FROM generate_series(1, {n}) n;
INSERT INTO arclog.lane_notes (pool, tenant, kinds, resources, held)
SELECT 'p' || n % 3, 't' || n, ARRAY['noop'::bytea], '', 0 FROM generate_series(1, {n}) n;
ANALYZE
"""
