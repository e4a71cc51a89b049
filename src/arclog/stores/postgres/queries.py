"""The SQL files of this folder, for a schema of some name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from arclog.stores.sql import files

_HERE = Path(__file__).parent
_WRITTEN = "arclog."
#: A condition for the form of a statement that is limited to a project and an environment.
_WITHIN = re.compile(r"/\*within (.*?)\*/", re.DOTALL)


@cache
def queries(schema: str) -> dict[str, str]:
    """The named statements; with `_within` behind their names, those that can be limited to a project and an environment."""
    statements: dict[str, str] = {}
    for name, text in files.load_queries(_HERE, files.POSTGRES).items():
        written = in_schema(text, schema)
        statements[name] = _WITHIN.sub("", written)
        if statements[name] != written:
            statements[f"{name}_within"] = _WITHIN.sub(r"\1", written)
    return statements


def load_migrations(after: int, schema: str) -> list[tuple[int, str]]:
    """Migrations that a store of this version still lacks: (version, script)."""
    return [(version, in_schema(text, schema)) for version, text in files.load_migrations(_HERE, after)]


def in_schema(text: str, schema: str) -> str:
    """Table names are qualified with a schema, so that no statement depends on a connection's search_path."""
    return text.replace(_WRITTEN, f'"{schema}".')
