"""Loads the SQL files of this folder: named queries and numbered migrations."""

from __future__ import annotations

from pathlib import Path

import apsw

from arclog.model.data.lazy import pattern
from arclog.stores.sql import files

_HERE = Path(__file__).parent
#: PostgreSQL syntax that SQLite does not have: types of parameters, the schema.
_TYPE_OR_SCHEMA = pattern(r"::\w+|\barclog\.")

#: The table function for the elements of a JSON array. The newer one parses them once, not once for each field.
_EACH = "jsonb_each" if apsw.SQLITE_VERSION_NUMBER >= 3_051_000 else "json_each"

#: the statements by name
SQL = files.load_queries(
    _HERE, {**files.SQLITE, "each": _EACH}, lambda text: _TYPE_OR_SCHEMA.sub("", text).replace("$", "?")
)


def load_schema() -> tuple[int, str]:
    """Return the schema of a new store: (version, script)."""
    script = (_HERE / "schema.sql").read_text("utf-8")
    return int(script.partition("-- schema: ")[2].partition("\n")[0]), script


def load_migrations(after: int) -> list[tuple[int, str]]:
    """Return the migrations that a store of this version lacks: (version, script)."""
    return files.load_migrations(_HERE, after)
