"""A consistent copy of a SQLite store while others write to it. What is copied is one moment: whole appends, all or none."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from arclog.model.errors import StoreUnavailable
from arclog.stores.sqlite.connection.connect import APPLICATION, SCHEMA, open_reader
from arclog.stores.sqlite.connection.errors import translated


def copy(path: str, target: str, busy_timeout_s: float) -> int:
    """Copy the store to a new file, checked and on the disk; answers its schema. Writers are not held up."""
    connection = open_reader(path, busy_timeout_s)
    try:
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        # VACUUM INTO reads one snapshot; the backup API would begin again with every write of another process.
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
    """The schema of a copy. Raises StoreUnavailable when it is none, is damaged, or is of a newer arclog."""
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            application, schema = connection.pragma("application_id"), connection.pragma("user_version")
            found = connection.execute("PRAGMA integrity_check(1)").get
        finally:
            connection.close()
    except apsw.Error as error:
        raise StoreUnavailable(f"{path} cannot be read as a store: {error}; take another backup") from error
    if application != APPLICATION:
        raise StoreUnavailable(f"{path} is not an arclog store; name a folder that `arclog backup` made")
    if found != "ok":
        raise StoreUnavailable(f"{path} is damaged: {found}; take another backup")
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
