"""The exception with which requests of the guarded client fail."""

from __future__ import annotations

from arclog.model import errors
from arclog.model.outcome import TaskError, error

_SHOWN_CHARS = 200


class Failure(Exception):
    """Ends an attempt with this error."""

    def __init__(self, problem: TaskError) -> None:
        super().__init__(problem.message)
        self.problem = problem


def refused(message: str, code: str | None = None) -> Failure:
    """Return the failure of a request that is invalid or not permitted."""
    return Failure(error("config", message, code=code))


def shortened(text: str) -> str:
    """Return the beginning of a text, for messages."""
    return errors.shortened(text, _SHOWN_CHARS)
