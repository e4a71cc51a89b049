"""Classification of PostgreSQL's errors: one table of SQLSTATEs for the store, the bus, the result store and tasks.

Each of them raises its own errors. This module decides whether an error is temporary, a denial or an invalid value.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple

import psycopg

from arclog.drivers.addresses import without_logins

#: raised by a primary that became a standby
READ_ONLY = "25006"
DISK_FULL = "53100"


class Meaning(Enum):
    """The consequence of an error for the next attempt."""

    #: The server cannot be reached, or is no longer the primary. A retry on a new connection may succeed soon.
    AWAY = auto()
    #: Rolled back because of another transaction. A retry succeeds.
    CONFLICT = auto()
    #: The server is temporarily out of a resource.
    SHORT = auto()
    #: The server denies this user access. A setting or a permission has to be changed.
    DENIED = auto()
    #: A value that cannot be stored.
    VALUE = auto()
    #: A row that violates a constraint of its table.
    CONSTRAINT = auto()
    #: Another problem of the server.
    TROUBLE = auto()
    #: The statement is invalid.
    STATEMENT = auto()


class Refusal(NamedTuple):
    meaning: Meaning
    #: the error kind of a task (`model.outcome.ERROR_KINDS`)
    kind: str
    #: the problem; '' if the server's own text is better
    problem: str = ""
    #: the remedy; `{address}` is the setting that has the server's address
    remedy: str = ""


_AGAIN = "waiting requests continue automatically"
#: By SQLSTATE, or its first two characters.
REFUSALS = {
    "08": Refusal(Meaning.AWAY, "connection"),
    "22003": Refusal(Meaning.VALUE, "sql"),
    "22021": Refusal(Meaning.VALUE, "sql"),
    "22023": Refusal(Meaning.VALUE, "sql"),
    "22P05": Refusal(Meaning.VALUE, "sql"),
    "23": Refusal(Meaning.CONSTRAINT, "constraint"),
    "25006": Refusal(Meaning.AWAY, "sql", "it does not accept writes (a standby, or default_transaction_read_only)", "name the primary"),
    "25P03": Refusal(Meaning.STATEMENT, "timeout"),
    "25P04": Refusal(Meaning.STATEMENT, "timeout"),
    "26000": Refusal(Meaning.CONFLICT, "sql"),  # a pooler mixed up prepared statements
    "28": Refusal(Meaning.DENIED, "auth", "it rejects this user", "check its pg_hba.conf and the user in {address}"),
    "28P01": Refusal(Meaning.DENIED, "auth", "the password is wrong", "correct it in {address}"),
    "3D000": Refusal(Meaning.DENIED, "sql", "there is no such database", "create it, or correct {address}"),
    "3F000": Refusal(Meaning.TROUBLE, "sql", "the schema is missing", "was it dropped? Restore it from a backup, or start arclog again"),
    "40001": Refusal(Meaning.CONFLICT, "serialization", "two transactions conflicted, nothing was written", "try again"),
    "40P01": Refusal(Meaning.CONFLICT, "serialization", "two transactions waited for each other, nothing was written", "try again"),
    "42501": Refusal(Meaning.DENIED, "auth", "the user lacks a permission", "grant it, or name the user that owns the schema"),
    "42P01": Refusal(Meaning.TROUBLE, "sql", "a table is missing", "was the schema dropped? Restore it from a backup, or start arclog again"),
    "42P05": Refusal(Meaning.CONFLICT, "sql"),  # a pooler mixed up prepared statements
    "53": Refusal(Meaning.TROUBLE, "limit"),
    "53100": Refusal(Meaning.TROUBLE, "limit", "its disk is full, nothing was written", f"free space there; {_AGAIN}"),
    "53200": Refusal(Meaning.SHORT, "limit", "it is out of memory, nothing was written", "lower its work_mem or give it more"),
    "53300": Refusal(
        Meaning.AWAY, "connection", "it accepts no more connections",
        "raise max_connections there, put a pooler in front, or lower ARCLOG_STORE_CONNECTIONS on the servers",
    ),
    "54": Refusal(Meaning.STATEMENT, "limit"),
    "54000": Refusal(Meaning.VALUE, "limit"),
    "55P03": Refusal(Meaning.TROUBLE, "serialization", "a lock was not available", "check its lock_timeout, and pg_locks for the process that holds the lock"),
    "57": Refusal(Meaning.TROUBLE, "sql"),
    "57014": Refusal(Meaning.TROUBLE, "timeout", "it cancelled a statement", "check its statement_timeout and its load"),
    "57P01": Refusal(Meaning.AWAY, "connection", "it is shutting down", f"start it again; {_AGAIN}"),
    "57P02": Refusal(Meaning.AWAY, "connection", "it crashed and is starting again", _AGAIN),
    "57P03": Refusal(Meaning.AWAY, "connection", "it is starting or stopping", _AGAIN),
    "57P05": Refusal(Meaning.AWAY, "connection", "it closed an idle connection", "check its idle_session_timeout"),
    "58": Refusal(Meaning.TROUBLE, "sql"),
    "XX001": Refusal(Meaning.TROUBLE, "sql", "its data is damaged", "restore it from a backup"),
    "XX002": Refusal(Meaning.TROUBLE, "sql", "an index is damaged", "REINDEX it, or restore from a backup"),
}  # fmt: skip
_UNREACHABLE = Refusal(Meaning.AWAY, "connection")
_STATEMENT = Refusal(Meaning.STATEMENT, "sql")

#: libpq gives no SQLSTATE for a refused connection, only a text in the server's language. If that is not English, the
#: server counts as unreachable.
_TEXTS = (
    (re.compile(r"password authentication failed|no password supplied"), "28P01"),
    (re.compile(r"authentication failed|no pg_hba\.conf entry|role .* does not exist|not permitted to log in"), "28000"),
    (re.compile(r"no such user"), "28000"),  # pgbouncer
    (re.compile(r"permission denied for database"), "42501"),
    (re.compile(r"database .* does not exist|no such database"), "3D000"),  # the second is pgbouncer's
    (re.compile(r"too many (clients|connections)|remaining connection slots|no more connections allowed"), "53300"),
    (re.compile(r"the database system is|starting up|shutting down|in recovery mode"), "57P03"),
)  # fmt: skip
_PASSWORD = re.compile(r"(?i)(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|[^\s&]+)")


def state_of(error: BaseException) -> str:
    """Return the SQLSTATE of an error, or '' if there is none, as for a server that does not respond."""
    state = getattr(error, "sqlstate", None)
    if state or not isinstance(error, psycopg.OperationalError):
        return state or ""
    text = str(error)
    return next((state for pattern, state in _TEXTS if pattern.search(text)), "")


def refusal_of(error: BaseException) -> Refusal:
    """Classify an error of the driver."""
    state = state_of(error)
    if not state:
        return _UNREACHABLE
    if is_outdated(error):
        return REFUSALS["26000"]
    return REFUSALS.get(state) or REFUSALS.get(state[:2]) or _STATEMENT


def is_away(error: BaseException) -> bool:
    """Return whether the server cannot be reached or is no longer the primary. A retry may succeed soon."""
    return isinstance(error, psycopg.Error) and refusal_of(error).meaning is Meaning.AWAY


def is_conflict(error: BaseException) -> bool:
    """Return whether the transaction was rolled back because of another one. A retry succeeds."""
    return isinstance(error, psycopg.Error) and refusal_of(error).meaning is Meaning.CONFLICT


def is_outdated(error: BaseException) -> bool:
    """Return whether a prepared statement is outdated because a newer arclog changed a table. It has to be prepared
    again.
    """
    # The state alone means "not supported", and the text is in the server's language; the function's name is not.
    return (
        isinstance(error, psycopg.Error)
        and error.sqlstate == "0A000"
        and error.diag.source_function == "RevalidateCachedQuery"
    )


def text_of(error: BaseException) -> str:
    """Return the driver's text in one line, without passwords."""
    line = " ".join(str(error).split()) or type(error).__name__
    return _PASSWORD.sub(r"\1…", without_logins(line))
