"""Opens connections: refuses a server that cannot keep the promises, creates or migrates the schema."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

from msgspec import Struct
from psycopg import AsyncConnection

from arclog.drivers.postgres import connect as driver
from arclog.drivers.postgres.address import PostgresAddress, configured_address
from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError, StoreUnavailable
from arclog.stores.postgres.connection.pipeline import Link, Preparing

_OLDEST_SERVER = 14
_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")

_LOOK = """
SELECT current_setting('server_version_num')::int8, current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('synchronous_commit'), pg_is_in_recovery(), current_setting('server_encoding'),
       current_setting('transaction_read_only'), pg_backend_pid()
"""


# Every statement finds its rows by an index, however many there are. The planner, which keeps a statement's plan, may have
# made it when the table was empty, or have no figures of a queue that was filled a moment ago: it is not left the choice.
_PLAINLY = """
SELECT set_config('enable_seqscan', 'off', {local}), set_config('enable_bitmapscan', 'off', {local}),
       set_config('jit', 'off', {local}), set_config('plan_cache_mode', 'force_generic_plan', {local})
"""

# The other side of `store.timeout_s`: a server of ours whose machine vanished in the middle of a request holds the locks of
# that request until PostgreSQL notices. Left to itself it takes two hours.
_WATCHFULLY = """
SELECT set_config('tcp_keepalives_idle', '{keepalives_idle}', false),
       set_config('tcp_keepalives_interval', '{keepalives_interval}', false),
       set_config('tcp_keepalives_count', '{keepalives_count}', false),
       set_config('tcp_user_timeout', '{tcp_user_timeout}', false)
"""


class Address(Struct, frozen=True):
    """Where the database is, and how to use it."""

    database: PostgresAddress
    schema: str
    connect_timeout_s: float
    timeout_s: float
    preparing: Preparing
    unsafe: bool

    @property
    def place(self) -> str:
        """For messages: no password."""
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
    """A plain connection, by which name the server knows it."""
    return await driver.connect(
        address.database,
        driver.keepalives(address.timeout_s),
        connect_timeout=driver.timeout_of(address.connect_timeout_s),
        application_name=name,
    )


async def open_link(address: Address) -> Link:
    """A connection for requests; what it promises is looked at again."""
    name = f"arclog {uuid4().hex}"
    connection = await connect(address, name)
    try:
        with driver.answering(connection, address.connect_timeout_s):
            pid = await check(connection, address)
            if pid == connection.info.backend_pid:
                await connection.execute(_PLAINLY.format(local="false"))
                await connection.execute(_WATCHFULLY.format(**driver.keepalives(address.timeout_s)))
                return Link(connection, name, address.preparing, address.timeout_s)
        # Not the server itself but a pooler: what is set there must not outlive the transaction.
        return Link(connection, name, address.preparing, address.timeout_s, first=_PLAINLY.format(local="true"))
    except BaseException:
        await connection.close()
        raise


async def check(connection: AsyncConnection[Any], address: Address) -> int:
    """A promise is checked, not assumed. Gives the server process that answered."""
    [row] = await (await connection.execute(_LOOK)).fetchall()
    version, fsync, full_pages, commit, standby, encoding, read_only, pid = row
    place = address.place
    if version < _OLDEST_SERVER * 10_000:
        raise StoreUnavailable(
            f"{place} is PostgreSQL {version // 10_000}; arclog needs {_OLDEST_SERVER} or newer: update it"
        )
    if standby or read_only == "on":
        raise StoreUnavailable(
            f"{place} takes no writes ({'it is a standby' if standby else 'default_transaction_read_only is on'}); "
            "name the primary in ARCLOG_STORE_URL"
        )
    if encoding != "UTF8":
        raise StoreUnavailable(f"{place} keeps texts as {encoding}; create the database with ENCODING 'UTF8'")
    if address.unsafe:
        return int(pid)
    for name, value, loss in (
        ("fsync", fsync, "a power cut would lose or damage what was committed"),
        ("full_page_writes", full_pages, "a power cut could damage pages"),
        ("synchronous_commit", commit, "a crash would lose what was answered"),
    ):
        if value == "off":
            raise StoreUnavailable(
                f"{place} runs with {name} = off: {loss}. Turn it on (look at ALTER SYSTEM, ALTER DATABASE and ALTER ROLE), "
                "or set ARCLOG_STORE_UNSAFE=true where data may be lost"
            )
    return int(pid)
