"""Creates the schema and brings it up to date, while other servers continue.

Law: a migration is a transaction of its own, carried out by one process at a time. One that says `-- online` holds nothing but
indexes: they are built beside whoever reads and writes (CREATE INDEX CONCURRENTLY), and what a process that died left of one is
removed first. Nobody waits for a lock meanwhile: building an index that way waits for all who wait.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import psycopg
from psycopg import AsyncConnection

from arclog.drivers.postgres.connect import answering
from arclog.model.errors import StoreUnavailable
from arclog.stores.postgres.connection.connect import Address, check, connect
from arclog.stores.postgres.queries import load_migrations
from arclog.stores.sql.files import is_online, oldest_for

#: number of the newest migration
SCHEMA = 10
#: key of advisory locks
_LOCK_CLASS = 1634886666
#: how long a migration waits for tables that others use
_LOCK_TIMEOUT_MS = 500
#: between two looks at what another process is doing
_PAUSE_S = 0.2

_TABLES = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p', 'v')
"""
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+) ON [^;]+")
# An index of this name: whether it can be used, and whether somebody is building it.
_STATE = """
SELECT i.indisvalid, EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s
"""


async def migrate(address: Address) -> None:
    connection = await connect(address)
    try:
        with answering(connection, address.connect_timeout_s):
            await check(connection, address)
            version = await _version(connection, address)
        while version < SCHEMA:
            number, script = load_migrations(max(version, 0), address.schema)[0]
            if version > 0 and is_online(script):
                await _build(connection, address.schema, script)
            try:
                done = await _carry_out(connection, address, number)
            except psycopg.errors.LockNotAvailable:
                done = False
            if not done:
                await asyncio.sleep(_PAUSE_S)  # another process is at it, or uses a table that is to be changed
            version = await _version(connection, address)
    finally:
        await connection.close()


async def _carry_out(connection: AsyncConnection[Any], address: Address, number: int) -> bool:
    """The migration of this number in a transaction; all of them for a new store. False when another process has the lock."""
    schema = address.schema
    async with connection.transaction():
        # The time-out of the database is meant for requests. Locks are not waited for long: others wait behind us.
        await connection.execute(f"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
        lock = await connection.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", (_LOCK_CLASS, schema))
        if await lock.fetchone() != (True,):
            return False
        version = await _version(connection, address)
        if version < 0:
            await _create(connection, address)
        for each, script in load_migrations(max(version, 0), schema):
            if version > 0 and each > number:
                break
            if version <= 0 or not is_online(script):
                await connection.execute(script)
            await connection.execute(
                f'UPDATE "{schema}".schema_version SET version = %s, oldest = greatest(oldest, %s)',  # noqa: S608 - the schema is a plain name
                (each, oldest_for(script)),
            )
    return True


async def _create(connection: AsyncConnection[Any], address: Address) -> None:
    schema = address.schema
    found = await (await connection.execute(_TABLES, (schema,))).fetchone()
    if found is not None:
        raise StoreUnavailable(
            f"{address.place}: the schema {schema} holds another program's tables ({found[0]}); "
            "choose another ARCLOG_STORE_SCHEMA"
        )
    await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    await connection.execute(f'CREATE TABLE "{schema}".schema_version (version int8 NOT NULL, oldest int8 NOT NULL)')
    await connection.execute(f'INSERT INTO "{schema}".schema_version VALUES (0, 0)')  # noqa: S608 - the schema is a plain name


async def _version(connection: AsyncConnection[Any], address: Address) -> int:
    """The schema's; -1 when there is none. A newer one is fine as long as its changes leave ours working."""
    # By the tables of the catalog: to_regclass may remember from before a lock was waited for.
    found = await connection.execute(_TABLES + " AND relname = 'schema_version'", (address.schema,))
    if await found.fetchone() is None:
        return -1
    row = await (
        await connection.execute(f'SELECT version, oldest FROM "{address.schema}".schema_version')  # noqa: S608 - the schema is a plain name
    ).fetchone()
    if row is None:
        raise StoreUnavailable(f"{address.place}: {address.schema}.schema_version is empty; restore it from a backup")
    version, oldest = row
    if oldest > SCHEMA:
        raise StoreUnavailable(
            f"{address.place} is used by a newer arclog (schema {version}, which needs one that knows {oldest}; "
            f"this one knows {SCHEMA}); update arclog"
        )
    return int(version)


# -- indexes -----------------------------------------------------------------------------------------------------------


async def _build(connection: AsyncConnection[Any], schema: str, script: str) -> None:
    """The indexes of a migration, each until it can be used, whoever builds it."""
    await connection.execute("SET statement_timeout = 0")
    for index in _INDEX.finditer(script):
        name, statement = index.group(1), index.group().replace(" INDEX ", " INDEX CONCURRENTLY ", 1)
        while True:
            row = await (await connection.execute(_STATE, (schema, name))).fetchone()
            if row is None:
                try:
                    await connection.execute(statement)
                except (psycopg.errors.DuplicateTable, psycopg.errors.UniqueViolation, psycopg.errors.DeadlockDetected):
                    await asyncio.sleep(_PAUSE_S)  # another process was faster
                continue
            valid, in_progress = row
            if valid:
                break
            if in_progress:
                await asyncio.sleep(_PAUSE_S)
            else:
                await connection.execute(f'DROP INDEX CONCURRENTLY IF EXISTS "{schema}"."{name}"')
