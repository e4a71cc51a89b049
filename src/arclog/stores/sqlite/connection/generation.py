"""Detects a store that was restored without its write-ahead log.

Invariant: a process raises the store's generation with its first commit and with the first one after each checkpoint,
and writes it to a file next to the store (`-mark`) after that commit. All commits that are only in the write-ahead log
come after such a raise, so without that log the store has an older generation than its mark. The process that closes
the store last removes the mark.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

#: The generation is stored in sqlite_sequence, a table that every version of the schema has.
_NAME = "arclog_generation"
_RAISE = f"UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = '{_NAME}' RETURNING seq"  # noqa: S608 - a name of our own
_ADD = f"INSERT INTO sqlite_sequence (name, seq) VALUES ('{_NAME}', 1)"  # noqa: S608
_READ = f"SELECT seq FROM sqlite_sequence WHERE name = '{_NAME}'"  # noqa: S608


def mark_of(path: str) -> str:
    return f"{path}-mark"


def raised(execute: Callable[..., Any]) -> int:
    """Raise the generation in the open transaction. Return the new one."""
    generation = execute(_RAISE).get
    if generation is None:
        execute(_ADD)
        return 1
    return int(generation)


def note(path: str, generation: int) -> None:
    """Write the mark of a committed generation. If that fails, only the warning is lost."""
    with suppress(OSError):
        descriptor = os.open(mark_of(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, b"%d\n" % generation)
        finally:
            os.close(descriptor)


def forget(path: str) -> None:
    """Remove the mark if no write-ahead log is left."""
    if not Path(f"{path}-wal").exists():
        Path(mark_of(path)).unlink(missing_ok=True)


def loss(execute: Callable[..., Any], path: str) -> str:
    """Return a message about missing commits, or '' if none are known to be missing."""
    try:
        mark = int(Path(mark_of(path)).read_text("ascii"))
    except (OSError, ValueError):
        return ""
    has_counters = execute("SELECT 1 FROM sqlite_schema WHERE name = 'sqlite_sequence'").get
    generation = (execute(_READ).get or 0) if has_counters else 0
    if generation >= mark:
        return ""
    return (
        f"{path} lacks commits that were answered: its write-ahead log {path}-wal was removed, or an older copy was put in its "
        f"place (generation {generation}, {mark} was reached)"
    )


def remedy(path: str) -> str:
    return f"put the write-ahead log back, or restore a backup; to continue without the lost commits, remove {mark_of(path)}"
