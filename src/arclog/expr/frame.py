"""The state of one evaluation: the names, the template's own variables, and the remaining budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from arclog.expr.budget import SLOT, TEXT, Budget, Failure, Limits, Meter, char_bytes, text_size
from arclog.expr.values import MISSING, SCALARS, Undefined

# The names that a template sees: layers of mappings; the first layer that has a name wins.


_NONE: Mapping[str, str] = {}


class Scope(Mapping[str, Any]):
    """A read-only stack of mappings from name to JSON value or `Lookup`."""

    __slots__ = ("absent", "layers", "meter")

    def __init__(
        self, *layers: Mapping[str, Any], absent: Mapping[str, str] = _NONE, meter: Meter | None = None
    ) -> None:
        self.layers = layers
        #: messages about steps and tasks that have not run, by name
        self.absent = absent
        #: counts the total cost of the evaluations in this scope
        self.meter = meter

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a name from the first layer that has it."""
        for layer in self.layers:
            value = layer.get(key, MISSING)
            if value is not MISSING:
                return value
        return default

    def __getitem__(self, key: str) -> Any:
        value = self.get(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return any(key in layer for layer in self.layers)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key for layer in self.layers for key in layer))

    def __len__(self) -> int:
        return len(set().union(*self.layers))

    def __repr__(self) -> str:
        return f"Scope({', '.join(map(repr, self))})"


class Frame(Budget):
    """The argument of every closure of a compiled template."""

    __slots__ = ("get", "out", "paid", "scope", "size", "slots", "wide")

    def __init__(self, scope: Mapping[str, Any], limits: Limits, slots: int, nodes: int) -> None:
        self.limits = limits
        self.scope = scope
        self.get = scope.get
        meter = self.meter = getattr(scope, "meter", None)
        if meter is None:
            self.work = limits.max_work
            self.bytes = limits.max_bytes
        else:
            self.metered(meter, nodes)
        if slots >= 0:
            self.slots: list[Any] = [MISSING] * slots
            #: bytes charged for the value of each variable
            self.paid = [0] * slots
            self.out: list[str] = []
            #: characters of the text so far, and bytes of the widest character
            self.size = 0
            self.wide = 1

    def emit(self, text: str) -> None:
        """Append to the rendered text."""
        self.size += len(text)
        if not text.isascii():
            self.wide = max(self.wide, char_bytes(text))
        # The part already exists; the whole is built at the end.
        self.bytes -= SLOT
        if self.size * self.wide > self.bytes:
            self.too_large()
        self.out.append(text)

    def end_expression(self, before: int, value: Any) -> int:
        """End an expression of a statement: of everything built since `before` bytes were left, only its value stays.

        Returns the bytes that stay charged.
        """
        used = before - self.bytes
        if type(value) in SCALARS:
            used = min(used, text_size(value)) if type(value) is str else 0
            self.bytes = before - used
        return used

    def rendered(self) -> str:
        """Return the rendered text."""
        self.room(TEXT + self.size * self.wide)
        return "".join(self.out)


#: A compiled expression, and a compiled statement.
Expression = Callable[[Frame], Any]
Statement = Callable[[Frame], None]


# The wording and location of errors.


def located(made: Expression, line: int) -> Expression:
    """Add the line of the template to a failure."""

    def at_line(frame: Frame) -> Any:
        try:
            value = made(frame)
        except Failure as failure:
            failure.line = failure.line or line
            raise
        except Exception as error:  # noqa: BLE001  # whatever Python refuses is the author's error
            raised = translated(error, line)
            raise raised from raised.__cause__
        return value.at_line(line) if type(value) is Undefined and not value.line else value

    return at_line


def translated(error: Exception, line: int = 0) -> Failure:
    """Return Python's error in the author's words, without values, which may be secrets."""
    match error:
        case Failure():
            error.line = error.line or line
            return error
        case ZeroDivisionError():
            message = "division by zero"
        case OverflowError():
            message = "the number is too large"
        case RecursionError():
            message = "the value or expression is nested too deeply"
        case MemoryError():
            message = "the value is too large for the memory"
        case TypeError():
            message = f"the values do not fit: {error}"
        case _:
            message = f"the expression cannot be evaluated ({type(error).__name__})"
    failure = Failure(message, line)
    if type(error).__module__ != "builtins":
        failure.__cause__ = error  # the cause of a Lookup's error, for example an unavailable store
    return failure
