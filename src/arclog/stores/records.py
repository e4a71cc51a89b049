"""Converts between the port's records and rows of tables, for every SQL store: one function for each direction and
table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from arclog.model.errors import Conflict
from arclog.model.refs import SCOPES
from arclog.ports.storage.access import KeyRecord, SessionRecord
from arclog.ports.storage.pools import WorkerRecord
from arclog.ports.storage.store import (
    Append,
    CommandRecord,
    ExecutionRecord,
    ExecutionState,
    NewCommand,
    NewExecution,
    RunOrigin,
    Scope,
    TerminalExists,
)
from arclog.ports.storage.stored_results import ResultRecord
from arclog.stores.rows import NewResult

#: lease_until of a held command: neither issued (0) nor claimed (above)
HELD = -1

#: The columns that are read, in the order in which the functions below expect them.
COLUMNS = {
    "executions": """
        execution_id head state current_step started_at ended_at terminal_event paused error
        run_id name path version plan tenant project environment created_at idempotency_key parent approvals
        origin origin_seq origin_how""",
    "sessions": "digest key_id name tenant roles subject created_at expires_at project environment",
    "commands": """
        execution_id command_id step run kinds pool item0 item1 fence worker_id lease_until rank resources""",
    "results": """
        execution_id name sha256 bytes rows content_type tenant scope stored_at expires_at step run task seq removed_at""",
    "keys": "key_id name hash tenant roles created_at project environment expires_at revoked_at",
    "audit": "pos at decision principal tenant method route target address reason",
}

_ROLES = msgspec.json.Decoder(tuple[str, ...])
_KINDS = msgspec.json.Decoder(tuple[str, ...])

Bindings = tuple[Any, ...]

#: origin … origin_how of a run that is neither a retry nor a fork
_NO_ORIGIN: Bindings = (0, 0, "")


def state_columns(now: ExecutionState) -> Bindings:
    """Return the columns from `state` to `error`, in the table's order."""
    error = now.error
    if error is not None and not error.isascii():
        error = error.encode(
            "utf-8", "replace"
        ).decode()  # for people only: an invalid character must not prevent an append
    return (
        now.state,
        now.current_step,
        now.started_at,
        now.ended_at,
        now.terminal_event,
        now.paused,
        error,
    )


def new_columns(new: NewExecution) -> Bindings:
    """Return the columns from `run_id` to `origin_how`, in the table's order."""
    scope, origin = new.scope, new.origin
    return (
        new.run_id,
        new.name,
        new.path,
        new.version,
        new.plan,
        scope.tenant,
        scope.project,
        scope.environment,
        new.created_at,
        new.idempotency_key,
        new.parent_execution_id,
        *(_NO_ORIGIN if origin is None else (origin.execution_id, origin.seq, origin.how)),
    )


def execution_record(row: Sequence[Any]) -> ExecutionRecord:
    execution_id, head, state, current_step, started_at, ended_at, terminal_event, paused, error = row[:9]
    if isinstance(error, bytes):  # PostgreSQL stores bytes
        error = error.decode()
    run_id, name, path, version, plan, tenant, project, environment, created_at, key, parent, approvals, *source = row[
        9:
    ]
    scope, origin = Scope(tenant, project, environment), RunOrigin(*source) if source[0] else None
    return ExecutionRecord(
        execution_id,
        head,
        NewExecution(run_id, name, path, version, plan, scope, created_at, key, parent, origin),
        ExecutionState(state, current_step, started_at, ended_at, terminal_event, bool(paused), error, approvals),
    )


@lru_cache(maxsize=1024)
def kinds_text(kinds: tuple[str, ...]) -> str:
    return msgspec.json.encode(kinds).decode()


@lru_cache(maxsize=1024)
def kinds_of(text: str) -> tuple[str, ...]:
    return _KINDS.decode(text)


def resources_text(names: tuple[str, ...]) -> str:
    return kinds_text(names) if names else ""


def resources_of(text: str) -> tuple[str, ...]:
    return kinds_of(text) if text else ()


def command_columns(execution_id: int, command: NewCommand) -> Bindings:
    first, last = command.items
    head = (
        execution_id,
        command.command_id,
        command.step,
        command.run,
        kinds_text(command.kinds),
        command.pool,
        first,
        last,
    )
    tail = (command.order, resources_text(command.resources))
    grant = command.grant
    if grant is None:
        return (*head, 0, "", HELD if command.held else 0, 0, 0, 0, *tail)
    return (*head, 1, grant.worker_id, grant.lease_until, *grant.by, *tail)


def command_record(row: Sequence[Any]) -> CommandRecord:
    """Return the record of a command. SQLite stores its kinds as text, PostgreSQL as an array of bytes."""
    execution_id, command_id, step, run, needs, pool, item0, item1, fence, worker_id, lease_until, *order = row
    rank, resources = order
    return CommandRecord(
        command_id,
        execution_id,
        step,
        run,
        kinds_of(needs) if isinstance(needs, str) else tuple(kind.decode() for kind in needs),
        pool,
        (item0, item1),
        "claimed" if lease_until > 0 else ("held" if lease_until == HELD else "issued"),
        fence,
        worker_id,
        max(lease_until, 0),
        rank,
        resources_of(resources),
    )


def result_columns(execution_id: int, new: NewResult, at: int) -> Bindings:
    """Return the parameters of `add_result`."""
    meta = new.ref.meta
    expires_at = None if new.ttl is None else at + new.ttl
    about = (execution_id, new.name, meta.sha256, meta.bytes, meta.rows, meta.content_type, new.scope, at, expires_at)
    return (*about, new.step, new.run, new.task, new.seq, execution_id)


def result_record(row: Sequence[Any]) -> ResultRecord:
    execution_id, name, sha256, size, rows, content_type, tenant, scope, *rest = row
    return ResultRecord(execution_id, name, sha256, size, rows, content_type, tenant, SCOPES[scope], *rest)


def key_columns(key: KeyRecord) -> Bindings:
    """Return the columns in the table's order."""
    about = (key.key_id, key.name, key.hash, key.tenant, msgspec.json.encode(key.roles).decode())
    return (*about, key.created_at, key.project, key.environment, key.expires_at, key.revoked_at)


def key_record(row: Sequence[Any]) -> KeyRecord:
    key_id, name, hashed, tenant, roles, *rest = row
    return KeyRecord(key_id, name, hashed, tenant, _ROLES.decode(roles), *rest)


def session_columns(session: SessionRecord) -> Bindings:
    """Return the columns in the table's order."""
    about = (session.digest, session.key_id, session.name, session.tenant, msgspec.json.encode(session.roles).decode())
    return (*about, session.subject, session.created_at, session.expires_at, session.project, session.environment)


def session_record(row: Sequence[Any]) -> SessionRecord:
    digest, key_id, name, tenant, roles, *rest = row
    return SessionRecord(digest, key_id, name, tenant, _ROLES.decode(roles), *rest)


def refusal_of(append: Append, state: tuple[int, bool] | None, *, terminal: bool) -> Conflict:
    """Return the error of an append whose compare-and-set matched no row. `state` is the execution's head and whether
    it has ended.
    """
    own = append.execution_id
    if state is None:
        if append.new is not None:
            key = append.new.idempotency_key
            return Conflict(f"an execution with the idempotency key {key!r} exists in its scope already")
        return Conflict(f"execution {own} does not exist in this store")
    head, over = state
    if terminal and over:
        return TerminalExists(f"execution {own} has its terminal event already")
    if append.new is not None:
        return Conflict(f"execution {own} exists already")
    return Conflict(f"execution {own} is at seq {head}, not {append.expected}: reload and decide again")


def worker_columns(worker: WorkerRecord) -> Bindings:
    """Return the parameters of `see_worker`."""
    pools, kinds = kinds_text(worker.pools), kinds_text(worker.kinds)
    about = (worker.tenant, worker.host, worker.version, worker.slots, worker.busy, worker.pace)
    return (worker.worker_id, pools, kinds, *about, worker.seen_at, worker.leaves)


def worker_record(row: Sequence[Any]) -> WorkerRecord:
    worker_id, pools, kinds, tenant, host, version, slots, busy, pace, seen_at, leaves, draining = row
    about = (tenant, host, version, slots, busy, pace, seen_at)
    return WorkerRecord(worker_id, kinds_of(pools), kinds_of(kinds), *about, bool(leaves), bool(draining))
