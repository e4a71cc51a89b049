"""Opens connections, refuses a server whose configuration does not ensure durability, and creates or migrates the
schema.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import uuid4

import psycopg
from msgspec import Struct
from psycopg import AsyncConnection

from arclog.drivers.postgres import connect as driver
from arclog.drivers.postgres.address import PostgresAddress, configured_address
from arclog.drivers.postgres.connect import answering
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError, StoreUnavailable
from arclog.stores.postgres.connection.pipeline import Pipeline, Preparing
from arclog.stores.postgres.queries import load_migrations
from arclog.stores.sql.files import is_online, oldest_for

# ── connect ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_OLDEST_SERVER = 14
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_LOOK = """
SELECT current_setting('server_version_num')::int8, current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), pg_is_in_recovery(), current_setting('server_encoding'),
       current_setting('transaction_read_only'), pg_backend_pid()
"""


# Every statement must use an index, whatever the size of a table. The planner caches plans, and may have made one for
# an empty table or with outdated statistics, so other plans are disabled.
_PLAINLY = """
SELECT set_config('enable_seqscan', 'off', {local}), set_config('enable_bitmapscan', 'off', {local}),
       set_config('jit', 'off', {local}), set_config('plan_cache_mode', 'force_generic_plan', {local})
"""

# The server's counterpart of `store.timeout_s`: if the machine of an arclog server fails in the middle of a request,
# its locks are held until PostgreSQL notices, by default after two hours.
_WATCHFULLY = """
SELECT set_config('tcp_keepalives_idle', '{keepalives_idle}', false),
       set_config('tcp_keepalives_interval', '{keepalives_interval}', false),
       set_config('tcp_keepalives_count', '{keepalives_count}', false),
       set_config('tcp_user_timeout', '{tcp_user_timeout}', false)
"""


class Address(Struct, frozen=True):
    """The address of the database and its settings."""

    database: PostgresAddress
    schema: str
    connect_timeout_s: float
    timeout_s: float
    preparing: Preparing
    unsafe: bool

    @property
    def place(self) -> str:
        """The address without the password, for messages."""
        return self.database.place

    def __repr__(self) -> str:
        return f"Address({self.place})"


def address_of(url: str, settings: Settings) -> Address:
    schema = settings.text("store.schema")
    if not _IDENTIFIER.fullmatch(schema):
        raise SettingsError(
            f"ARCLOG_STORE_SCHEMA {schema!r} is not a plain name; use small letters, digits and underscores"
        )
    return Address(
        configured_address(url, "ARCLOG_STORE_URL"),
        schema,
        settings.number("store.connect_timeout_s"),
        settings.number("store.timeout_s"),
        Preparing(on=settings.text("store.prepare") != "never"),
        bool(settings["store.unsafe"]),
    )


async def connect(address: Address, name: str = "arclog") -> AsyncConnection[Any]:
    """Return a plain connection. `name` is its application name at the server."""
    return await driver.connect(
        address.database,
        driver.keepalives(address.timeout_s),
        connect_timeout=driver.timeout_of(address.connect_timeout_s),
        application_name=name,
    )


async def open_pipeline(address: Address) -> Pipeline:
    """Return a connection for requests. The server's configuration is checked again."""
    name = f"arclog {uuid4().hex}"
    connection = await connect(address, name)
    try:
        with driver.answering(connection, address.connect_timeout_s):
            pid = await check(connection, address)
            if pid == connection.info.backend_pid:
                await connection.execute(_PLAINLY.format(local="false"))
                await connection.execute(_WATCHFULLY.format(**driver.keepalives(address.timeout_s)))
                return Pipeline(connection, name, address.preparing, address.timeout_s)
        # This is a pooler, not the server itself: settings must not outlive the transaction.
        return Pipeline(connection, name, address.preparing, address.timeout_s, first=_PLAINLY.format(local="true"))
    except BaseException:
        await connection.close()
        raise


async def check(connection: AsyncConnection[Any], address: Address) -> int:
    """Check the server's configuration. Return the id of the server process. Raises StoreUnavailable."""
    [row] = await (await connection.execute(_LOOK)).fetchall()
    version, fsync, full_pages, commit, standby, encoding, read_only, pid = row
    place = address.place
    if version < _OLDEST_SERVER * 10_000:
        raise StoreUnavailable(
            f"{place} is PostgreSQL {version // 10_000}; arclog needs {_OLDEST_SERVER} or newer: update it"
        )
    if standby or read_only == "on":
        raise StoreUnavailable(
            f"{place} does not accept writes ({'it is a standby' if standby else 'default_transaction_read_only is on'}); "
            "name the primary in ARCLOG_STORE_URL"
        )
    if encoding != "UTF8":
        raise StoreUnavailable(f"{place} keeps texts as {encoding}; create the database with ENCODING 'UTF8'")
    if address.unsafe:
        return int(pid)
    for name, value, loss in (
        ("fsync", fsync, "a power failure would lose or damage committed data"),
        ("full_page_writes", full_pages, "a power cut could damage pages"),
        ("synchronous_commit", commit, "a crash would lose confirmed data"),
    ):
        if value == "off":
            raise StoreUnavailable(
                f"{place} runs with {name} = off: {loss}. Turn it on (look at ALTER SYSTEM, ALTER DATABASE and ALTER ROLE), "
                "or set ARCLOG_STORE_UNSAFE=true where data may be lost"
            )
    return int(pid)


# ── migrations ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Creates the schema and brings it up to date while other servers continue.
#
# Invariants: each migration is its own transaction, and one process migrates at a time. A migration marked `-- online`
# contains only indexes. They are built while others read and write (CREATE INDEX CONCURRENTLY); an incomplete index of
# a process that died is removed first. No process waits for a lock meanwhile, because such a build waits for all
# waiting transactions.

#: number of the newest migration
SCHEMA = 16
#: class of the advisory lock for migrations
_LOCK_CLASS = 1634886666
#: how long a migration waits for tables in use
_LOCK_TIMEOUT_MS = 500
#: pause between two checks of another process's progress
_PAUSE_S = 0.2

_TABLES = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE nspname = %s AND relkind IN ('r', 'p', 'v')
"""
_INDEX = re.compile(r"CREATE (?:UNIQUE )?INDEX (\w+) ON [^;]+")
# Whether an index of this name is valid, and whether it is being built.
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
                await asyncio.sleep(_PAUSE_S)  # another process migrates, or uses a table that has to be changed
            version = await _version(connection, address)
    finally:
        await connection.close()


async def _carry_out(connection: AsyncConnection[Any], address: Address, number: int) -> bool:
    """Run one migration in a transaction, or all of them for a new store. Return False if another process has
    the lock.
    """
    schema = address.schema
    async with connection.transaction():
        # The database's statement time-out is meant for requests. Waits for locks are short, since other requests queue
        # behind them.
        await connection.execute(f"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
        lock = await connection.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", (_LOCK_CLASS, schema))
        if await lock.fetchone() != (True,):
            return False
        version = await _version(connection, address)
        if version < 0:
            await _create(connection, address)
        for step, script in load_migrations(max(version, 0), schema):
            if version > 0 and step > number:
                break
            if version <= 0 or not is_online(script):
                await connection.execute(script)
            await connection.execute(
                f'UPDATE "{schema}".schema_version SET version = %s, oldest = greatest(oldest, %s)',  # noqa: S608 - the schema is a plain name
                (step, oldest_for(script)),
            )
    return True


async def _create(connection: AsyncConnection[Any], address: Address) -> None:
    schema = address.schema
    row = await (await connection.execute(_TABLES, (schema,))).fetchone()
    if row is not None:
        raise StoreUnavailable(
            f"{address.place}: the schema {schema} holds another program's tables ({row[0]}); "
            "choose another ARCLOG_STORE_SCHEMA"
        )
    await connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    await connection.execute(f'CREATE TABLE "{schema}".schema_version (version int8 NOT NULL, oldest int8 NOT NULL)')
    await connection.execute(f'INSERT INTO "{schema}".schema_version VALUES (0, 0)')  # noqa: S608 - the schema is a plain name


async def _version(connection: AsyncConnection[Any], address: Address) -> int:
    """Return the version of the schema, or -1 if there is none. A newer one is accepted if it is compatible."""
    # Read from the catalog tables: to_regclass may use a cached result from before the wait for a lock.
    cursor = await connection.execute(_TABLES + " AND relname = 'schema_version'", (address.schema,))
    if await cursor.fetchone() is None:
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
    """Build the indexes of a migration, and wait for those that another process builds."""
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
