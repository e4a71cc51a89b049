"""The one place where SQLite's errors become arclog's. Every message says what, where and what to do."""

from __future__ import annotations

import apsw

from arclog.model.errors import ArclogError, InvariantBroken, RequestRejected, StoreUnavailable

#: the shared-memory file could not grow: the disk is full, the data is untouched
_SHM_SIZE = apsw.SQLITE_IOERR_SHMSIZE


class Damaged(StoreUnavailable):
    """The disk or the file failed under us: this handle writes nothing more."""


def translated(error: BaseException, path: str, waited: float = 0.0) -> ArclogError:
    """What to raise instead of a driver's error."""
    if isinstance(error, ArclogError):
        return error
    if isinstance(error, apsw.FullError) or (isinstance(error, apsw.IOError) and _extended(error) == _SHM_SIZE):
        return StoreUnavailable(
            f"disk full: {path} could not grow, nothing was written; free space and continue with `arclog resume`"
        )
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnavailable(
            f"another process is writing {path} and did not finish within {waited:g} s, nothing was written; "
            f"`fuser {path}` names it; raise ARCLOG_STORE_BUSY_TIMEOUT_S if it needs longer"
        )
    if isinstance(error, apsw.NotADBError):
        return Damaged(
            f"{path} is not an arclog store (not a SQLite database); choose another ARCLOG_HOME or move the file"
        )
    if isinstance(error, apsw.CorruptError):
        return Damaged(
            f"{path} is damaged ({error}); nothing more is written to it. Restore it from a backup, "
            "or save what can be read with `sqlite3 … .recover`"
        )
    if isinstance(error, apsw.IOError):
        return Damaged(
            f"the disk failed under {path} ({error}); the last transaction may or may not be on it, and nothing more is "
            "written. Check the disk, then start again: what was committed is read back"
        )
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError):
        return StoreUnavailable(
            f"{path} or its folder cannot be written (read-only file, folder or file system); make it writable "
            "or choose another ARCLOG_HOME"
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreUnavailable(
            f"{path} cannot be opened ({error}); check that its folder exists and can be written, "
            "or choose another ARCLOG_HOME"
        )
    if isinstance(error, apsw.TooBigError):
        return RequestRejected("the store cannot take a single value this large; keep large results outside of the log")
    if isinstance(error, UnicodeEncodeError | OverflowError):
        return RequestRejected(f"the store cannot take this value: {error}")
    if isinstance(error, apsw.ConstraintError):
        return InvariantBroken(f"{path} refused a row that breaks one of its rules ({error}); nothing was written")
    return InvariantBroken(f"{path}: unexpected {type(error).__name__}: {error}; nothing was written")


def _extended(error: apsw.Error) -> int:
    """SQLite's extended result code."""
    return int(getattr(error, "extendedresult", 0))
