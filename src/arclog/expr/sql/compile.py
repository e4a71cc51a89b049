"""Compiles the SQL of a playbook: every `{{ expr }}` becomes a bound parameter, never text.

Invariant: the text that reaches a database is the author's own, with placeholders, and names that `identifier` quoted.
A compiled command evaluates to `[{sql, params}, …]`, one entry per statement, with JSON values; `json` lists the
numbers of the values that the SQL itself converts to JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from arclog.expr.budget import DEFAULT_LIMITS, Failure, Limits
from arclog.expr.sql.scan import DIALECTS, Dialect, Hole, Mark, Misplaced, Statement, statements
from arclog.expr.template import Locate, Template, Tree, compile_ending, compile_tree, nowhere
from arclog.model.errors import NOWHERE, ExpressionError, Position

IDENTIFIER = "identifier"


class SqlRefused(ExpressionError):
    """SQL whose templates cannot be bound."""


class _Slot(Struct, frozen=True):
    """The place of a value in a statement."""

    evaluate: Callable[[Mapping[str, Any]], Any]
    #: value | member | text | name
    kind: str
    at: Position
    json: bool = False


class Command:
    """A compiled command. Immutable; evaluates to its statements with their values."""

    def __init__(
        self, compiled: list[list[str | _Slot]], holes: list[Template], trees: list[Tree], dialect: Dialect
    ) -> None:
        #: the templates in the text itself
        self.holes = holes
        parts: list[Template | Tree] = [*holes, *trees]
        self.constant = all(part.constant for part in parts)
        self.free = frozenset[str]().union(*(part.free for part in parts))
        self.paths = frozenset[tuple[str, ...]]().union(*(part.paths for part in parts))
        self.reads = frozenset[tuple[str | int, ...]]().union(*(part.reads for part in parts))
        self._compiled = compiled
        self._dialect = dialect

    def evaluate(self, scope: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return each statement's text and its values."""
        return [self._statement(pieces, scope) for pieces in self._compiled]

    def _statement(self, pieces: list[str | _Slot], scope: Mapping[str, Any]) -> dict[str, Any]:
        text: list[str] = []
        params: list[Any] = []
        json: list[int] = []
        for piece in pieces:
            if isinstance(piece, str):
                text.append(piece)
                continue
            value = piece.evaluate(scope)
            if piece.kind == "member" and isinstance(value, list):
                raise ExpressionError(
                    f"IN does not accept a list as a value; write {self._dialect.membership}", piece.at
                )
            if piece.kind == "name":
                try:
                    text.append(quoted_name(value, self._dialect))
                except Failure as failure:
                    raise ExpressionError(failure.message, piece.at) from None
            else:
                params.append(as_text(value) if piece.kind == "text" else value)
                text.append(self._dialect.placeholder.format(len(params)))
                if piece.json and piece.kind != "text":
                    json.append(len(params))
        statement: dict[str, Any] = {"sql": "".join(text).strip(), "params": params}
        return {**statement, "json": json} if json else statement


def compile_sql(
    source: str,
    dialect: str,
    params: Sequence[Any] | Mapping[str, Any] | None = None,
    at: Position = NOWHERE,
    limits: Limits = DEFAULT_LIMITS,
    locate: Locate = nowhere,
    place: Callable[[int], Position] | None = None,
) -> Command:
    """Compile a command of one or more statements.

    `locate` returns the position of a part of `params`, `place` that of a character of the text (default: computed for
    a text that is in the file unchanged).
    """
    place = place or partial(place_of, source, at)
    reading = DIALECTS[dialect]
    keys = frozenset(params) if isinstance(params, Mapping) else frozenset[str]()
    count = 0 if params is None or isinstance(params, Mapping) else len(params)
    try:
        parsed = statements(source, reading, keys, count)
    except Misplaced as refusal:
        raise SqlRefused(refusal.message, place(refusal.offset)) from None
    holes: list[Template] = []
    trees: list[Tree] = []
    used: set[str | int] = set()

    def slot(piece: Hole | Mark) -> _Slot:
        where = place(piece.offset)
        if isinstance(piece, Mark):
            value = params[piece.key]  # type: ignore[index]  # the scan found it there
            tree = compile_tree(value, lambda inner: locate((piece.key, *inner)), limits)
            used.add(piece.key)
            trees.append(tree)
            return _Slot(tree.evaluate, "value", where, piece.json)
        template, ending = compile_ending(piece.source, IDENTIFIER, where, limits)
        if ending and piece.quoted:
            raise SqlRefused("identifier adds quotes; remove those around it", where)
        holes.append(template)
        kind = "name" if ending else "text" if piece.quoted else "member" if piece.member else "value"
        return _Slot(template.evaluate, kind, where, piece.json)

    compiled = [_pieces(statement, slot) for statement in parsed]
    _all_used(params, used, reading, at)
    return Command(compiled, holes, trees, reading)


def _all_used(params: Any, used: set[str | int], dialect: Dialect, at: Position) -> None:
    """Raise SqlRefused for an unused entry of `params`, which is probably misspelled."""
    if isinstance(params, Mapping):
        marks = {key: (f"params.{key}", f":{key}") for key in params}
    else:
        marks = {at: (f"params[{at}]", dialect.placeholder.format(at + 1)) for at in range(len(params or ()))}
    for key, (name, mark) in marks.items():
        if key not in used:
            raise SqlRefused(f"nothing in the command takes {name}; it would be {mark}", at)


def quoted_name(value: Any, dialect: Dialect) -> str:
    """Return a quoted name. A text is one name, including dots; a list is a dotted name: [schema, table]."""
    parts = value if isinstance(value, list) else [value]
    if not parts:
        raise Failure("identifier: the list of names is empty")
    return ".".join(_one_name(part, dialect) for part in parts)


def _one_name(value: Any, dialect: Dialect) -> str:
    if not isinstance(value, str) or not value:
        raise Failure("identifier: a name is a non-empty text, or a list of them")
    if "\0" in value:
        raise Failure("identifier: a name cannot contain the character NUL")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Failure("identifier: the name contains a lone surrogate") from None
    if dialect.max_name_bytes and size > dialect.max_name_bytes:
        raise Failure(f"identifier: a name has at most {dialect.max_name_bytes} bytes, this one has {size}")
    return '"' + value.replace('"', '""') + '"'


def as_text(value: Any) -> str | None:
    """Return the text of a value in exact quotes."""
    if value is None or isinstance(value, str):
        return value
    return encode(value).decode()


def _pieces(statement: Statement, slot: Callable[[Hole | Mark], _Slot]) -> list[str | _Slot]:
    return [piece if isinstance(piece, str) else slot(piece) for piece in statement.pieces]


def place_of(source: str, at: Position, offset: int) -> Position:
    """Return the position in the file of an offset in the text.

    The text must be in the file unchanged (a block, one line).
    """
    if not at.line:
        return at
    before = source[:offset]
    return Position(at.line + before.count("\n"), at.column + offset - (before.rfind("\n") + 1))
