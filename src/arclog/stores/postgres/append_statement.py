"""Builds the SQL of appends: concurrent appends become one statement, each execution at most once.

Its first part is the compare-and-set (`advanced`, `created`); `won` are the executions that passed it, and every other
part writes only for these. So a refused append writes nothing and does not affect the others. A statement consists of
the parts that its appends need, so a small append is a small statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from arclog.model.errors import RequestRejected
from arclog.ports.storage.store import Append, NewExecution
from arclog.stores.postgres.connection.pipeline import Call, columns
from arclog.stores.records import HELD, new_columns, resources_text, result_columns, state_columns
from arclog.stores.rows import Derived, NewResult

#: maximum number of log rows in one transaction; see `positions` in the schema
MOST_ROWS = 1 << 19

_EXTEND, _RELEASE, _HOLD, _UNHOLD = 1, 2, 3, 4
_PARAMETER = re.compile(r"\$(\d+)")
_UNNEST = re.compile(r"unnest\(([^()]*)\)")

#: the parts of a statement in order, and the types of their columns
_COLUMNS = {
    "to_hold": "iii",
    "from_outside": "iibi",
    "given": "iiittiitybiy",
    "created": "iittiitybiytttittttitiiit",
    "rows": "iiiiiib",
    "marks": "iii",
    "opened": "itiiiit",
    "named": "itiiit",
    "results": "ittiitiiititi",
    "closed": "ii",
    "changed": "iiiii",
    "issued": "iitittiiitiiiiit",
    "issued_again": "iitittiiitiiiiit",
    "cleared": "it",
    "timers": "itib",
    "ended": "i",
    "counted": "i",
    "deliveries": "iitttb",
}


class Wave:
    """Appends of different executions that become one statement."""

    def __init__(self) -> None:
        self.executions: set[int] = set()
        self.slots: tuple[int, int, NewExecution | None] | None = None
        self._parts: dict[str, list[tuple[Any, ...]]] = {}

    def takes(self, append: Append) -> bool:
        """Return whether this append can be added. An execution occurs once, and slots are counted for one append at a
        time.
        """
        return append.execution_id not in self.executions and not (append.slots and self.slots)

    def add(self, append: Append, derived: Derived, at: int, number: int) -> None:
        """Add an append. `number` is the count of log rows in the transaction so far."""
        own = append.execution_id
        state, step, started, ended, terminal_event, paused, error = state_columns(append.now)
        if len(derived.rows) + number > MOST_ROWS:
            raise RequestRejected(f"append to execution {own}: more than {MOST_ROWS} log rows in one transaction")
        raw = None if error is None else error.encode()
        asked = append.now.approvals if append.asks or append.new is not None else None
        now = (state, step, started, ended, terminal_event, paused, raw, asked, derived.terminal)
        self.executions.add(own)
        if append.new is None:
            self._put("given", [(own, append.expected, derived.last_seq, *now)])
        else:
            self._put("created", [(own, derived.last_seq, *now, *new_columns(append.new))])
        rows = enumerate(derived.rows, number)
        self._put("rows", [(n, own, row.seq0, row.seq1, row.base, row.types, row.body) for n, row in rows])
        self._put("marks", [(own, event_type, seq) for event_type, seq in derived.marks])
        for change in derived.steps:
            closed = change.closed or None
            if change.opens:
                until = change.last if closed else None
                row = (own, change.step, change.run, change.first, closed, until, change.status)
                self._put("opened", [row])
            else:
                self._put("named", [(own, change.step, change.run, closed, change.last, change.status)])
        if derived.results:
            self._put("results", [result_columns(own, result, at)[:-1] for result in _merged(derived.results)])
        outside = [(own, event.event_id, bytes.fromhex(event.digest), event.seq) for event in derived.ingested]
        self._put("from_outside", outside)
        self._put("to_hold", [(own, command_id, fence) for command_id, fence in append.hold])
        if append.slots:
            self.slots = (own, append.slots, append.new)
        if derived.terminal:
            self._put("ended", [(own,)])
            self._put("counted", [(own,)])
        else:
            self._add_work(append, derived)
        deliveries = [(own, n, new.url, new.secret, new.event, new.body) for n, new in enumerate(append.deliveries, 1)]
        self._put("deliveries", deliveries)

    def _add_work(self, append: Append, derived: Derived) -> None:
        """Add commands and timers. A statement changes a row only once, so several changes of a row are
        combined here.
        """
        own = append.execution_id
        if append.extend or append.release or append.hold or append.unhold or append.close:
            changes: dict[int, tuple[int, int, int]] = {}
            for command_id, fence, lease_until in append.extend:
                changes[command_id] = (_EXTEND, fence, lease_until)
            for command_id in append.release:
                changes[command_id] = (_RELEASE, 0, 0)
            for command_id, _ in append.hold:
                changes[command_id] = (_HOLD, 0, 0)
            for command_id in append.unhold:  # unholding a command that is held in the same append releases it
                earlier = changes.get(command_id, (0, 0, 0))[0]
                changes[command_id] = (_RELEASE if earlier in (_RELEASE, _HOLD) else _UNHOLD, 0, 0)
            for command_id in append.close:
                changes.pop(command_id, None)
            self._put("changed", [(own, command_id, *change) for command_id, change in changes.items()])
        closed = set(append.close)
        for command in append.issue:
            again = command.command_id in closed
            closed.discard(command.command_id)
            first, last = command.items
            grant = command.grant
            lease: tuple[Any, ...] = (0, "", HELD if command.held else 0, 0, 0, 0)
            if grant is not None:
                lease = (1, grant.worker_id, grant.lease_until, *grant.by)
            kinds = kinds_literal(command.kinds)
            about = (own, command.command_id, command.step, command.run, kinds, command.pool, first, last)
            row = (*about, *lease, command.order, resources_text(command.resources))
            self._put("issued_again" if again else "issued", [row])
        self._put("closed", [(own, command_id) for command_id in closed])
        timers = {timer.timer_id: (own, timer.timer_id, timer.due, payload) for timer, payload in derived.timers}
        self._put("timers", timers.values())
        self._put("cleared", [(own, name) for name in dict.fromkeys(append.clear_timers) if name not in timers])

    def _put(self, part: str, rows: Iterable[tuple[Any, ...]]) -> None:
        if rows:
            self._parts.setdefault(part, []).extend(rows)

    def calls(self, queries: dict[str, str], at: int) -> list[Call]:
        """Return the statement, and the statements that must run before it."""
        names = tuple(part for part in _COLUMNS if part in self._parts)
        lone = all(len(rows) == 1 for rows in self._parts.values())
        parameters: list[Any] = [at]
        for name in names:
            rows = self._parts[name]
            if lone:
                parameters += rows[0]
                continue
            if name in {"given", "created"}:
                rows.sort()  # the same order in every process prevents deadlocks
            parameters += columns(_COLUMNS[name], rows)
        if self.slots is None:
            return [(_statement(_Texts(queries), names, slots=False, lone=lone), parameters)]
        owner, most, new = self.slots
        statement = _statement(_Texts(queries), names, slots=True, lone=lone)
        lock: Call = (queries["lock_slots"], [owner])
        if new is not None:
            lock = (queries["lock_slots_of"], [new.scope.tenant, new.path])
        return [lock, (statement, [*parameters, owner, most])]


class _Texts:
    """The named statements as a cache key. There is one such dict for each schema."""

    def __init__(self, queries: dict[str, str]) -> None:
        self.queries = queries

    def __hash__(self) -> int:
        return id(self.queries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Texts) and other.queries is self.queries


@lru_cache(maxsize=4096)
def _statement(texts: _Texts, names: Sequence[str], *, slots: bool, lone: bool) -> str:
    """Return the statement. `$1` is the time; the columns of each part follow. With `lone`, each part has one row of
    plain values.
    """
    queries = texts.queries
    count = 1
    parts: list[str] = []
    checks = [
        queries[f"append.{check}"]
        for part, check in (("to_hold", "check_hold"), ("from_outside", "check_outside"))
        if part in names
    ]
    if slots:
        total = 1 + sum(len(_COLUMNS[name]) for name in names)
        parts.append(_shifted(queries["append.slots"], total))
        checks.append(queries["append.check_slots"])
    before = [name for name in ("given", "created") if name in names]
    won = {"given": "advanced", "created": "created"}
    later: list[str] = []
    for name in names:
        text = queries["append.issued" if name == "issued_again" else f"append.{name}"]
        text = text.replace("$checks", "".join(f"\n    {check}" for check in checks))
        text = text.replace("$slots", f"\n    {queries['append.check_slots']}" if slots else "")
        text = text.replace("$more", queries["append.more"] if "counted" in names else "")
        if name.startswith("issued"):
            again = name == "issued_again"
            text = text.replace("$again", "\n    " + queries["append.issued_again"] if again else "")
            text = text.replace("issued_commands", "again_commands" if again else "issued_commands")
        if lone:
            text = _of_one_row(text)
        (parts if name in {"to_hold", "from_outside", *before} else later).append(_shifted(text, count))
        count += len(_COLUMNS[name])
    own_columns = "execution_id, tenant" + (", project, environment, state, parent" if "counted" in names else "")
    sources = " UNION ALL ".join(f"SELECT {own_columns} FROM {won[name]}" for name in before)  # noqa: S608 - names of our own
    parts.append(f"won AS ({sources})")
    if "from_outside" in names:
        later.append(queries["append.ingested"])
    return "WITH " + ",\n".join([*parts, *later]) + "\nSELECT execution_id, $1::int8 FROM won"


def _of_one_row(text: str) -> str:
    """Use plain values instead of arrays with one element, which halves PostgreSQL's work."""
    text = _UNNEST.sub(lambda match: f"(SELECT {match[1].replace('[]', '')})", text)
    return re.sub(r"= ANY\((\$\d+)\)", r"= \1::int8", text)


def _shifted(text: str, by: int) -> str:
    return _PARAMETER.sub(lambda match: f"${int(match[1]) + by}", text).replace("$at", "$1::int8")


@lru_cache(maxsize=1024)
def kinds_literal(kinds: tuple[str, ...]) -> str:
    """Return an array of bytea as text, since arrays of arrays cannot be parameters here."""
    return "{" + ",".join(f'"\\\\x{kind.encode().hex()}"' for kind in kinds) + "}"


def _merged(results: Sequence[NewResult]) -> Iterable[NewResult]:
    """Combine records of the same content under the same name: one record with the longer lifetime."""
    merged: dict[tuple[str, str], NewResult] = {}
    for result in results:
        key = (result.name, result.ref.meta.sha256)
        if (earlier := merged.get(key)) is not None:
            ttl = None if earlier.ttl is None or result.ttl is None else max(earlier.ttl, result.ttl)
            merged[key] = replace(result, scope=max(earlier.scope, result.scope), ttl=ttl)
        else:
            merged[key] = result
    return merged.values()
