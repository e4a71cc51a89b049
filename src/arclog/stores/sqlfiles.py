"""Reads a store's SQL files: named queries and numbered migrations.

Law: no statement says `*` of a table. A newer release that shares the store adds columns while this one goes on.
"""

from __future__ import annotations

import re
from pathlib import Path

from arclog.stores.records import COLUMNS

_MARK = "-- name: "
#: The columns of a table, all with the same alias before them: {commands}, {c.commands}.
_LISTED = re.compile(r"\{(\w+\.)?(\w+)\}")


def load_queries(folder: Path, **words: str) -> dict[str, str]:
    """The statements of `queries.sql` by name, without their comments. `words` stand for themselves in braces: {each}."""
    queries: dict[str, str] = {}
    for section in (folder / "queries.sql").read_text("utf-8").split(_MARK)[1:]:
        name, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        queries[name.strip()] = _LISTED.sub(lambda listed: _columns(listed, words), "\n".join(lines).strip())
    return queries


def _columns(listed: re.Match[str], words: dict[str, str]) -> str:
    alias, table = listed.groups("")
    if table in words:
        return words[table]
    return ", ".join(alias + column for column in COLUMNS[table].split())


def load_migrations(folder: Path, after: int) -> list[tuple[int, str]]:
    """Migrations that a store of this version still lacks: (version, script)."""
    files = sorted((folder / "migrations").glob("[0-9]*.sql"))
    return [(int(file.name[:4]), file.read_text("utf-8")) for file in files if int(file.name[:4]) > after]
