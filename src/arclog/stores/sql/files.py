"""Reads SQL files: named statements, shared or of one database, and numbered migrations.

Invariant: no statement uses `*`, because a newer release that shares the store may add columns while this one runs.

Rule for migrations: a store records the oldest schema that code must know to use it (`oldest`). A migration without a
line `-- oldest: N` only adds, and code of the previous release continues to work. A migration that removes or changes
something that older code uses has that line, and ships one release after the code stopped using it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from arclog.model.data.lazy import pattern
from arclog.stores.records import COLUMNS

_MARK = "-- name: "
#: {commands}, {c.commands}: the columns of a table, optionally with an alias before each. {in $2}: a macro of the
#: dialect.
_BRACES = pattern(r"\{(\w+\.)?(\w+)((?: [\w.$?]+)*)\}")
_ONLINE = pattern(r"^-- online$", re.MULTILINE)
_OLDEST = pattern(r"^-- oldest: (\d+)$", re.MULTILINE)

#: The condition for a version of a playbook (by its alias) to be valid in a project and an environment; '' is any.
_VALID = """
({1}::text = '' AND {2}::text = '' OR NOT EXISTS (
    SELECT 1 FROM arclog.catalog_scopes s WHERE s.tenant = {0}.tenant AND s.path = {0}.path AND s.version = {0}.version
) OR EXISTS (
    SELECT 1 FROM arclog.catalog_scopes s WHERE s.tenant = {0}.tenant AND s.path = {0}.path AND s.version = {0}.version
    AND ({1}::text = '' OR s.project IN ('', {1}::text)) AND ({2}::text = '' OR s.environment IN ('', {2}::text))
))
""".strip()

#: The macros of the two dialects. A statement writes {name argument …}; {0}, {1} … are the arguments.
SQLITE = {
    "true": "1",
    "false": "0",
    "bytes": "BLOB",
    #: the column by which versions are numbered in order of insertion
    "serial": "rowid",
    "indexed": "INDEXED BY {0}",
    #: limits a read to positions before which no transaction can commit any more
    "settled": "",
    #: arrays are JSON parameters, see `SqlPart._texts`
    "in": "IN (SELECT value FROM json_each({0}))",
    "empty": "{0} = '[]'",
    "contains": "instr({0}, {1}) > 0",
    "least": "min",
    "valid": _VALID,
}
POSTGRES = {
    "true": "true",
    "false": "false",
    "bytes": "bytea",
    "serial": "n",
    "indexed": "",
    "settled": (
        "AND {0} < (SELECT base FROM arclog.positions) + (pg_snapshot_xmin(pg_current_snapshot())::text::int8 << 19)"
    ),
    "in": "= ANY({0})",
    "empty": "cardinality({0}::text[]) = 0",
    "contains": "strpos({0}, {1}) > 0",
    "least": "least",
    "valid": _VALID,
}


class Queries(Mapping[str, str]):
    """Statements by name. Each is translated to the database's dialect on first use, since a short program uses few."""

    def __init__(self, sections: dict[str, str], write: Callable[[str], str]) -> None:
        self._sections = sections
        self._write = write
        self._written: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        text = self._written.get(name)
        if text is None:
            text = self._written[name] = self._write(self._sections[name])
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)


def load_queries(
    folder: Path, dialect: Mapping[str, str], adapt: Callable[[str], str] = lambda text: text
) -> Mapping[str, str]:
    """Return the shared statements and those of one folder, by name, without comments. `adapt` makes further changes
    for which the dialect has no macro.
    """

    def written(braces: re.Match[str]) -> str:
        alias, name, arguments = braces.groups("")
        if name in COLUMNS and not arguments:
            return ", ".join(alias + column for column in COLUMNS[name].split())
        return dialect[name].format(*arguments.split())

    def write(section: str) -> str:
        lines = [line for line in section.splitlines() if not line.startswith("--")]
        return adapt(_BRACES.sub(written, "\n".join(lines).strip()))

    queries: dict[str, str] = {}
    for file in (Path(__file__).parent / "queries.sql", folder / "queries.sql"):
        for section in file.read_text("utf-8").split(_MARK)[1:]:
            name, _, text = section.partition("\n")
            if name in queries:
                raise ValueError(f"{file}: there are two statements {name}")
            queries[name] = text
    return Queries(queries, write)


def load_migrations(folder: Path, after: int) -> list[tuple[int, str]]:
    """Return the migrations that a store of this version lacks: (version, script)."""
    files = sorted((folder / "migrations").glob("[0-9]*.sql"))
    return [(int(file.name[:4]), file.read_text("utf-8")) for file in files if int(file.name[:4]) > after]


def is_online(script: str) -> bool:
    """Return whether a migration contains only indexes, which are built while others use the store (`-- online`)."""
    return bool(_ONLINE.search(script))


def oldest_for(script: str) -> int:
    """Return the oldest schema that code must know after the migration; 0 if it only adds."""
    match = _OLDEST.search(script)
    return int(match.group(1)) if match else 0
