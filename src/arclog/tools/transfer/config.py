"""What a transfer task says, and what of it cannot be meant."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct

from arclog.tools.sql.failures import SqlFailure
from arclog.tools.transfer.rows import TYPES

DATABASES = ("sqlite", "postgres", "duckdb")
FILES = ("csv", "ndjson", "parquet")


class End(Struct, frozen=True, forbid_unknown_fields=True):
    """What a source and a target have in common."""

    kind: Literal["sqlite", "postgres", "duckdb", "csv", "ndjson", "parquet"]
    database: str | None = None
    path: str | None = None
    table: str | None = None
    schema: str | None = None
    dsn: str | None = None
    host: str | None = None
    port: int | str | None = None
    user: str | None = None
    password: str | None = None
    dbname: str | None = None
    sslmode: str | None = None
    delimiter: str | None = None
    null: str | None = None
    header: bool | None = None


class SourceConfig(End, frozen=True, forbid_unknown_fields=True):
    """Where rows come from."""

    query: str | None = None
    params: list[Any] | dict[str, Any] | None = None


class TargetConfig(End, frozen=True, forbid_unknown_fields=True):
    """Where rows go to."""

    mode: Literal["append", "replace", "upsert"] | None = None
    key: str | list[str] | None = None
    create: bool | None = None
    types: dict[str, Literal[TYPES]] | None = None  # type: ignore[valid-type]  # the table of types is their list


class TransferConfig(Struct, frozen=True):
    """A transfer task."""

    target: TargetConfig
    source: SourceConfig | None = None
    rows: Any = UNSET
    columns: list[str] | dict[str, str] | None = None
    chunk_rows: int | None = None


#: Keys that only some kinds have.
_ONLY = {
    "database": ("sqlite", "duckdb"),
    "path": FILES,
    "table": DATABASES,
    "schema": ("postgres", "duckdb"),
    "query": DATABASES,
    "params": DATABASES,
    "mode": (*DATABASES, *FILES),
    "key": DATABASES,
    "create": DATABASES,
    "delimiter": ("csv",),
    "null": ("csv",),
    "header": ("csv",),
    **dict.fromkeys(("dsn", "host", "port", "user", "password", "dbname", "sslmode"), ("postgres",)),
}


def check(config: TransferConfig) -> None:
    """Keys that do not belong to a kind, or lack."""
    if (config.source is None) == (config.rows is UNSET):
        raise SqlFailure("config", "give either `source` or `rows`")
    if config.chunk_rows is not None and config.chunk_rows < 1:
        raise SqlFailure("config", f"chunk_rows: {config.chunk_rows} is below 1")
    if config.columns is not None and not config.columns:
        raise SqlFailure("config", "columns: names none")
    for what, end in (("source", config.source), ("target", config.target)):
        if end is None:
            continue
        for name, kinds in _ONLY.items():
            if getattr(end, name, None) is not None and end.kind not in kinds:
                raise SqlFailure("config", f"{what}.{name} does not belong to kind {end.kind}")
        if end.kind in FILES and not end.path:
            raise SqlFailure("config", f"{what}: kind {end.kind} needs `path`")
    if (
        config.source is not None
        and config.source.kind in DATABASES
        and bool(config.source.table) == bool(config.source.query)
    ):
        raise SqlFailure("config", "source: give either `table` or `query`")
    if config.source is not None and config.source.params is not None and not config.source.query:
        raise SqlFailure("config", "source.params: only a `query` takes values")
    _check_target(config.target)


def _check_target(target: TargetConfig) -> None:
    if target.kind in DATABASES and not target.table:
        raise SqlFailure("config", "target: a database needs `table`")
    if target.kind in FILES and target.mode not in (None, "replace"):
        raise SqlFailure("config", f"target.mode: a file is always replaced, never {target.mode}")
    if (target.mode == "upsert") != bool(target.key):
        raise SqlFailure(
            "config", "target: `mode: upsert` and `key` (the columns that tell rows apart) belong together"
        )
