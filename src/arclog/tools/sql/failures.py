"""The errors of SQL tasks. Each driver's errors are translated in one place."""

from __future__ import annotations

from arclog.model.outcome import TaskError, error
from arclog.sandbox.child.sql_errors import Refused


class SqlFailure(Exception):
    """A statement failed. It becomes the error outcome of the task."""

    def __init__(self, kind: str, message: str, code: str | None = None, *, retryable: bool | None = None) -> None:
        self.problem: TaskError = error(kind, message, code=code, retryable=retryable)
        super().__init__(message)


def refusal_of(refused: Refused) -> SqlFailure:
    return SqlFailure(refused.kind, str(refused), refused.code, retryable=refused.retryable)


def explained(message: str, *, syntax: bool, outside: bool, params: int) -> str:
    """Return a driver's message with a hint for the author."""
    text = message.strip()
    if outside:
        return f"{text}; give the task `transaction: false`"
    if syntax and params:
        return f"{text} (a {{{{ }}}} is a value; the name of a table or column is {{{{ … | identifier }}}})"
    return text
