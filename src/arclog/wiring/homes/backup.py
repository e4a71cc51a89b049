"""Backups of a home: a snapshot of the log, the results that it refers to, the sealed secrets.

Invariant: a folder under its final name is complete. The log is copied first and the results after it, since content is
stored before the log refers to it; so all content that the copied log refers to exists. The key that opens the secrets
is never copied.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from arclog import __version__
from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound, RequestRejected, StoreUnavailable
from arclog.model.ids import timestamp
from arclog.results.blobs.files import NEW
from arclog.secrets.store import STORE_FILE
from arclog.stores.sqlite.connection import connect, generation
from arclog.wiring.backends import DATABASE, RESULTS, keeps_files
from arclog.wiring.homes.folders import prepare_home

MANIFEST = "backup.json"


class Manifest(Struct, frozen=True):
    """The manifest of a backup."""

    version: str
    taken_at: str
    schema: int
    #: of the log's file
    bytes: int
    sha256: str
    #: files of stored results
    results: int
    #: whether it has sealed secrets; their key is never copied
    secrets: bool


def back_up(settings: Settings, target: Path) -> Manifest:
    """Copy the home to a folder that must not exist yet. Servers and runs continue meanwhile."""
    _require_files(settings, "back up the database with pg_dump or by archiving its WAL")
    home = Path(settings.text("home"))
    if not (home / DATABASE).exists():
        raise NotFound(f"there is nothing in {home} yet; name the home with --home")
    with _made_whole(target) as folder:
        taken_at = timestamp(time.time_ns() // 1000)
        copied = folder / DATABASE
        schema = connect.copy(os.fspath(home / DATABASE), os.fspath(copied), settings.number("store.busy_timeout_s"))
        count = 0 if settings.text("results.url") else _copy_results(home / RESULTS, folder / RESULTS)
        secrets = _copy_file(home / STORE_FILE, folder / STORE_FILE)
        manifest = Manifest(__version__, taken_at, schema, copied.stat().st_size, _digest(copied), count, secrets)
        _write(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)) + b"\n")
    return manifest


def restore(settings: Settings, source: Path) -> Manifest:
    """Create a home from a backup. A home that has a log already is not changed."""
    _require_files(settings, "restore the database with pg_restore")
    try:
        manifest = msgspec.json.decode((source / MANIFEST).read_bytes(), type=Manifest)
    except OSError as problem:
        raise NotFound(f"{source} is not a backup: {MANIFEST} cannot be read ({problem.strerror})") from None
    except msgspec.DecodeError as problem:
        raise RequestRejected(f"{source / MANIFEST} is not a manifest of a backup: {problem}") from None
    home = Path(settings.text("home"))
    if (home / DATABASE).exists():
        raise RequestRejected(f"{home} has runs already; name an empty --home, or move {home / DATABASE} away first")
    if (left := home / f"{DATABASE}-wal").exists():
        raise RequestRejected(
            f"{left} is a leftover of another store and would be read into this one; move it away first"
        )
    if _digest(source / DATABASE) != manifest.sha256:
        raise StoreUnavailable(
            f"{source / DATABASE} differs from the backed-up file (its hash differs); take another backup"
        )
    connect.check(os.fspath(source / DATABASE))
    prepare_home(home)
    # The mark of an earlier store is not valid for this one.
    Path(generation.mark_of(os.fspath(home / DATABASE))).unlink(missing_ok=True)
    _copy_results(source / RESULTS, home / RESULTS)
    if manifest.secrets and not (home / STORE_FILE).exists():
        _copy_file(source / STORE_FILE, home / STORE_FILE)
    # Last, and atomically: a home has either no log or the whole log.
    arriving = home / f"{DATABASE}.arriving"
    _copy_file(source / DATABASE, arriving)
    arriving.rename(home / DATABASE)
    _sync_folder(home)
    return manifest


def _require_files(settings: Settings, instead: str) -> None:
    if not keeps_files(settings):
        raise RequestRejected(f"the log is kept at ARCLOG_STORE_URL, not in a home; {instead} (docs/backup.md)")


@contextmanager
def _made_whole(target: Path) -> Iterator[Path]:
    """Yield a folder that gets its final name after everything is in it and on the disk."""
    if target.exists():
        raise RequestRejected(f"{target} already exists; name a new folder, one for each backup")
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.mkdir(parents=True, mode=0o700)
        yield partial
        for folder in [path for path in partial.rglob("*") if path.is_dir()] + [partial]:
            _sync_folder(folder)
        partial.rename(target)
        _sync_folder(target.parent)
    except OSError as problem:
        where = problem.filename or target
        raise StoreUnavailable(f"the backup failed at {where}: {problem.strerror}; nothing was kept") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy_results(source: Path, target: Path) -> int:
    """Copy stored content; content that is removed meanwhile was no longer needed."""
    count = 0
    for path in sorted(source.rglob("*.zst")) if source.is_dir() else ():
        inside = path.relative_to(source)
        if inside.parts[0] == NEW or path.is_symlink():
            continue
        (target / inside.parent).mkdir(parents=True, exist_ok=True)
        count += _copy_file(path, target / inside)
    return count


def _copy_file(source: Path, target: Path) -> bool:
    """Copy one file, readable by its owner alone, and sync it; returns whether it existed."""
    try:
        read = source.open("rb")
    except FileNotFoundError:
        return False
    # Created with its final permissions, so that others can never read it.
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with read, os.fdopen(descriptor, "wb") as write:
        shutil.copyfileobj(read, write, 1 << 20)
        write.flush()
        os.fsync(write.fileno())
    return True


def _write(path: Path, body: bytes) -> None:
    with path.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        raise StoreUnavailable(f"{path} cannot be read: {problem.strerror}; take another backup") from None
