"""The tables of results in PostgreSQL, and the statements on them, in the schema `{s}`.

A blob without a sha256 is being written, and its `stored_at` is when its last part came.
"""

from __future__ import annotations

from typing import Any, LiteralString

from psycopg import AsyncConnection, sql

#: any number that nobody else uses: one process makes the tables while others wait
_LOCK = 0x61726372_6573756C

_TABLES: LiteralString = """
CREATE SCHEMA IF NOT EXISTS {s};
CREATE TABLE {s}.result_blobs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    sha256 text,
    stored_bytes bigint NOT NULL DEFAULT 0,
    stored_at bigint NOT NULL,
    parts_index bytea
);
CREATE UNIQUE INDEX result_blobs_by_name ON {s}.result_blobs (tenant, sha256) WHERE sha256 IS NOT NULL;
CREATE INDEX result_blobs_unfinished ON {s}.result_blobs (stored_at) WHERE sha256 IS NULL;
CREATE TABLE {s}.result_parts (
    blob bigint NOT NULL REFERENCES {s}.result_blobs ON DELETE CASCADE,
    number integer NOT NULL,
    frame bytea NOT NULL,
    PRIMARY KEY (blob, number)
);
-- It is packed already.
ALTER TABLE {s}.result_parts ALTER COLUMN frame SET STORAGE EXTERNAL;
"""

_NOW: LiteralString = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

QUERIES: dict[str, LiteralString] = {
    "begin": "INSERT INTO {s}.result_blobs (tenant, stored_at) VALUES (%s, " + _NOW + ") RETURNING id",
    "put": "WITH blob AS (UPDATE {s}.result_blobs SET stored_at = "
    + _NOW
    + " WHERE id = %s AND sha256 IS NULL RETURNING id)"
    " INSERT INTO {s}.result_parts (blob, number, frame) SELECT id, %s, %b FROM blob"
    " ON CONFLICT (blob, number) DO UPDATE SET frame = excluded.frame RETURNING number",
    # What was committed before is on the disk when this transaction is: the log of the database is written in order.
    "durable": "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
    "lock": "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))",
    "renew": "UPDATE {s}.result_blobs SET stored_at = greatest(" + _NOW + ", stored_at + 1) WHERE id = %s",
    "name": "UPDATE {s}.result_blobs SET sha256 = %s, parts_index = %b, stored_bytes = %s,"
    " stored_at = greatest(" + _NOW + ", %s + 1) WHERE id = %s AND sha256 IS NULL",
    "drop": "DELETE FROM {s}.result_blobs WHERE id = %s",
    "forget": "DELETE FROM {s}.result_blobs WHERE id = %s AND sha256 IS NULL",
    "open": "SELECT id, CASE WHEN id = ANY(%s::bigint[]) THEN NULL ELSE parts_index END, stored_at, stored_bytes"
    " FROM {s}.result_blobs WHERE tenant = %s AND sha256 = %s",
    "part": "SELECT frame FROM {s}.result_parts WHERE blob = %s AND number = %s",
    "find": "SELECT stored_bytes, stored_at FROM {s}.result_blobs WHERE tenant = %s AND sha256 = %s",
    "remove": "DELETE FROM {s}.result_blobs WHERE tenant = %s AND sha256 = %s AND (%s::bigint IS NULL OR stored_at = %s)"
    " RETURNING id",
    "all": "SELECT id, tenant, sha256, stored_bytes, stored_at FROM {s}.result_blobs"
    " WHERE sha256 IS NOT NULL AND id > %s ORDER BY id LIMIT %s",
    "leftovers": "DELETE FROM {s}.result_blobs WHERE sha256 IS NULL AND stored_at < %s RETURNING id",
}


#: Not by its name alone: what a connection found under a name, or did not, it believes until its next transaction.
_IS_THERE: LiteralString = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = 'result_parts'"


async def prepare(connection: AsyncConnection[Any], schema: str) -> None:
    """Make the tables if they are not there."""
    if await (await connection.execute(_IS_THERE, (schema,))).fetchone() is not None:
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if await (await connection.execute(_IS_THERE, (schema,))).fetchone() is None:
            await connection.execute(sql.SQL(_TABLES).format(s=sql.Identifier(schema)))
