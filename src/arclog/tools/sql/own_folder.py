"""Databases that no playbook may open: those in arclog's own folder. A write there would break every run."""

from __future__ import annotations

from pathlib import Path

from arclog.tools.sql.failures import SqlFailure

MEMORY = ":memory:"


def not_ours(database: str, home: Path) -> str:
    """The path of a database file, as given; refused when it lies in `home`, also by a symbolic link."""
    if "\0" in database:
        raise SqlFailure("config", "database: a path holds no NUL")
    if database and database != MEMORY and Path(database).resolve().is_relative_to(home.resolve()):
        message = f"{database}: lies in arclog's own folder (setting home), which no playbook reads or writes"
        raise SqlFailure("config", message)
    return database
