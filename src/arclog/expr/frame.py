"""The state of one evaluation: the names, the template's own variables, and what is left of the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arclog.expr.budget import Budget, Limits
from arclog.expr.sizes import SLOT, TEXT, text_size, width
from arclog.expr.values import MISSING, SCALARS


class Frame(Budget):
    """What every closure of a compiled template is called with."""

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
            #: bytes that were counted for what stands in each
            self.paid = [0] * slots
            self.out: list[str] = []
            #: characters of the text so far, and bytes that the widest takes
            self.size = 0
            self.wide = 1

    def emit(self, text: str) -> None:
        """Write to the text that is being rendered."""
        self.size += len(text)
        if not text.isascii():
            self.wide = max(self.wide, width(text))
        # The part already exists; the whole will be, once it is put together.
        self.bytes -= SLOT
        if self.size * self.wide > self.bytes:
            self.too_large()
        self.out.append(text)

    def over(self, before: int, value: Any) -> int:
        """An expression of a statement is over: of what was built since `before` bytes were left, only its value stays.
        Gives the bytes that stay counted.
        """
        used = before - self.bytes
        if type(value) in SCALARS:
            used = min(used, text_size(value)) if type(value) is str else 0
            self.bytes = before - used
        return used

    def rendered(self) -> str:
        """The text that was written."""
        self.room(TEXT + self.size * self.wide)
        return "".join(self.out)


#: a compiled expression, a compiled statement
Expression = Callable[[Frame], Any]
Statement = Callable[[Frame], None]
