"""The limits of evaluations. Work is counted, never timed, so a template fails or succeeds alike on every machine.

Invariant: every operation that can grow asks the budget *before* it allocates or iterates. A `Budget` belongs to one
evaluation; a `Meter` limits several evaluations together, those of one decision or of one task, and yields to others.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import NoReturn

from msgspec import Struct

from arclog.model.errors import NOWHERE, ExpressionError


class Limits(Struct, frozen=True):
    """The limits of one evaluation. The operator sets the first two; the last is fixed."""

    #: number of counted operations: loop rounds × their size, visited items, KiB copied
    max_work: int = 1_000_000
    #: maximum bytes (an upper estimate) of all values that an evaluation builds
    max_bytes: int = 16 * 1024 * 1024
    #: maximum depth of a value that a template builds, compares or prints
    max_depth: int = 100


DEFAULT_LIMITS = Limits()


class Failure(ExpressionError):
    """An expression error without its template yet; `line` counts inside the template, 0 if unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message, NOWHERE, "")
        self.line = line


class OutOfTurn(BaseException):
    """A turn is used up where an evaluation cannot wait for its next one.

    This is not an error of the template: it has to be evaluated again where it can wait.
    """


def _stop() -> None:
    raise OutOfTurn


class Meter:
    """The remaining limits of the evaluations of one decision, or of one task."""

    __slots__ = ("_max_bytes", "_max_work", "_setting", "_turn", "bytes", "pause", "turn", "work")

    def __init__(
        self, setting: str, max_work: int, max_bytes: int, turn: int, pause: Callable[[], None] = _stop
    ) -> None:
        """`setting` is the prefix of the names of the limits.

        After `turn` operations `pause` is called: it returns when the evaluation may continue, or raises.
        """
        self._setting = setting
        self._max_work = max_work
        self._max_bytes = max_bytes
        self._turn = turn
        self.work = max_work
        self.bytes = max_bytes
        #: remaining operations of this turn
        self.turn = turn
        self.pause = pause

    def spend(self, operations: int) -> None:
        """Count operations; may wait for the next turn."""
        self.work -= operations
        self.turn -= operations
        if self.work < 0:
            self.overworked()
        if self.turn < 0:
            self.pause()
            self.turn = self._turn

    @property
    def is_half_spent(self) -> bool:
        """Return whether work that another decision can do should be left to it."""
        return self.work < self._max_work // 2 or self.bytes < self._max_bytes // 2

    def overworked(self) -> NoReturn:
        raise Failure(f"the templates do more than {self._max_work} operations together (setting {self._setting}_work)")

    def too_large(self) -> NoReturn:
        raise Failure(f"the templates build more than {self._max_bytes} bytes together (setting {self._setting}_bytes)")


class Budget:
    """The remaining limits of one evaluation."""

    __slots__ = ("bytes", "granted", "had", "kept", "limits", "meter", "spent", "work")

    meter: Meter | None
    #: remaining operations and bytes
    work: int
    bytes: int
    # With a meter only:
    #: operations granted by the meter, and those already charged to it
    granted: int
    spent: int
    #: bytes at the beginning
    had: int
    #: bytes of the result
    kept: int

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.meter = None
        self.work = limits.max_work
        self.bytes = limits.max_bytes

    def charge(self, operations: int) -> None:
        """Count work before it is done."""
        self.work -= operations
        if self.work < 0:
            self.more_work()

    def room(self, size: int) -> None:
        """Reserve a value of at most `size` bytes; copying counts as work, too."""
        self.bytes -= size
        if self.bytes < 0:
            self.too_large()
        self.work -= 1 + (size >> 10)
        if self.work < 0:
            self.more_work()

    def metered(self, meter: Meter, nodes: int) -> None:
        """Start using the remaining limits of a meter. Visiting each node of a template also counts."""
        limits = self.limits
        granted = self.granted = min(limits.max_work, max(meter.turn, 0))
        self.work = granted - nodes
        self.spent = self.kept = 0
        self.bytes = self.had = min(limits.max_bytes, meter.bytes)

    def settle(self, meter: Meter) -> None:
        """End the evaluation: charge its work and the size of its result to the meter.

        Other values that it built are gone.
        """
        spent = self.granted - self.work
        meter.work -= spent
        meter.turn -= spent
        meter.bytes -= self.kept

    def more_work(self) -> None:
        """Continue with the meter's next turn, if there is one and the evaluation has work left."""
        meter, limits = self.meter, self.limits
        if meter is None:
            self._overworked()
        self.spent += self.granted - self.work
        if self.spent > limits.max_work:
            self.granted = self.work = 0
            self._overworked()
        spent, self.granted, self.work = self.granted - self.work, 0, 0
        meter.spend(spent)
        self.granted = self.work = min(limits.max_work - self.spent, meter.turn)

    def _overworked(self) -> NoReturn:
        raise Failure(f"the template does more than {self.limits.max_work} operations (setting expr.max_work)")

    def too_large(self) -> NoReturn:
        """Raise the error for a template that builds too much."""
        most, meter = self.limits.max_bytes, self.meter
        if meter is not None and self.had < most:
            meter.too_large()
        raise Failure(f"the template builds more than {most} bytes (setting expr.max_bytes)")


# Sizes of values in bytes: in memory, and written. Upper estimates, computed before anything is copied.
#
# Python stores a text with 1, 2 or 4 bytes for each character, as the widest of them requires.


#: bytes of a list, a map, a short text or a number, without its content
LIST, MAP, TEXT, NUMBER = 64, 240, 64, 32
#: bytes of a slot in a list; of a slot with a number; of an entry of a map with a number
SLOT, ITEM, ENTRY = 8, 40, 104
#: bytes of a missing value
UNDEFINED = 256

#: Maximum length of a text whose escapes are estimated instead of counted.
_SHORT = 64


def char_bytes(text: str) -> int:
    """Return the bytes of each character."""
    if text.isascii():
        return 1
    # Beyond a header of 72 bytes there are only characters, and sometimes the text in UTF-8 a second time.
    return min(4, (getsizeof(text) - 72) // (len(text) + 1)) or 1


def text_size(text: str) -> int:
    """Return the bytes of a text in memory."""
    return TEXT + len(text) * char_bytes(text)


def list_size(count: int) -> int:
    """Return the bytes of a new list whose items exist."""
    return LIST + SLOT * count


def utf8_size(text: str) -> int:
    """Return the bytes of a text in JSON as events are written: UTF-8, with escaped control characters."""
    size = len(text)
    if size <= _SHORT:
        return size + 2 if text.isascii() and text.isprintable() else 6 * size + 2
    if not text.isascii():
        size *= min(char_bytes(text) + 1, 4)
    return 2 + size + _escapes(text, 5)


def json_size(text: str) -> int:
    """Return the characters of a text in JSON as `tojson` writes it: everything except ASCII is escaped."""
    size = len(text)
    if size <= _SHORT:
        return 2 * size + 2 if text.isascii() and text.isprintable() else 12 * size + 2
    if not text.isascii():
        size += (5 if char_bytes(text) < 4 else 11) * (size - len(text.encode("ascii", "ignore")))
    return 2 + size + _escapes(text, 5)


def repr_size(text: str) -> int:
    """Return the characters of a text as Python prints it inside a list."""
    size = len(text)
    if size <= _SHORT:
        return 2 * size + 2 if text.isprintable() else 10 * size + 2
    if not text.isascii() and not text.isprintable():
        size *= 10
    return 2 + size + _escapes(text, 3)


def _escapes(text: str, width: int) -> int:
    """Return the characters that escapes add; `width` for a control character without a short form."""
    size = text.count("\\") + text.count('"') + text.count("'")
    if text.isascii() and not text.isprintable():
        short = text.count("\n") + text.count("\t") + text.count("\r")
        plain = text.replace("\n", "").replace("\t", "").replace("\r", "") if short else text
        size += short if plain.isprintable() else width * len(text)
    elif not text.isascii() and not text.isprintable():
        size += width * sum(map(text.count, _CONTROLS))
    return size


_CONTROLS = tuple(map(chr, (*range(32), 127)))
