"""Checks of `arclog doctor` for a PostgreSQL store: version, durability, schema, connections, and transactions that
delay readers of the log.

They use their own connection and change nothing, so they also show why the store cannot be opened.
"""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import AsyncConnection

from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.ports.views.checks import FAIL, OK, WARN, Check
from arclog.stores.postgres.connection.connect import SCHEMA, Address, address_of, connect
from arclog.stores.postgres.connection.pipeline import translated

_MIB = 1024 * 1024
#: The share of connections in use above which another server may get none.
_NEARLY_ALL = 0.8

_SERVER = """
SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), pg_is_in_recovery(), pg_database_size(current_database()),
       current_setting('synchronous_standby_names')
"""
_CONNECTIONS = """
SELECT count(*), current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
FROM pg_stat_activity WHERE backend_type = 'client backend'
"""
# Readers of the whole log wait for the oldest transaction that may still write, and so does VACUUM.
_OLDEST = """
SELECT extract(epoch FROM clock_timestamp() - xact_start)::float8, coalesce(application_name, ''), state, pid
FROM pg_stat_activity
WHERE datname = current_database() AND xact_start IS NOT NULL AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY xact_start LIMIT 1
"""
_STANDBYS = "SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), count(*) FROM pg_stat_replication"


async def checks(url: str, settings: Settings) -> list[Check]:
    """Run the checks. Raises StoreUnavailable if the server cannot be reached or refuses the login."""
    address = address_of(url, settings)
    try:
        connection = await connect(address, "arclog doctor")
        try:
            return [
                await _server(connection, address),
                await _schema(connection, address),
                await _connections(connection),
                await _oldest(connection, settings.number("doctor.waiting_s")),
            ]
        finally:
            await connection.close()
    except psycopg.Error as error:
        raise translated(error, address.place) from error


async def _row(connection: AsyncConnection[Any], query: str, *values: Any) -> tuple[Any, ...] | None:
    return await (await connection.execute(query, values)).fetchone()


async def _server(connection: AsyncConnection[Any], address: Address) -> Check:
    row = await _row(connection, _SERVER)
    if row is None:
        raise StoreUnavailable(f"{address.place} does not answer queries about its configuration")
    version, fsync, pages, commit, standby, size, wanted = row
    standbys = await _row(connection, _STANDBYS) or (0, 0)
    detail = (
        f"PostgreSQL {version} at {address.place}, {size / _MIB:,.0f} MiB; fsync {fsync}, full_page_writes {pages}, "
        f"synchronous_commit {commit}; {standbys[1]} standbys, {standbys[0]} of them synchronous"
    )
    if standby:
        return Check("store", FAIL, detail, "this is a read-only standby: name the primary in ARCLOG_STORE_URL")
    if "off" in (fsync, pages, commit):
        remedy = "confirmed data may be lost: turn these on (ALTER SYSTEM, ALTER DATABASE, ALTER ROLE)"
        return Check("store", WARN if address.unsafe else FAIL, detail, remedy)
    if wanted and not standbys[0]:
        remedy = "synchronous_standby_names waits for a missing standby: commits hang until one is back"
        return Check("store", FAIL, detail, remedy)
    return Check("store", OK, detail)


async def _schema(connection: AsyncConnection[Any], address: Address) -> Check:
    there = await _row(connection, "SELECT to_regclass(%s) IS NOT NULL", f'"{address.schema}".schema_version')
    if there is None or not there[0]:
        remedy = "the first `arclog server` (or run) on it makes them; or ARCLOG_STORE_SCHEMA names another"
        return Check("schema", WARN, f"there are no tables of arclog in the schema {address.schema} yet", remedy)
    row = await _row(connection, f'SELECT version, oldest FROM "{address.schema}".schema_version')  # noqa: S608 - the schema is a plain name
    version, oldest = row or (0, 0)
    detail = f"version {version} in the schema {address.schema}; this arclog writes {SCHEMA}"
    if oldest > SCHEMA:
        return Check("schema", FAIL, f"{detail}, and it needs one that knows {oldest}", "update this arclog")
    if version < SCHEMA:
        return Check("schema", WARN, detail, "a server of this version brings it up to date when it starts")
    return Check("schema", OK, detail)


async def _connections(connection: AsyncConnection[Any]) -> Check:
    used, most = await _row(connection, _CONNECTIONS) or (0, 1)
    detail = f"{used} of {most} in use"
    if used <= _NEARLY_ALL * most:
        return Check("connections", OK, detail)
    remedy = "raise max_connections, put pgbouncer in front, or lower ARCLOG_STORE_CONNECTIONS on the servers"
    return Check("connections", WARN, detail, remedy)


async def _oldest(connection: AsyncConnection[Any], most_s: float) -> Check:
    row = await _row(connection, _OLDEST)
    if row is None or row[0] <= most_s:
        return Check(
            "transactions", OK, "no open write transactions" if row is None else f"the oldest is {row[0]:.1f} s old"
        )
    age, name, state, pid = row
    detail = f"{name or 'a program'} (pid {pid}, {state}) has had a write transaction open for {age:.0f} s"
    remedy = f"events after it are not published until it ends: end it (SELECT pg_terminate_backend({pid}))"
    return Check("transactions", WARN, detail, remedy)
