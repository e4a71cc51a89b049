"""Errors of SQL that the worker and its sandboxes share."""

from __future__ import annotations


class Refused(Exception):
    """A file or statement that a task may not use. The arguments are those of the task's error."""

    def __init__(self, kind: str, message: str, code: str | None = None, *, retryable: bool | None = None) -> None:
        self.kind = kind
        self.code = code
        self.retryable = retryable
        super().__init__(message)


class SqliteError(Exception):
    """An error of SQLite, with the names of its codes."""

    def __init__(self, text: str, primary: str, extended: str, row: int = 0) -> None:
        self.primary = primary
        self.extended = extended
        #: the number of the row that could not be inserted, from 1; 0 if there is none
        self.row = row
        super().__init__(text)
