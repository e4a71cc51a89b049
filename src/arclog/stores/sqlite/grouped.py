"""Appends of many executions in one piece of work, a statement for each table.

SQLite lets other threads go on while it carries a statement out. So the writer's thread spends almost all of a group inside of a few
long statements, and the event loop decides the next group meanwhile; with a statement for each row, both would wait for each
other after every one. The rows of a statement are one parameter, a JSON array.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from msgspec import json

from arclog.model.errors import ArclogError
from arclog.ports.storage.statistics import HOUR
from arclog.ports.storage.store import Append, Appended
from arclog.stores.records import command_columns, new_columns, refusal_of, state_columns
from arclog.stores.rows import Derived
from arclog.stores.sqlite import appends
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.queries import SQL

Item = tuple[Append, Derived]


def append_all(tx: Tx, items: Sequence[Item]) -> list[Appended | ArclogError]:
    """What became of each, in their order. An execution comes once."""
    plain = [item for item in items if _is_plain(*item)]
    won = _advanced(tx, plain)
    _write(tx, [item for item in plain if item[0].execution_id in won])
    return [_outcome(tx, what, derived, won) for what, derived in items]


def _is_plain(what: Append, derived: Derived) -> bool:
    """Whether the statements of this file are enough for it."""
    return not (
        what.hold
        or what.unhold
        or what.release
        or what.slots
        or what.extend
        or what.tell
        or derived.ingested
        or derived.results
        or (what.asks and what.new is None)
    )


def _outcome(tx: Tx, what: Append, derived: Derived, won: Collection[int]) -> Appended | ArclogError:
    if what.execution_id in won:
        return Appended(what.expected + 1, derived.last_seq, tx.at, derived.decoded_bytes)
    if _is_plain(what, derived):
        known = tx.execute(SQL["head"], (what.execution_id,)).fetchone()
        return refusal_of(what, known, terminal=derived.terminal)
    try:
        return appends.append(tx, what, derived)
    except ArclogError as refusal:
        return refusal


def _change(tx: Tx, name: str, rows: Sequence[Any], *more: Any) -> list[tuple[Any, ...]]:
    """Carry a statement out for these rows, if there are any; what it returns."""
    return tx.execute(SQL[name], (json.encode(rows).decode(), *more)).fetchall() if rows else []


def _advanced(tx: Tx, items: Sequence[Item]) -> set[int]:
    """The compare-and-set of all of them; the executions that passed it."""
    created: list[Sequence[Any]] = []
    ending: list[Sequence[Any]] = []
    going: list[Sequence[Any]] = []
    for what, derived in items:
        state, own = state_columns(what.now), what.execution_id
        if what.new is not None:
            over = int(derived.terminal)
            created.append((own, derived.last_seq, *state, over, what.now.approvals, *new_columns(what.new)))
        else:
            (ending if derived.terminal else going).append((own, what.expected, derived.last_seq, *state))
    won: set[int] = set()
    for name, rows in (("create", created), ("finish", ending), ("advance", going)):
        won.update(own for (own,) in _change(tx, f"group.{name}", rows))
    moved = [row for row in going if row[0] not in won]
    won.update(own for (own,) in _change(tx, "group.enter", moved))
    return won


def _write(tx: Tx, items: Sequence[Item]) -> None:
    """All that belongs to appends that passed."""
    log, marks, opened, named = [], [], [], []
    closed, cleared, issued, timers = [], [], [], []
    ended: list[int] = []
    for what, derived in items:
        own = what.execution_id
        log += [(own, row.seq0, row.seq1, row.base, row.types, row.body.hex()) for row in derived.rows]
        marks += [(event_type, own, seq) for event_type, seq in derived.marks]
        for change in derived.steps:
            end = change.closed or None
            if change.opens:
                until = change.last if end else None
                opened.append((own, change.step, change.run, change.first, end, until, change.status))
            else:
                named.append((own, change.step, change.run, end, change.last, change.status))
        if derived.terminal:  # an execution that is over has no open work, whatever the append lists
            ended.append(own)
            continue
        closed += [(own, command_id) for command_id in what.close]
        cleared += [(own, timer_id) for timer_id in what.clear_timers]
        issued += [command_columns(own, command) for command in what.issue]
        timers += [(own, timer.timer_id, timer.due, payload.hex()) for timer, payload in derived.timers]
    _change(tx, "group.add_rows", log, tx.at)
    _change(tx, "group.add_marks", marks, tx.at)
    _change(tx, "group.open_steps", opened)
    ending = [row for row in named if row[3] is not None]
    closed_now = set(_change(tx, "group.close_steps", ending))
    _change(tx, "group.stretch_steps", [row for row in named if row[3] is None or row[:3] not in closed_now])
    _change(tx, "group.close_commands", closed)
    _change(tx, "group.clear_timers", cleared)
    _change(tx, "group.issue", issued)
    _change(tx, "group.set_timers", timers)
    _change(tx, "group.end_commands", ended)
    _change(tx, "group.end_timers", ended)
    _change(tx, "group.count_runs", ended, tx.at - tx.at % HOUR)
