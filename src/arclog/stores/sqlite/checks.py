"""Checks of `arclog doctor` for a SQLite store: versions, durability, damage, permissions, size and free space. They
only read, through their own connection.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from time import monotonic

import apsw

from arclog.ports.views.checks import FAIL, OK, WARN, Check
from arclog.stores.sqlite.connection import generation
from arclog.stores.sqlite.connection.connect import INCREMENTAL, SCHEMA, Damaged, open_reader, translated

_MIB = 1024 * 1024
#: A larger write-ahead log is not being checkpointed, because a reader keeps a transaction open.
_LARGE_WAL = 256 * _MIB
#: Free space in a smaller file is not reported.
_LARGE_FREE = 64 * _MIB


#: Number of SQLite's virtual machine steps between two checks of the time limit.
_STEPS = 1000
_OTHERS = 0o077
#: suffixes of the store's files
BESIDE = ("", "-wal", "-shm", "-mark")


def checks(path: str, busy_timeout_s: float, min_free_bytes: int, pages_s: float) -> list[Check]:
    """Run the checks. Blocking: call it in a thread. Raises StoreUnavailable if the file cannot be read."""
    return [*_database(path, busy_timeout_s, pages_s), _rights(path), _room(path, min_free_bytes)]


def _database(path: str, busy_timeout_s: float, pages_s: float) -> list[Check]:
    try:
        connection = open_reader(path, busy_timeout_s)
    except Damaged as error:
        if not isinstance(error.__cause__, apsw.CorruptError):
            raise
        return [_damaged(path, f"its schema cannot be read ({error.__cause__})")]
    try:
        version, mode = connection.pragma("user_version"), connection.pragma("journal_mode")
        free, total = connection.pragma("freelist_count"), connection.pragma("page_count")
        shrinks = connection.pragma("auto_vacuum") == INCREMENTAL
        lack = _lack(connection, path)
        pages = _pages(connection, path, pages_s)
    except apsw.CorruptError as error:
        return [_damaged(path, str(error))]
    except apsw.Error as error:
        raise translated(error, path, busy_timeout_s) from error
    finally:
        connection.close()
    if lack:
        return [Check("store", FAIL, lack, generation.remedy(path)), _schema(version), pages]
    size, wal = Path(path).stat().st_size, Path(f"{path}-wal")
    wal_size = wal.stat().st_size if wal.exists() else 0
    detail = (
        f"SQLite {apsw.sqlite_lib_version()}, journal {mode}, every commit synced; "
        f"{size / _MIB:.1f} MiB and {wal_size / _MIB:.1f} MiB of write-ahead log in {path}"
    )
    if wal_size > _LARGE_WAL:
        remedy = "a process keeps a read transaction open: find it (fuser) and end it, and the log will shrink"
        return [Check("store", WARN, detail, remedy), _schema(version), pages]
    if not shrinks and free > total // 4 and size > _LARGE_FREE:
        detail += f", of which {free * size // max(total, 1) / _MIB:.1f} MiB are free"
        remedy = "an older arclog made this file, and it cannot shrink: stop the processes that use it, then run `arclog gc --compact`"
        return [Check("store", WARN, detail, remedy), _schema(version), pages]
    return [Check("store", OK, detail), _schema(version), pages]


def _lack(connection: apsw.Connection, path: str) -> str:
    try:
        return generation.loss(connection.execute, path)
    except apsw.CorruptError:
        return ""  # the check of the pages reports more


def _pages(connection: apsw.Connection, path: str, limit_s: float) -> Check:
    """Check the pages of the file for damage: their structure, then their content."""
    deadline = monotonic() + limit_s
    count = connection.pragma("page_count")
    connection.set_progress_handler(lambda: monotonic() > deadline, _STEPS)
    try:
        answer = connection.execute("PRAGMA integrity_check(3)").fetchall()
    except apsw.InterruptError:
        detail = f"{count} pages; no damage found within {limit_s:g} s (doctor.pages_s), not all pages were checked"
        return Check("pages", OK, detail)
    except apsw.CorruptError as error:
        answer = [(str(error),)]
    finally:
        connection.set_progress_handler(None)
    if answer == [("ok",)]:
        return Check("pages", OK, f"{count} pages, none is damaged")
    return _damaged(path, "; ".join(str(row[0]) for row in answer).replace("\n", " "))


def _damaged(path: str, damage: str) -> Check:
    remedy = "stop the processes that use this home, restore a backup, or recover the readable data with `sqlite3 … .recover`; check the disk"
    return Check("pages", FAIL, f"{path} is damaged: {damage}", remedy)


def _rights(path: str) -> Check:
    """Check whether other users of this machine can read the store."""
    folder = Path(path).parent
    if folder.stat().st_mode & _OTHERS == 0:
        return Check("files", OK, f"{folder} is open to its owner alone")
    names = [name for name in (f"{path}{end}" for end in BESIDE) if _is_open_to_others(name)]
    if not names:
        return Check("files", OK, f"{path} is readable by its owner alone")
    remedy = f"run: chmod 700 {folder}; chmod 600 {' '.join(names)}"
    return Check("files", WARN, f"other users of this machine can read {', '.join(names)}", remedy)


def _is_open_to_others(name: str) -> bool:
    try:
        return bool(os.stat(name).st_mode & _OTHERS)  # noqa: PTH116 - a text, and no object is needed for it
    except OSError:
        return False


def _schema(version: int) -> Check:
    """Compare the schema versions. A store of another version is not opened for writing, since that would change it."""
    detail = f"version {version}; this arclog writes {SCHEMA}"
    if version > SCHEMA:
        return Check("schema", FAIL, detail, "a newer arclog has used this home: update this one")
    if version < SCHEMA:
        remedy = "stop the processes of the older arclog; a server or run of this version then upgrades it"
        return Check("schema", WARN, detail, remedy)
    return Check("schema", OK, detail)


def _room(path: str, min_free_bytes: int) -> Check:
    usage = shutil.disk_usage(Path(path).parent)
    detail = f"{usage.free / _MIB:,.0f} MiB of {usage.total / _MIB:,.0f} MiB free at {Path(path).parent}"
    if usage.free >= min_free_bytes:
        return Check("disk", OK, detail)
    status = FAIL if usage.free < min_free_bytes // 10 else WARN
    return Check("disk", status, detail, "make room, or move the home; a store whose disk is full accepts nothing")
