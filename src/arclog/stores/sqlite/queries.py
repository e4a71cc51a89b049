"""The SQL files of this folder: named queries and numbered migrations."""

from __future__ import annotations

from pathlib import Path

from arclog.stores import sqlfiles

_HERE = Path(__file__).parent

SQL = sqlfiles.load_queries(_HERE)


def load_migrations(after: int) -> list[tuple[int, str]]:
    """Migrations that a store of this version still lacks: (version, script)."""
    return sqlfiles.load_migrations(_HERE, after)
