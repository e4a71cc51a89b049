"""The state of one evaluation: the names, the template's own variables, and what is left of the budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from arclog.expr.budget import Budget, Failure, Limits
from arclog.expr.values import MISSING


class Frame(Budget):
    """What every closure of a compiled template is called with."""

    __slots__ = ("get", "out", "scope", "size", "slots")

    def __init__(self, scope: Mapping[str, Any], limits: Limits, slots: int) -> None:
        self.limits = limits
        self.work = limits.max_work
        self.scope = scope
        self.get = scope.get
        if slots >= 0:
            self.slots: list[Any] = [MISSING] * slots
            self.out: list[str] = []
            self.size = 0

    def emit(self, text: str) -> None:
        """Write to the text that is being rendered."""
        self.size += len(text)
        if self.size > self.limits.max_bytes:
            raise Failure(f"the rendered text is over {self.limits.max_bytes} bytes (setting expr.max_bytes)")
        self.out.append(text)


#: a compiled expression, a compiled statement
Expression = Callable[[Frame], Any]
Statement = Callable[[Frame], None]
