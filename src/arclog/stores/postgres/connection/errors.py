"""The one place where PostgreSQL's errors become arclog's. Every message says what, where and what to do; none a password."""

from __future__ import annotations

import re
import struct

import psycopg

from arclog.model.errors import ArclogError, InvariantBroken, RequestRejected, StoreUnavailable

_PASSWORD = re.compile(r"(?i)(password=)\S+|(://[^:/@\s]*:)[^@\s]*(@)")

#: of a primary that became a standby
READ_ONLY = "25006"

#: by state: what is wrong, and what to do
_UNAVAILABLE = {
    "53100": ("its disk is full, nothing was written", "free space there; waiting requests continue automatically"),
    "53200": ("it is out of memory, nothing was written", "lower its work_mem or give it more"),
    "53300": (
        "it accepts no more connections",
        "raise max_connections there, put a pooler in front, or lower ARCLOG_STORE_CONNECTIONS on the servers",
    ),
    "57P01": ("it is shutting down", "start it again; waiting requests continue automatically"),
    "57P02": ("it crashed and is starting again", "waiting requests continue automatically"),
    "57P03": ("it is starting or stopping", "waiting requests continue automatically"),
    "57014": ("it cancelled a statement", "look at its statement_timeout, and at what keeps it busy"),
    "55P03": ("a lock could not be had", "check its lock_timeout, and pg_locks for the holder"),
    "40P01": ("two transactions waited for each other, nothing was written", "try again"),
    "40001": ("two transactions were in each other's way, nothing was written", "try again"),
    "25006": ("it takes no writes (a standby, or default_transaction_read_only)", "name the primary"),
    "28P01": ("the password is wrong", "correct it in ARCLOG_STORE_URL"),
    "28000": ("it does not let this user in", "look at its pg_hba.conf and at the user in ARCLOG_STORE_URL"),
    "3D000": ("there is no such database", "create it, or correct ARCLOG_STORE_URL"),
    "42501": ("the user lacks a right", "grant it, or name the user that owns the schema"),
    "42P01": ("a table is missing", "was the schema dropped? Restore it from a backup, or start arclog again"),
    "3F000": ("the schema is missing", "was it dropped? Restore it from a backup, or start arclog again"),
    "XX001": ("its data is damaged", "restore it from a backup"),
    "XX002": ("an index is damaged", "REINDEX it, or restore from a backup"),
}
#: libpq tells the state of a connection that was refused by its text alone
_REFUSALS = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("no pg_hba.conf entry", "28000"),
    ("too many clients", "53300"),
    ("too many connections", "53300"),
    ("remaining connection slots", "53300"),
    ("no more connections allowed", "53300"),  # pgbouncer's
    ("the database system is", "57P03"),
    ("role ", "28000"),
    ("does not exist", "3D000"),
)
#: values that can never be stored
_VALUES = frozenset({"22021", "22P05", "22003", "22023", "54000"})


def translated(error: BaseException, place: str) -> ArclogError:
    """What to raise instead of a driver's error."""
    if isinstance(error, ArclogError):
        return error
    if isinstance(error, UnicodeEncodeError | OverflowError | struct.error):
        return RequestRejected(f"{place} cannot take this value: {error}")
    if not isinstance(error, psycopg.Error):
        return InvariantBroken(f"{place}: unexpected {type(error).__name__}: {error}; nothing was written")
    state = state_of(error)
    said = told(error)
    if state in _UNAVAILABLE:
        what, remedy = _UNAVAILABLE[state]
        return StoreUnavailable(f"{place}: {what} ({said}); {remedy}")
    if state in _VALUES:
        return RequestRejected(f"{place} cannot take this value: {said}")
    if state.startswith("23"):
        return InvariantBroken(f"{place} refused a row that breaks one of its rules ({said}); nothing was written")
    if not state or state.startswith(("08", "53", "57", "58")):
        return StoreUnavailable(
            f"{place} cannot be reached ({said}); check that PostgreSQL runs there, and ARCLOG_STORE_URL"
        )
    return InvariantBroken(f"{place}: unexpected {state} {said}; nothing was written")


def told(error: BaseException) -> str:
    """What the driver says, in one line and without passwords."""
    line = " ".join(str(error).split())
    return _PASSWORD.sub(lambda found: f"{found[1] or found[2]}…{found[3] or ''}", line)


def state_of(error: psycopg.Error) -> str:
    """SQLSTATE; '' when there is none, as with a server that does not answer."""
    if error.sqlstate:
        return error.sqlstate
    if "FATAL" not in str(error):
        return ""
    return next((state for text, state in _REFUSALS if text in str(error)), "")


def is_away(error: BaseException) -> bool:
    """The server could not be spoken to, not for long, or is no longer the primary: the same may succeed soon."""
    if not isinstance(error, psycopg.Error):
        return False
    state = state_of(error)
    return not state or state in {"57P01", "57P02", "57P03", "53300", READ_ONLY} or state.startswith("08")


def is_tangled(error: BaseException) -> bool:
    """Rolled back because of others: the same will succeed at once."""
    known = isinstance(error, psycopg.Error) and error.sqlstate in {"40P01", "40001", "26000", "42P05"}
    return known or is_outdated(error)


def is_outdated(error: BaseException) -> bool:
    """A prepared statement from before a newer server changed a table: PostgreSQL refuses it until it is prepared again."""
    # The state alone says "not supported", and the text comes in the server's language; the function does not.
    return (
        isinstance(error, psycopg.Error)
        and error.sqlstate == "0A000"
        and error.diag.source_function == "RevalidateCachedQuery"
    )
