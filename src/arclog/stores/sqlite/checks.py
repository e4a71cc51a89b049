"""What `arclog doctor` is told of a SQLite store: versions, durability, size and room. Reads, on a connection of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from arclog.ports.checks import FAIL, OK, WARN, Check
from arclog.stores.sqlite.connect import SCHEMA, open_reader
from arclog.stores.sqlite.errors import translated

_MIB = 1024 * 1024
#: A write-ahead log that has grown this far is not being checkpointed: some reader never lets go.
_LARGE_WAL = 1024 * _MIB


def checks(path: str, busy_timeout_s: float, min_free_bytes: int) -> list[Check]:
    """Blocking: call it on a thread. Raises StoreUnavailable when the file cannot be read."""
    return [*_database(path, busy_timeout_s), _room(path, min_free_bytes)]


def _database(path: str, busy_timeout_s: float) -> list[Check]:
    connection = open_reader(path, busy_timeout_s)
    try:
        version, mode = connection.pragma("user_version"), connection.pragma("journal_mode")
    except apsw.Error as error:
        raise translated(error, path, busy_timeout_s) from error
    finally:
        connection.close()
    size, wal = Path(path).stat().st_size, Path(f"{path}-wal")
    wal_size = wal.stat().st_size if wal.exists() else 0
    detail = (
        f"SQLite {apsw.sqlite_lib_version()}, journal {mode}, every commit synced; "
        f"{size / _MIB:.1f} MiB and {wal_size / _MIB:.1f} MiB of write-ahead log in {path}"
    )
    if wal_size > _LARGE_WAL:
        remedy = "a process that reads the store never lets go: find it (fuser) and end it, then the log shrinks"
        return [Check("store", WARN, detail, remedy), _schema(version)]
    return [Check("store", OK, detail), _schema(version)]


def _schema(version: int) -> Check:
    """A store of another version is left alone: whoever opened it to look would change it."""
    detail = f"version {version}; this arclog writes {SCHEMA}"
    if version > SCHEMA:
        return Check("schema", FAIL, detail, "a newer arclog has used this home: update this one")
    if version < SCHEMA:
        remedy = "stop what an older arclog runs here, then a server or run of this version brings it up to date"
        return Check("schema", WARN, detail, remedy)
    return Check("schema", OK, detail)


def _room(path: str, min_free_bytes: int) -> Check:
    usage = shutil.disk_usage(Path(path).parent)
    detail = f"{usage.free / _MIB:,.0f} MiB of {usage.total / _MIB:,.0f} MiB free at {Path(path).parent}"
    if usage.free >= min_free_bytes:
        return Check("disk", OK, detail)
    status = FAIL if usage.free < min_free_bytes // 10 else WARN
    return Check("disk", status, detail, "make room, or move the home; a store whose disk is full accepts nothing")
