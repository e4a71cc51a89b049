"""The values of templates besides JSON: missing values, stored data, and the values of loops.

Invariant: a template sees JSON values and these classes only, and accesses their parts by `lookup`, never by Python
attributes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Final, Protocol

from arclog.expr.budget import Failure


class Missing:
    """The type of `MISSING`: no value, which differs from null."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()
#: Maximum length of a missing name in messages, and of each key in it.
_LONGEST_NAME, _LONGEST_KEY = 300, 128
#: Maximum number of names that are compared for a suggestion.
_MOST_COMPARED = 300

NUMBERS = frozenset({int, float, bool})
SCALARS = NUMBERS | {str, NoneType}
JSON_TYPES = SCALARS | {list, dict}


class Lookup(Protocol):
    """The interface of values that are not plain data: outcomes, and stored results that are read on use."""

    def lookup(self, key: Any) -> Any:
        """Return the value under `key`, or MISSING."""

    def plain(self) -> Any:
        """Return the whole as JSON data, without any Lookup inside."""


class Undefined:
    """A missing name or key.

    It is chainable, falsy unless the name is unknown, and raises an error when anything else is done with it.
    """

    __slots__ = ("_key", "_owner", "_reason", "line", "name", "why")

    #: why it is missing: the name is unknown; the step or task has not run; its owner has no such key
    UNKNOWN, NOT_RUN, NO_KEY = range(3)

    def __init__(
        self, name: str, owner: Any = None, key: Any = None, reason: str = "", line: int = 0, why: int = NO_KEY
    ) -> None:
        self.name = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME]
        #: line inside the template; 0 if unknown
        self.line = line
        self.why = why
        self._owner = owner
        self._key = key
        self._reason = reason

    def under(self, key: Any) -> Undefined:
        """Return the missing value under `key` of this one, with the longer name."""
        return Undefined(self.name + step_text(key), self._owner, self._key, self._reason, 0, self.why)

    def at_line(self, line: int) -> Undefined:
        """Return the same with a line."""
        return Undefined(self.name, self._owner, self._key, self._reason, line, self.why)

    def failure(self) -> Failure:
        """Return the error that names the missing value and suggests a similar key."""
        if self._reason:
            return Failure(f"{self.name!r} is undefined: {self._reason}", self.line)
        return Failure(f"{self.name!r} is undefined{self._hint()}", self.line)

    def _hint(self) -> str:
        owner = self._owner
        if isinstance(owner, Mapping) and isinstance(self._key, str):
            names = (*owner, *getattr(owner, "absent", ()))
            return did_you_mean(self._key, [key for key in names if isinstance(key, str)])
        if owner is None or isinstance(owner, Mapping) or hasattr(owner, "lookup"):
            return ""
        return f" (a {kind_of(owner)} has no {self._key!r})"

    def __bool__(self) -> bool:
        if self.why == self.UNKNOWN:
            raise self.failure()
        return False

    def __repr__(self) -> str:
        return f"undefined({self.name!r})"

    def _refuse(self, *_: object) -> Any:
        raise self.failure()

    # Python's comparisons and containers call these, so the fast paths need no checks.
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __hash__ = __iter__ = __len__ = __contains__ = __str__ = _refuse


def undefined(name: str) -> Undefined:
    """Return the undefined value with this name."""
    return Undefined(name)


def unnamed(name: str, scope: Mapping[str, Any]) -> Undefined:
    """Return the undefined value for a name that the scope does not have."""
    reason = getattr(scope, "absent", {}).get(name)
    if reason is not None:
        return Undefined(name, reason=reason, why=Undefined.NOT_RUN)
    return Undefined(name, scope, name, why=Undefined.UNKNOWN)


class View:
    """An outcome as templates see it: its own fields and helpers first, then the fields of its data."""

    __slots__ = ("outcome",)

    FIELDS = frozenset({"status", "result", "data", "error", "meta"})

    def __init__(self, outcome: Mapping[str, Any]) -> None:
        self.outcome = outcome

    def lookup(self, key: Any) -> Any:
        """Return an outcome field, a helper, or a field of the data."""
        outcome = self.outcome
        if key in outcome:
            return outcome[key]
        if key in self.FIELDS:
            return None
        data: Any = outcome.get("data")
        if isinstance(data, Mapping):
            return data.get(key, MISSING)
        return data.lookup(key) if is_lookup(data) else MISSING

    def plain(self) -> dict[str, Any]:
        """Return the outcome as a dict."""
        return {key: value.plain() if is_lookup(value) else value for key, value in self.outcome.items()}

    def __eq__(self, other: object) -> bool:
        return self.plain() == (other.plain() if isinstance(other, View) else other)

    __hash__ = None  # type: ignore[assignment]  # equal by content, like the dict it stands for

    def __repr__(self) -> str:
        return f"View(status={self.outcome.get('status')!r})"


class Namespace:
    """The result of `namespace()`: cells that `set` inside a loop can change. It never leaves the template."""

    __slots__ = ("cells", "paid")

    def __init__(self, cells: dict[str, Any]) -> None:
        self.cells = cells
        #: bytes charged for the value of each cell
        self.paid = dict.fromkeys(cells, 0)

    def lookup(self, key: Any) -> Any:
        """Return a cell."""
        return self.cells.get(key, MISSING)

    def plain(self) -> Any:
        """Raise: a namespace may contain itself."""
        raise Failure("a namespace is not a value; name one of its fields")


class Loop:
    """The `loop` variable of a `for`."""

    __slots__ = ("_at", "_items")

    def __init__(self, items: Sequence[Any], at: int) -> None:
        self._items = items
        self._at = at

    def lookup(self, key: Any) -> Any:  # a table of names, read top to bottom
        """Return a property of the loop."""
        at, items = self._at, self._items
        match key:
            case "index":
                return at + 1
            case "index0":
                return at
            case "first":
                return at == 0
            case "last":
                return at == len(items) - 1
            case "length":
                return len(items)
            case "revindex":
                return len(items) - at
            case "revindex0":
                return len(items) - at - 1
            case "previtem" if at > 0:
                return items[at - 1]
            case "nextitem" if at + 1 < len(items):
                return items[at + 1]
        return MISSING

    def cycle(self, choices: Sequence[Any]) -> Any:
        """Return the choices in turn, one per round."""
        if not choices:
            raise Failure("loop.cycle() needs at least one value")
        return choices[self._at % len(choices)]

    def plain(self) -> Any:
        """Raise: only its fields are values."""
        raise Failure("loop is not a value; name one of its fields, such as loop.index")


class Group:
    """One group of `groupby`: a pair with the keys `grouper` and `list`."""

    __slots__ = ("_items", "_key")

    def __init__(self, key: Any, items: list[Any]) -> None:
        self._key = key
        self._items = items

    def lookup(self, key: Any) -> Any:
        """Return the group's key or its items."""
        if key in ("grouper", 0):
            return self._key
        return self._items if key in ("list", 1) else MISSING

    def plain(self) -> Any:
        """Return the pair."""
        return [self._key, self._items]

    def __iter__(self) -> Iterator[Any]:
        return iter((self._key, self._items))


def is_lookup(value: Any) -> bool:
    """Return whether a value is accessed through `lookup` and `plain`."""
    return type(value) not in JSON_TYPES and hasattr(value, "lookup") and hasattr(value, "plain")


def kind_of(value: Any) -> str:
    """Return the type of a value in the author's words."""
    match value:
        case Undefined():
            return "missing value"
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list() | tuple() | range():
            return "list"
        case Mapping():
            return "map"
    return type(value).__name__.lower()


def is_text(value: str) -> bool:
    """Return whether a string can be encoded: it has no half of a character (a lone surrogate)."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def step_text(key: Any) -> str:
    """Format one step of a path as the author would write it."""
    if isinstance(key, str):
        if len(key) > _LONGEST_KEY:
            return "[...]"
        return f".{key}" if key.isidentifier() else f"[{key!r}]"
    return f"[{key}]" if type(key) in (int, bool) and int(key).bit_length() <= 64 else "[...]"


def did_you_mean(word: str, words: list[str]) -> str:
    """Return a suggestion of the most similar known words, or ''."""
    from difflib import get_close_matches  # only an error message needs it

    near = get_close_matches(word[:100], words[:_MOST_COMPARED], n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(match) for match in near)}?" if near else ""
