"""Reads a store's SQL files: named queries and numbered migrations."""

from __future__ import annotations

from pathlib import Path

_MARK = "-- name: "


def load_queries(folder: Path) -> dict[str, str]:
    """The statements of `queries.sql` by name, without their comments."""
    queries: dict[str, str] = {}
    for section in (folder / "queries.sql").read_text("utf-8").split(_MARK)[1:]:
        name, _, text = section.partition("\n")
        lines = [line for line in text.splitlines() if not line.startswith("--")]
        queries[name.strip()] = "\n".join(lines).strip()
    return queries


def load_migrations(folder: Path, after: int) -> list[tuple[int, str]]:
    """Migrations that a store of this version still lacks: (version, script)."""
    files = sorted((folder / "migrations").glob("[0-9]*.sql"))
    return [(int(file.name[:4]), file.read_text("utf-8")) for file in files if int(file.name[:4]) > after]
