"""The SQL files of this folder: named queries and numbered migrations."""

from __future__ import annotations

import re
from pathlib import Path

from arclog.stores.sql import files

_HERE = Path(__file__).parent
#: What PostgreSQL needs and SQLite does not know: types of parameters, the schema.
_TYPE_OR_SCHEMA = re.compile(r"::\w+|\barclog\.")

#: the statements by name
SQL = {
    name: _TYPE_OR_SCHEMA.sub("", text).replace("$", "?")
    for name, text in files.load_queries(_HERE, files.SQLITE).items()
}


def load_migrations(after: int) -> list[tuple[int, str]]:
    """Migrations that a store of this version still lacks: (version, script)."""
    return files.load_migrations(_HERE, after)
