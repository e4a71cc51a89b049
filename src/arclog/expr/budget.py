"""What evaluations may cost. Work is counted, never timed, so a template fails or passes alike on every machine.

Law: whatever can grow asks the budget *before* it allocates or walks. A `Budget` is that of one evaluation; a `Meter` is
what several evaluations may cost together, those of one decision or of one task, and says when others shall go first.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import NoReturn

from msgspec import Struct

from arclog.model.errors import NOWHERE, ExpressionError


class Limits(Struct, frozen=True):
    """The caps of one evaluation. The operator sets the first two; the last holds for everybody."""

    #: counted operations: loop rounds × their size, items walked, KiB copied
    max_work: int = 1_000_000
    #: bytes (an estimate from above) of all values together that an evaluation builds and may hold
    max_bytes: int = 16 * 1024 * 1024
    #: levels of a value that a template builds, compares or prints
    max_depth: int = 100


DEFAULT_LIMITS = Limits()


class Failure(ExpressionError):
    """An expression error that does not know its template yet; `line` counts inside the template, 0 is unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message, NOWHERE, "")
        self.line = line


class OutOfTurn(BaseException):
    """A turn is used up where an evaluation cannot wait for its next one. No error of the template: it has to be
    evaluated again where it can wait.
    """


def _stop() -> None:
    raise OutOfTurn


class Meter:
    """What is left to the evaluations of one decision, or of one task."""

    __slots__ = ("_max_bytes", "_max_work", "_setting", "_turn", "bytes", "pause", "turn", "work")

    def __init__(
        self, setting: str, max_work: int, max_bytes: int, turn: int, pause: Callable[[], None] = _stop
    ) -> None:
        """`setting` begins the names of the limits. After `turn` operations `pause` is called: it returns when the
        evaluation may continue, or raises.
        """
        self._setting = setting
        self._max_work = max_work
        self._max_bytes = max_bytes
        self._turn = turn
        self.work = max_work
        self.bytes = max_bytes
        #: operations that are left of this turn
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
        """Whether what can be left for another decision should be."""
        return self.work < self._max_work // 2 or self.bytes < self._max_bytes // 2

    def overworked(self) -> NoReturn:
        raise Failure(f"the templates do more than {self._max_work} operations together (setting {self._setting}_work)")

    def too_large(self) -> NoReturn:
        raise Failure(f"the templates build more than {self._max_bytes} bytes together (setting {self._setting}_bytes)")


class Budget:
    """What is left of one evaluation's limits."""

    __slots__ = ("bytes", "granted", "had", "kept", "limits", "meter", "spent", "work")

    meter: Meter | None
    #: operations, and bytes, that are left
    work: int
    bytes: int
    # With a meter only:
    #: operations that were left when the meter was asked last, and those that it was told of
    granted: int
    spent: int
    #: bytes that were left in the beginning
    had: int
    #: bytes of the result
    kept: int

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.meter = None
        self.work = limits.max_work
        self.bytes = limits.max_bytes

    def charge(self, operations: int) -> None:
        """Count work that is about to be done."""
        self.work -= operations
        if self.work < 0:
            self.more_work()

    def room(self, size: int) -> None:
        """Ask for a value of at most `size` bytes; copying is work too."""
        self.bytes -= size
        if self.bytes < 0:
            self.too_large()
        self.work -= 1 + (size >> 10)
        if self.work < 0:
            self.more_work()

    def metered(self, meter: Meter, nodes: int) -> None:
        """Begin to use what a meter has left; to look at each node of a template costs something, too."""
        limits = self.limits
        granted = self.granted = min(limits.max_work, max(meter.turn, 0))
        self.work = granted - nodes
        self.spent = self.kept = 0
        self.bytes = self.had = min(limits.max_bytes, meter.bytes)

    def settle(self, meter: Meter) -> None:
        """The evaluation is over: what it did counts, and what it gave; all else that it built is gone."""
        spent = self.granted - self.work
        meter.work -= spent
        meter.turn -= spent
        meter.bytes -= self.kept

    def more_work(self) -> None:
        """Go on with the meter's next turn, if there is one and the evaluation may."""
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
        """Refuse: more is built than may be."""
        most, meter = self.limits.max_bytes, self.meter
        if meter is not None and self.had < most:
            meter.too_large()
        raise Failure(f"the template builds more than {most} bytes (setting expr.max_bytes)")


# How many bytes values take: in memory, and written out. Estimates from above, made before anything is copied.
#
# Python keeps a text with 1, 2 or 4 bytes for each character, whichever the widest of them needs.


#: a list, a map, a short text or a number, beside what stands in them
LIST, MAP, TEXT, NUMBER = 64, 240, 64, 32
#: a place in a list; a place and a number; an entry of a map with a number
SLOT, ITEM, ENTRY = 8, 40, 104
#: a missing value
UNDEFINED = 256

#: Shorter texts are not looked through for what their spelling adds.
_SHORT = 64


def char_bytes(text: str) -> int:
    """Bytes that each character takes."""
    if text.isascii():
        return 1
    # Beyond a header of 72 bytes only characters, and at times the text in UTF-8 a second time.
    return min(4, (getsizeof(text) - 72) // (len(text) + 1)) or 1


def text_size(text: str) -> int:
    """Bytes of a text in memory."""
    return TEXT + len(text) * char_bytes(text)


def list_size(count: int) -> int:
    """Bytes of a new list whose items exist."""
    return LIST + SLOT * count


def utf8_size(text: str) -> int:
    """Bytes in JSON as events are written: UTF-8, and controls escaped."""
    size = len(text)
    if size <= _SHORT:
        return size + 2 if text.isascii() and text.isprintable() else 6 * size + 2
    if not text.isascii():
        size *= min(char_bytes(text) + 1, 4)
    return 2 + size + _escapes(text, 5)


def json_size(text: str) -> int:
    """Characters in JSON as `tojson` writes it: whatever is not ASCII is escaped."""
    size = len(text)
    if size <= _SHORT:
        return 2 * size + 2 if text.isascii() and text.isprintable() else 12 * size + 2
    if not text.isascii():
        size += (5 if char_bytes(text) < 4 else 11) * (size - len(text.encode("ascii", "ignore")))
    return 2 + size + _escapes(text, 5)


def repr_size(text: str) -> int:
    """Characters as Python prints it inside a list."""
    size = len(text)
    if size <= _SHORT:
        return 2 * size + 2 if text.isprintable() else 10 * size + 2
    if not text.isascii() and not text.isprintable():
        size *= 10
    return 2 + size + _escapes(text, 3)


def _escapes(text: str, width: int) -> int:
    """Characters that backslashes, quotes and controls add; `each` for a control without a short form."""
    size = text.count("\\") + text.count('"') + text.count("'")
    if text.isascii() and not text.isprintable():
        short = text.count("\n") + text.count("\t") + text.count("\r")
        plain = text.replace("\n", "").replace("\t", "").replace("\r", "") if short else text
        size += short if plain.isprintable() else width * len(text)
    elif not text.isascii() and not text.isprintable():
        size += width * sum(map(text.count, _CONTROLS))
    return size


_CONTROLS = tuple(map(chr, (*range(32), 127)))
