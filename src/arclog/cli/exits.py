"""Exit codes, and the error of an invalid command line. It imports nothing, since every start loads it."""

from __future__ import annotations

OK = 0
FAILED = 1
INVALID = 2
CANCELLED = 3

#: exit code of a run that ended, by its state
BY_STATE = {"COMPLETED": OK, "FAILED": FAILED, "CANCELLED": CANCELLED}


class Usage(Exception):
    """The command line is invalid."""

    def __init__(self, message: str, hint: str = "", code: int = INVALID) -> None:
        self.hint = hint
        #: exit code
        self.code = code
        super().__init__(message)
