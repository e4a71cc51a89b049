"""The SQL files of this folder: named queries and numbered migrations."""

from __future__ import annotations

from pathlib import Path

import apsw

from arclog.stores import sqlfiles

_HERE = Path(__file__).parent

#: The elements of a JSON array. The newer function parses them once, not again for each field of theirs.
_EACH = "jsonb_each" if apsw.SQLITE_VERSION_NUMBER >= 3_051_000 else "json_each"

SQL = sqlfiles.load_queries(_HERE, each=_EACH)


def load_migrations(after: int) -> list[tuple[int, str]]:
    """Migrations that a store of this version still lacks: (version, script)."""
    return sqlfiles.load_migrations(_HERE, after)
