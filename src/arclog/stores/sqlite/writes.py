"""What the writer does. Each piece runs inside a transaction that it shares with others: it refuses before its first write."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import json

from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.ids import MAX_NODE
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.statistics import HOUR
from arclog.ports.storage.store import Append, Appended, EventIdTaken, NoSlot, Scope
from arclog.ports.storage.stored_results import ResultRecord
from arclog.stores.records import (
    command_columns,
    new_columns,
    refusal_of,
    result_columns,
    state_columns,
)
from arclog.stores.rows import Derived, StepChange
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.tables import outbox

_ADVANCE = SQL["advance"]
_ENTER = SQL["enter"]
_FINISH = SQL["finish"]
_ADD_ROW = SQL["add_row"]
_OPEN_STEP = SQL["open_step"]
_CLOSE_STEP = SQL["close_step"]
_STRETCH_STEP = SQL["stretch_step"]
_ISSUE = SQL["issue"]
_CLOSE_COMMAND = SQL["close_command"]
_EXTEND = SQL["extend"]
_ADD_INGESTED = SQL["add_ingested"]


def append(tx: Tx, what: Append, derived: Derived) -> Appended:
    """The compare-and-set, then all that belongs to it."""
    execute = tx.execute
    execution_id = what.execution_id
    expected = what.expected
    if what.hold or what.slots:
        _check_reserved(tx, what)
    if derived.ingested:
        _check_unknown(tx, what)
    if what.new is not None:
        over = int(derived.terminal)
        state = state_columns(what.now)
        created = (execution_id, derived.last_seq, *state, over, what.now.approvals, *new_columns(what.new))
        execute(SQL["create_execution"], created)
    else:
        state, *rest = state_columns(what.now)
        if not derived.terminal:
            execute(_ADVANCE, (derived.last_seq, *rest, execution_id, expected, state))
        if derived.terminal or not tx.changes():
            execute(_FINISH if derived.terminal else _ENTER, (derived.last_seq, state, *rest, execution_id, expected))
    if not tx.changes():
        raise refusal_of(what, tx.execute(SQL["head"], (execution_id,)).fetchone(), terminal=derived.terminal)
    if what.asks and what.new is None:
        execute(SQL["count_approvals"], (what.now.approvals, execution_id, what.now.approvals))
    for row in derived.rows:
        execute(_ADD_ROW, (execution_id, row.seq0, row.seq1, row.base, tx.at, row.types, row.body))
    for event_type, seq in derived.marks:
        execute(SQL["add_mark"], (event_type, tx.at, execution_id, seq))
    for change in derived.steps:
        _change_step(tx, execution_id, change)
    for result in derived.results:
        execute(SQL["add_result"], result_columns(execution_id, result, tx.at))
    for one in derived.ingested:
        execute(_ADD_INGESTED, (execution_id, one.event_id, bytes.fromhex(one.digest), one.seq))
    _change_work(tx, what, derived)
    if what.tell:
        outbox.put(tx, execution_id, what.tell)
    if derived.terminal:
        execute(SQL["count_run"], (execution_id, tx.at - tx.at % HOUR))
    return Appended(expected + 1, derived.last_seq, tx.at, derived.decoded_bytes)


def _check_reserved(tx: Tx, what: Append) -> None:
    """Refuse when a command was claimed that is to be held, or when no slot is free."""
    for command_id, fence in what.hold:
        if tx.execute(SQL["fence_of"], (what.execution_id, command_id)).get != fence:
            raise Conflict(f"command {command_id} no longer has fence {fence}: reload and decide again")
    if what.slots:
        if what.new is None:
            found = tx.execute(SQL["slot_holders"], (what.execution_id, what.slots))
        else:
            place = (what.new.scope.tenant, what.new.path)
            found = tx.execute(SQL["slot_holders_of"], (*place, what.execution_id, what.slots))
        holders = [holder for (holder,) in found.fetchall()]
        if len(holders) >= what.slots:
            raise NoSlot(holders)


def _check_unknown(tx: Tx, what: Append) -> None:
    """Refuse ids from outside that the execution has already."""
    ids = json.encode(list(what.digests)).decode()
    known = tx.execute(SQL["ingested"], (what.execution_id, ids)).fetchone()
    if known is not None:
        raise EventIdTaken(f"execution {what.execution_id} has an event {known[0]} already")


def _change_step(tx: Tx, execution_id: int, change: StepChange) -> None:
    closed = change.closed
    if change.opens:
        until = change.last if closed else None
        tx.execute(
            _OPEN_STEP, (execution_id, change.step, change.run, change.first, closed or None, until, change.status)
        )
        return
    if closed:
        tx.execute(_CLOSE_STEP, (closed, change.last, change.status, execution_id, change.step, change.run))
        if tx.changes():
            return
    tx.execute(_STRETCH_STEP, (change.last, execution_id, change.step, change.run))


def _change_work(tx: Tx, what: Append, derived: Derived) -> None:
    """Commands and timers."""
    execute = tx.execute
    execution_id = what.execution_id
    for held, fence, lease_until in what.extend:
        execute(_EXTEND, (lease_until, execution_id, held, fence))
    if derived.terminal:  # an execution that is over has no open work, whatever the append lists
        execute(SQL["close_all_commands"], (execution_id,))
        execute(SQL["clear_all_timers"], (execution_id,))
        return
    for command_id in what.close:
        execute(_CLOSE_COMMAND, (execution_id, command_id))
    for command_id in what.release:
        execute(SQL["release"], (execution_id, command_id))
    for command_id, _ in what.hold:
        execute(SQL["hold"], (execution_id, command_id))
    for command_id in what.unhold:
        execute(SQL["unhold"], (execution_id, command_id))
    for timer_id in what.clear_timers:
        execute(SQL["clear_timer"], (execution_id, timer_id))
    for command in what.issue:
        execute(_ISSUE, command_columns(execution_id, command))
    for timer, payload in derived.timers:
        execute(SQL["set_timer"], (execution_id, timer.timer_id, timer.due, payload))


def register_plan(tx: Tx, digest: str, path: str, body: bytes, source: str, at: int, scope: Scope) -> PlanRecord:
    tenant, place = scope.tenant, (scope.project, scope.environment)
    known = tx.execute(SQL["version_of"], (digest, tenant, path)).fetchone()
    if known is not None:
        version, source, at = known
        if tx.execute(SQL["is_scoped"], (tenant, path, version)).get:
            name, more = ("add_scope", place) if any(place) else ("remove_scopes", ())
            tx.execute(SQL[name], (tenant, path, version, *more))
        return PlanRecord(digest, path, version, body, source, at)
    tx.execute(SQL["add_plan"], (digest, body))
    ((version,),) = tx.execute(SQL["add_version"], (path, digest, source, at, tenant)).fetchall()
    if any(place):
        tx.execute(SQL["add_scope"], (tenant, path, version, *place))
    return PlanRecord(digest, path, version, body, source, at)


def archive(tx: Tx, tenant: str, path: str, at: int | None) -> None:
    if at is None:
        tx.execute(SQL["unarchive"], (tenant, path))
    else:
        tx.execute(SQL["archive"], (tenant, path, at))


def heartbeat(tx: Tx, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
    lost: list[int] = []
    for command_id, fence in held:
        tx.execute(SQL["heartbeat"], (lease_until, command_id, fence, worker_id))
        if not tx.changes():
            lost.append(command_id)
    return lost


def remove_results(tx: Tx, records: Sequence[ResultRecord], at: int) -> int:
    count = 0
    for each in records:
        tx.execute(SQL["remove_result"], (at, each.execution_id, each.name, each.sha256, each.seq))
        count += tx.changes()
    return count


def put_snapshot(
    tx: Tx, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
) -> None:
    if drop is not None:
        tx.execute(SQL["move_snapshot"], (execution_id, seq, code))
        tx.execute(SQL["drop_snapshots"], (execution_id, code, json.encode(drop).decode()))
    tx.execute(SQL["put_snapshot"], (execution_id, seq, code, body))


def lease_node(tx: Tx, owner: str, now: int, until: int, path: str) -> int:
    node: int | None = tx.execute(SQL["node_of"], (owner,)).get
    if node is None:
        taken = {number for (number,) in tx.execute(SQL["taken_nodes"], (now,)).fetchall()}
        node = next((number for number in range(MAX_NODE + 1) if number not in taken), None)
        if node is None:
            raise StoreUnavailable(
                f"all {MAX_NODE + 1} node numbers of {path} are leased; stop a process that uses it, or wait for a lease to end"
            )
    tx.execute(SQL["lease_node"], (node, owner, until))
    return node
