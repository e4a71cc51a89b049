"""Appends to the SQLite store. An append shares its transaction with others, so it is refused before its first
write.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import json

from arclog.model.errors import ArclogError, Conflict
from arclog.ports.storage.statistics import HOUR
from arclog.ports.storage.store import Append, Appended, EventIdTaken, NoSlot
from arclog.stores.records import command_columns, new_columns, refusal_of, result_columns, state_columns
from arclog.stores.rows import Derived, StepChange
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.queries import SQL

# ── appends ───────────────────────────────────────────────────────────────────────────────────────────────────────────

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


def append(tx: Tx, request: Append, derived: Derived) -> Appended:
    """Perform the compare-and-set, then write everything that belongs to the append."""
    execute = tx.execute
    execution_id = request.execution_id
    expected = request.expected
    if request.hold or request.slots:
        _check_reserved(tx, request)
    if derived.ingested:
        _check_unknown(tx, request)
    if request.new is not None:
        over = int(derived.terminal)
        state = state_columns(request.now)
        created = (execution_id, derived.last_seq, *state, over, request.now.approvals, *new_columns(request.new))
        execute(SQL["create_execution"], created)
    else:
        state, *rest = state_columns(request.now)
        if not derived.terminal:
            execute(_ADVANCE, (derived.last_seq, *rest, execution_id, expected, state))
        if derived.terminal or not tx.changes():
            execute(_FINISH if derived.terminal else _ENTER, (derived.last_seq, state, *rest, execution_id, expected))
    if not tx.changes():
        raise refusal_of(request, tx.execute(SQL["head"], (execution_id,)).fetchone(), terminal=derived.terminal)
    if request.asks and request.new is None:
        execute(SQL["count_approvals"], (request.now.approvals, execution_id, request.now.approvals))
    for part in derived.rows:
        execute(_ADD_ROW, (execution_id, part.seq0, part.seq1, part.base, tx.at, part.types, part.body))
    for event_type, seq in derived.marks:
        execute(SQL["add_mark"], (event_type, tx.at, execution_id, seq))
    for change in derived.steps:
        _change_step(tx, execution_id, change)
    for result in derived.results:
        execute(SQL["add_result"], result_columns(execution_id, result, tx.at))
    for ingested in derived.ingested:
        execute(_ADD_INGESTED, (execution_id, ingested.event_id, bytes.fromhex(ingested.digest), ingested.seq))
    _change_work(tx, request, derived)
    for n, new in enumerate(request.deliveries, 1):
        row = (execution_id, n, new.url, new.secret, new.event, new.body, tx.at, tx.at)
        execute(SQL["add_delivery"], row)
    if derived.terminal:
        execute(SQL["count_run"], (execution_id, tx.at - tx.at % HOUR))
    return Appended(expected + 1, derived.last_seq, tx.at, derived.decoded_bytes)


def _check_reserved(tx: Tx, request: Append) -> None:
    """Raise if a command that is to be held was claimed, or if no slot is free."""
    for command_id, fence in request.hold:
        if tx.execute(SQL["fence_of"], (request.execution_id, command_id)).get != fence:
            raise Conflict(f"command {command_id} no longer has fence {fence}: reload and decide again")
    if request.slots:
        if request.new is None:
            rows = tx.execute(SQL["slot_holders"], (request.execution_id, request.slots))
        else:
            place = (request.new.scope.tenant, request.new.path)
            rows = tx.execute(SQL["slot_holders_of"], (*place, request.execution_id, request.slots))
        holders = [holder for (holder,) in rows.fetchall()]
        if len(holders) >= request.slots:
            raise NoSlot(holders)


def _check_unknown(tx: Tx, request: Append) -> None:
    """Raise if the execution already has one of the ids from outside."""
    ids = json.encode(list(request.digests)).decode()
    known = tx.execute(SQL["ingested"], (request.execution_id, ids)).fetchone()
    if known is not None:
        raise EventIdTaken(f"execution {request.execution_id} has an event {known[0]} already")


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


def _change_work(tx: Tx, request: Append, derived: Derived) -> None:
    """Apply the changes of an append to commands and timers."""
    execute = tx.execute
    execution_id = request.execution_id
    for held, fence, lease_until in request.extend:
        execute(_EXTEND, (lease_until, execution_id, held, fence))
    if derived.terminal:  # an execution that has ended has no open work, whatever the append lists
        execute(SQL["close_all_commands"], (execution_id,))
        execute(SQL["clear_all_timers"], (execution_id,))
        return
    for command_id in request.close:
        execute(_CLOSE_COMMAND, (execution_id, command_id))
    for command_id in request.release:
        execute(SQL["release"], (execution_id, command_id))
    for command_id, _ in request.hold:
        execute(SQL["hold"], (execution_id, command_id))
    for command_id in request.unhold:
        execute(SQL["unhold"], (execution_id, command_id))
    for timer_id in request.clear_timers:
        execute(SQL["clear_timer"], (execution_id, timer_id))
    for command in request.issue:
        execute(_ISSUE, command_columns(execution_id, command))
    for timer, payload in derived.timers:
        execute(SQL["set_timer"], (execution_id, timer.timer_id, timer.due, payload))


# ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Appends of many executions in one piece of work, with one statement for each table.
#
# SQLite releases the interpreter lock during a statement. So the writer's thread spends almost all of a group inside a
# few long statements, while the event loop decides the next group. With one statement per row, both would wait for each
# other after every one. The rows of a statement are one parameter, a JSON array; the bodies of log rows are another, a
# blob, since in JSON they would have to be written as hexadecimal digits.

Item = tuple[Append, Derived]


def append_all(tx: Tx, items: Sequence[Item]) -> list[Appended | ArclogError]:
    """Return the result of each append, in order. An execution occurs once."""
    plain = [item for item in items if _is_plain(*item)]
    won = _advanced(tx, plain)
    _write(tx, plain if len(won) == len(plain) else [item for item in plain if item[0].execution_id in won])
    return [_outcome(tx, request, derived, won) for request, derived in items]


def _is_plain(request: Append, derived: Derived) -> bool:
    """Return whether the group statements cover everything in an append."""
    return not (
        request.hold
        or request.unhold
        or request.release
        or request.slots
        or request.extend
        or request.deliveries
        or derived.ingested
        or derived.results
        or (request.asks and request.new is None)
    )


def _outcome(tx: Tx, request: Append, derived: Derived, won: Collection[int]) -> Appended | ArclogError:
    if request.execution_id in won:
        return Appended(request.expected + 1, derived.last_seq, tx.at, derived.decoded_bytes)
    if _is_plain(request, derived):
        known = tx.execute(SQL["head"], (request.execution_id,)).fetchone()
        return refusal_of(request, known, terminal=derived.terminal)
    try:
        return append(tx, request, derived)
    except ArclogError as refusal:
        return refusal


def _change(tx: Tx, name: str, rows: Sequence[Any], *more: Any) -> list[tuple[Any, ...]]:
    """Run a statement for these rows, if there are any. Return its rows."""
    return tx.execute(SQL[name], (json.encode(rows).decode(), *more)).fetchall() if rows else []


def _advanced(tx: Tx, items: Sequence[Item]) -> set[int]:
    """Perform the compare-and-set of all appends. Return the executions that passed."""
    created: list[Sequence[Any]] = []
    ending: list[Sequence[Any]] = []
    going: list[Sequence[Any]] = []
    for request, derived in items:
        state, own = state_columns(request.now), request.execution_id
        if request.new is not None:
            over = int(derived.terminal)
            created.append((own, derived.last_seq, *state, over, request.now.approvals, *new_columns(request.new)))
        else:
            (ending if derived.terminal else going).append((own, request.expected, derived.last_seq, *state))
    won: set[int] = set()
    for name, rows in (("create", created), ("finish", ending), ("advance", going)):
        won.update(own for (own,) in _change(tx, f"group.{name}", rows))
    moved = [row for row in going if row[0] not in won]
    won.update(own for (own,) in _change(tx, "group.enter", moved))
    return won


def _write(tx: Tx, items: Sequence[Item]) -> None:
    """Write everything that belongs to the appends that passed."""
    log, marks, opened, results = [], [], [], []
    closed, cleared, issued, timers = [], [], [], []
    ended: list[int] = []
    bodies: list[bytes] = []
    place = 1
    for request, derived in items:
        own = request.execution_id
        for row in derived.rows:
            log.append((own, row.seq0, row.seq1, row.base, row.types, place, len(row.body)))
            bodies.append(row.body)
            place += len(row.body)
        marks += [(event_type, own, seq) for event_type, seq in derived.marks]
        for change in derived.steps:
            end = change.closed or None
            if change.opens:
                until = change.last if end else None
                opened.append((own, change.step, change.run, change.first, end, until, change.status))
            else:
                results.append((own, change.step, change.run, end, change.last, change.status))
        if derived.terminal:  # an execution that has ended has no open work, whatever the append lists
            ended.append(own)
            continue
        closed += [(own, command_id) for command_id in request.close]
        cleared += [(own, timer_id) for timer_id in request.clear_timers]
        issued += [command_columns(own, command) for command in request.issue]
        timers += [(own, timer.timer_id, timer.due, payload.hex()) for timer, payload in derived.timers]
    _change(tx, "group.add_rows", log, tx.at, b"".join(bodies))
    _change(tx, "group.add_marks", marks, tx.at)
    _change(tx, "group.open_steps", opened)
    ending = [row for row in results if row[3] is not None]
    _change(tx, "group.close_steps", ending)
    # A step run that was just closed stays as it is if it is stretched, so it need not be known which ones were.
    are_closed = not ending or tx.changes() == len(ending)
    _change(tx, "group.stretch_steps", [row for row in results if row[3] is None] if are_closed else results)
    _change(tx, "group.close_commands", closed)
    _change(tx, "group.clear_timers", cleared)
    _change(tx, "group.issue", issued)
    _change(tx, "group.set_timers", timers)
    _change(tx, "group.end_commands", ended)
    _change(tx, "group.end_timers", ended)
    _change(tx, "group.count_runs", ended, tx.at - tx.at % HOUR)
