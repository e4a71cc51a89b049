"""Databases that no playbook may open: those in arclog's own folder, and those that the operator's settings leave out."""

from __future__ import annotations

from arclog.sandbox.confinement import Reach
from arclog.tools.sql.failures import SqlFailure

MEMORY = ":memory:"


def not_ours(database: str, reach: Reach, *, write: bool = True) -> str:
    """The path of a database file, as given; refused when it is out of reach."""
    if "\0" in database:
        raise SqlFailure("config", "database: a path holds no NUL")
    refusal = "" if database in ("", MEMORY) else reach.refusal(database, write=write)
    if refusal:
        raise SqlFailure("config", refusal)
    return database
