"""What an evaluation may cost. Work is counted, never timed, so a template fails or passes alike on every machine.

Law: whatever can grow asks the budget *before* it allocates or walks.
"""

from __future__ import annotations

from msgspec import Struct

from arclog.model.errors import NOWHERE, ExpressionError


class Limits(Struct, frozen=True):
    """The caps of one evaluation. The operator sets the first two; the others hold for everybody."""

    #: counted operations: loop rounds × their size, items walked, KiB copied
    max_work: int = 1_000_000
    #: bytes (an estimate) of any one string or list that a template builds
    max_bytes: int = 4 * 1024 * 1024
    #: levels of a value that a template builds, compares or prints
    max_depth: int = 100
    #: bytes (an estimate) of a whole result that a template composed; data passed through as it is has no cap
    max_output: int = 64 * 1024 * 1024


DEFAULT_LIMITS = Limits()


class Failure(ExpressionError):
    """An expression error that does not know its template yet; `line` counts inside the template, 0 is unknown."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message, NOWHERE, "")
        self.line = line


class Budget:
    """What is left of one evaluation's limits."""

    __slots__ = ("limits", "work")

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.work = limits.max_work

    def charge(self, operations: int) -> None:
        """Count work that is about to be done."""
        self.work -= operations
        if self.work < 0:
            raise Failure(f"the template does more than {self.limits.max_work} operations (setting expr.max_work)")

    def room(self, size: int) -> None:
        """Ask for a string or list of about `size` bytes; copying is work too."""
        if size > self.limits.max_bytes:
            raise Failure(f"the template builds a value over {self.limits.max_bytes} bytes (setting expr.max_bytes)")
        self.charge(1 + (size >> 10))
