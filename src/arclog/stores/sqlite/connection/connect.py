"""Opens the file, refuses one that cannot ensure durability, and creates or migrates the schema."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from time import monotonic, sleep

import apsw

from arclog.model.errors import ArclogError, InvariantBroken, RequestRejected, StoreUnavailable
from arclog.stores.sql.files import oldest_for
from arclog.stores.sqlite.connection import generation
from arclog.stores.sqlite.queries import load_migrations, load_schema

# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Translates SQLite's errors, in this place only. Every message names the problem, the place and the remedy.

#: the shared-memory file could not grow because the disk is full; the data is unaffected
_SHM_SIZE = apsw.SQLITE_IOERR_SHMSIZE


class Damaged(StoreUnavailable):
    """The disk or the file failed. The store writes nothing more."""


def translated(error: BaseException, path: str, waited: float = 0.0) -> ArclogError:
    """Return the error to raise instead of a driver's error."""
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
            "or recover the readable data with `sqlite3 … .recover`"
        )
    if isinstance(error, apsw.IOError):
        return Damaged(
            f"the disk failed under {path} ({error}); the last transaction may or may not be on it, and nothing more is "
            "written. Check the disk, then start again; committed data is read back"
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
    """Return SQLite's extended result code."""
    return int(getattr(error, "extendedresult", 0))


# ── connect ───────────────────────────────────────────────────────────────────────────────────────────────────────────

log = logging.getLogger("arclog.store")

#: number of the newest migration
SCHEMA = 18
#: "arcl": marks the file as ours
APPLICATION = 0x6172636C
_FULL = 2
#: the value of PRAGMA auto_vacuum for a file that can be shortened incrementally
INCREMENTAL = 2
#: a file of an older release up to this size is rewritten when it is opened; it passes through the write-ahead log
_REWRITTEN_BYTES = 32 * 1024 * 1024
#: the size that a write-ahead log keeps when it is restarted
_WAL_BYTES = 32 * 1024 * 1024
#: cache of each reader
_READER_CACHE_KIB = 8000
#: the first migration that records the schema that code needs
_COMPATIBILITY = 11


def open_writer(path: str, busy_timeout_s: float) -> apsw.Connection:
    """Return a connection that may write. The schema is migrated if necessary."""
    _check_place(path)
    _make_private(path)
    connection = _open(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, busy_timeout_s)
    try:
        if connection.readonly("main"):
            raise apsw.ReadOnlyError(path)
        version = _version(connection, path)
        if lack := generation.loss(connection.execute, path):
            raise StoreUnavailable(f"{lack}; {generation.remedy(path)}")
        if not version:
            connection.pragma("auto_vacuum", INCREMENTAL)  # this applies to a file that is created now
        _use_wal(connection, path, busy_timeout_s)
        if version < SCHEMA:
            _migrate(connection, path)
        _make_shrinkable(connection)
    except BaseException as error:
        connection.close(True)
        if isinstance(error, Exception):
            raise translated(error, path, busy_timeout_s) from error
        raise
    return connection


def open_reader(path: str, busy_timeout_s: float) -> apsw.Connection:
    """Return a connection that reads committed data."""
    connection = _open(path, apsw.SQLITE_OPEN_READWRITE, busy_timeout_s)
    try:
        connection.execute(f"PRAGMA query_only = 1; PRAGMA cache_size = -{_READER_CACHE_KIB}").fetchall()
    except apsw.Error as error:  # the first access to the file
        connection.close(True)
        raise translated(error, path, busy_timeout_s) from error
    return connection


def _open(path: str, flags: int, busy_timeout_s: float) -> apsw.Connection:
    try:
        connection = apsw.Connection(path, flags=flags)
    except apsw.Error as error:
        raise translated(error, path) from error
    # Otherwise SQLite plans a statement again at every execution if a parameter is compared with an indexed column: its value
    # might make another index better. Ours have one plan (a test looks at it), and planning takes longer than most of them.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.set_busy_timeout(int(busy_timeout_s * 1000))
    return connection


def _check_place(path: str) -> None:
    """Report mistakes that SQLite would report only as `unable to open database file`."""
    file = Path(path)
    try:
        is_folder, has_folder = file.is_dir(), file.parent.is_dir()
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be reached ({error.strerror}); choose another ARCLOG_HOME") from error
    if is_folder:
        raise StoreUnavailable(f"{path} is a folder, not a store; choose another ARCLOG_HOME or move the folder")
    if not has_folder:
        raise StoreUnavailable(
            f"the folder of {path} does not exist; create {file.parent} or choose another ARCLOG_HOME"
        )


def _make_private(path: str) -> None:
    """Create a file that only its owner can read, if there is none; SQLite's other files get the same permissions. An
    existing file is not opened, since closing it would release this process's locks on it.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError:
        return  # it exists, or SQLite gives a better reason why it cannot be created
    Path(generation.mark_of(path)).unlink(missing_ok=True)


def _version(connection: apsw.Connection, path: str) -> int:
    # One read transaction: another process may be creating the store.
    with connection:
        application: int = connection.pragma("application_id")
        version: int = connection.pragma("user_version")
        has_tables = bool(connection.execute("SELECT 1 FROM sqlite_schema").get)
    if application == APPLICATION:
        if version > SCHEMA and (oldest := _oldest(connection)) > SCHEMA:
            raise StoreUnavailable(
                f"{path} was written by a newer arclog (schema {version}, which needs one that knows {oldest}; this one "
                f"knows {SCHEMA}); update arclog"
            )
        return version
    if application or version or has_tables:
        raise StoreUnavailable(
            f"{path} is another program's SQLite database, not an arclog store; choose another ARCLOG_HOME or move the file"
        )
    return 0


def _oldest(connection: apsw.Connection) -> int:
    """Return the oldest schema that code must know for this store."""
    oldest: int = connection.execute("SELECT oldest FROM compatibility").get
    return oldest


def _use_wal(connection: apsw.Connection, path: str, busy_timeout_s: float) -> None:
    """Enable the write-ahead log and a full sync of every commit, and verify both."""
    deadline = monotonic() + busy_timeout_s
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
            break
        except apsw.BusyError:  # SQLite does not call the busy handler if another process switches the same new file
            if monotonic() > deadline:
                raise
            sleep(0.005)
    if mode != "wal":
        raise StoreUnavailable(
            f"{path} cannot be used with a write-ahead log (journal mode {mode!r}); network file systems do not "
            "support it: choose an ARCLOG_HOME on a local disk"
        )
    connection.execute(
        f"PRAGMA synchronous = FULL; PRAGMA cache_size = -16000; PRAGMA journal_size_limit = {_WAL_BYTES}"
    ).fetchall()
    if connection.pragma("synchronous") != _FULL:
        raise StoreUnavailable(f"{path}: SQLite does not take synchronous = FULL; commits would not be durable")


def _make_shrinkable(connection: apsw.Connection) -> None:
    """Make a file of an older release shrinkable, which requires rewriting it. Only small files are rewritten here;
    `arclog gc --compact` rewrites the others.
    """
    if connection.pragma("auto_vacuum") == INCREMENTAL:
        return
    if connection.pragma("page_count") * connection.pragma("page_size") > _REWRITTEN_BYTES:
        return
    connection.set_busy_timeout(0)
    try:
        connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}; VACUUM").fetchall()
    except (apsw.BusyError, apsw.FullError) as problem:
        log.debug("the file could not be rewritten this time: %s", problem)


def rewrite(path: str, busy_timeout_s: float) -> None:
    """Rewrite the file at its minimum size, and make it shrinkable. No other process may have it open. It temporarily
    needs about the same space again. If it is killed, the file stays as it was.
    """
    connection = open_writer(path, busy_timeout_s)
    connection.set_busy_timeout(0)
    try:
        try:
            connection.pragma("journal_mode", "delete")  # a write-ahead log would contain the whole file
        except apsw.BusyError:
            raise StoreUnavailable(f"{path} is in use; stop servers and runs on it, then try again") from None
        connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}; VACUUM").fetchall()
        _use_wal(connection, path, busy_timeout_s)
    except Exception as error:
        raise translated(error, path, busy_timeout_s) from error
    finally:
        connection.close()


def _migrate(connection: apsw.Connection, path: str) -> None:
    """Create or migrate the schema in one transaction, unless another process has done so."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        present = _version(connection, path)
        if not present:
            present, script = load_schema()
            connection.execute(script).fetchall()
            _mark(connection, present)
        for version, script in load_migrations(present) if present < SCHEMA else ():
            connection.execute(script).fetchall()
            if version >= _COMPATIBILITY:
                connection.execute("UPDATE compatibility SET oldest = max(oldest, ?)", (oldest_for(script),))
            _mark(connection, version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _mark(connection: apsw.Connection, version: int) -> None:
    connection.execute(f"PRAGMA user_version = {version}; PRAGMA application_id = {APPLICATION}")


# ── copying ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Makes a consistent copy of a SQLite store while others write to it. The copy is a snapshot: it contains each append
# completely or not at all.


def copy(path: str, target: str, busy_timeout_s: float) -> int:
    """Copy the store to a new file, check it and sync it to the disk. Return its schema. Writers are not blocked."""
    connection = open_reader(path, busy_timeout_s)
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # VACUUM INTO reads one snapshot; the backup API would start again after every write of another process.
        connection.execute("PRAGMA query_only = 0; VACUUM INTO ?", (target,)).fetchall()
    except apsw.Error as error:
        Path(target).unlink(missing_ok=True)
        raise translated(error, path, busy_timeout_s) from error
    finally:
        connection.close()
    schema = check(target)
    _sync(target)
    return schema


def check(path: str) -> int:
    """Return the schema of a copy. Raises StoreUnavailable if it is not a store, is damaged, or is of a newer
    arclog.
    """
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            application, schema = connection.pragma("application_id"), connection.pragma("user_version")
            damage = connection.execute("PRAGMA integrity_check(1)").get
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreUnavailable(f"{path} cannot be read as a store: {error}; take another backup") from error
    if application != APPLICATION:
        raise StoreUnavailable(f"{path} is not an arclog store; name a folder that `arclog backup` made")
    if damage != "ok":
        raise StoreUnavailable(f"{path} is damaged: {damage}; take another backup")
    if schema > SCHEMA:
        raise StoreUnavailable(
            f"{path} was written by a newer arclog (schema {schema}, this one knows {SCHEMA}); update arclog"
        )
    return int(schema)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
