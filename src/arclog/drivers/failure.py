"""A request that ends with an error: what the callers of the guarded client get instead of an answer."""

from __future__ import annotations

from arclog.model.outcome import TaskError, error

_SHOWN_CHARS = 200


class Failure(Exception):
    """Ends an attempt with this error."""

    def __init__(self, problem: TaskError) -> None:
        super().__init__(problem.message)
        self.problem = problem


def refused(message: str, code: str | None = None) -> Failure:
    """The caller asks for something that cannot or must not be done."""
    return Failure(error("config", message, code=code))


def shortened(text: str) -> str:
    """The beginning of a text, for messages."""
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
