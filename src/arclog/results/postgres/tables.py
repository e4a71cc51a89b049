"""The named statements of `postgres.sql`, and the tables that they need."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, LiteralString, cast

from psycopg import AsyncConnection, sql

#: any number that nobody else uses: one process makes the tables while others wait
_LOCK = 0x61726372_6573756C
_NOW = sql.SQL("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


def statements(schema: str) -> dict[str, sql.Composed]:
    """The statements by name."""
    text = files("arclog.results.postgres").joinpath("postgres.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    return {
        # Literal as far as it matters: it is a file of this package.
        name: sql.SQL(cast(LiteralString, body.strip())).format(s=sql.Identifier(schema), now=_NOW)
        for name, body in zip(parts[::2], parts[1::2], strict=True)
    }


async def prepare(connection: AsyncConnection[Any], schema: str, known: dict[str, sql.Composed]) -> None:
    """Make the tables if they are not there."""
    if await (await connection.execute(known["are_tables_there"], (schema,))).fetchone() is not None:
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        # A schema that is there is not asked for again: that takes a right which its owner may not have.
        for asked, wanted in (("is_schema_there", "schema"), ("are_tables_there", "tables")):
            if await (await connection.execute(known[asked], (schema,))).fetchone() is None:
                await connection.execute(known[wanted])
