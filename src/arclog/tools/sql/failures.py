"""What goes wrong in a database, in the words of outcomes. Each driver's errors are translated in one place."""

from __future__ import annotations

from arclog.model.outcome import TaskError, error


class SqlFailure(Exception):
    """A statement failed; becomes the task's error outcome."""

    def __init__(self, kind: str, message: str, code: str | None = None, *, retryable: bool | None = None) -> None:
        self.problem: TaskError = error(kind, message, code=code, retryable=retryable)
        super().__init__(message)


#: Error kinds by SQLSTATE, longest prefix first.
_BY_STATE = {
    "08": "connection",
    "57P01": "connection",
    "57P02": "connection",
    "57P03": "connection",
    "57P05": "connection",
    "53300": "connection",
    "40001": "serialization",
    "40P01": "serialization",
    "55P03": "serialization",
    "23": "constraint",
    "28": "auth",
    "42501": "auth",
    "57014": "timeout",
    "25P03": "timeout",
    "25P04": "timeout",
    "53": "limit",
    "54": "limit",
}


def kind_of_state(state: str) -> str:
    """The error kind of a SQLSTATE."""
    for length in (5, 2):
        kind = _BY_STATE.get(state[:length])
        if kind is not None:
            return kind
    return "sql"


def explained(message: str, *, syntax: bool, outside: bool, params: int) -> str:
    """A driver's message with what an author can do about it."""
    text = message.strip()
    if outside:
        return f"{text}; give the task `transaction: false`"
    if syntax and params:
        return f"{text} (a {{{{ }}}} is a value; the name of a table or column is {{{{ … | identifier }}}})"
    return text
