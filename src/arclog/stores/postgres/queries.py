"""Loads the SQL files of this folder, for a schema of any name."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from arclog.stores.sql import files

_HERE = Path(__file__).parent
_WRITTEN = "arclog."
#: A condition that applies only if a statement is limited to a project and an environment.
_WITHIN = re.compile(r"/\*within (.*?)\*/", re.DOTALL)


@cache
def queries(schema: str) -> dict[str, str]:
    """Return the named statements. Those that can be limited to a project and an environment also exist with the suffix
    `_within`.
    """
    statements: dict[str, str] = {}
    for name, text in files.load_queries(_HERE, files.POSTGRES).items():
        written = in_schema(text, schema)
        statements[name] = _WITHIN.sub("", written)
        if statements[name] != written:
            statements[f"{name}_within"] = _WITHIN.sub(r"\1", written)
    return statements


def load_migrations(after: int, schema: str) -> list[tuple[int, str]]:
    """Return the migrations that a store of this version lacks: (version, script)."""
    return [(version, in_schema(text, schema)) for version, text in files.load_migrations(_HERE, after)]


def in_schema(text: str, schema: str) -> str:
    """Qualify table names with a schema, so that no statement depends on a connection's search_path."""
    return text.replace(_WRITTEN, f'"{schema}".')
