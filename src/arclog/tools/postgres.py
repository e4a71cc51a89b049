"""Kind `postgres`: SQL on PostgreSQL, over pooled connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from arclog.drivers.postgres.address import AddressError, address_of
from arclog.model.config.extras import required
from arclog.model.config.settings import Settings
from arclog.model.data.shapes import Field
from arclog.model.outcome import Outcome
from arclog.ports.secrets import Credential
from arclog.ports.tool import TaskContext, ToolKind, ToolServices
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.run import SqlConfig, cancellable, failed_with, run_statements, sql_kind

if TYPE_CHECKING:
    from arclog.tools.sql.postgres import Pools

HELPER = "pg"
#: Fields of a credential, by libpq's names, and alternative names.
_KEYS = frozenset(
    {"dsn", "host", "hostaddr", "port", "user", "password", "dbname", "options", "sslmode", "sslrootcert", "sslcert"}
    | {"sslkey", "sslpassword", "channel_binding", "target_session_attrs", "connect_timeout", "application_name"}
)
_OTHER_NAMES = {"database": "dbname", "username": "user", "hostname": "host", "url": "dsn", "value": "dsn"}


class PostgresConfig(SqlConfig, frozen=True, kw_only=True):
    """A postgres task."""

    dsn: str | None = None
    host: str | None = None
    port: int | str | None = None
    user: str | None = None
    password: str | None = None
    dbname: str | None = None
    sslmode: str | None = None


class PostgresTool:
    """Runs SQL on PostgreSQL servers."""

    Config: type[Struct] = PostgresConfig

    def __init__(self, settings: Settings) -> None:
        self._grace_s = settings.number("tasks.kill_grace_s")
        with required("postgres", "kind postgres"):
            from arclog.tools.sql import postgres
            from arclog.tools.sql.postgres_servers import PostgresServers
        self._session = postgres.PgSession
        self._pools = postgres.Pools(
            settings.integer("sql.pool_max"),
            settings.number("sql.pool_idle_s"),
            PostgresServers(settings),
        )

    async def run(self, config: PostgresConfig, context: TaskContext) -> Outcome:
        return await cancellable(self._run(self._pools, config, context), self._grace_s)

    async def _run(self, pools: Pools, config: PostgresConfig, context: TaskContext) -> Outcome:
        where: dict[str, Any] = {}
        try:
            where = server_of(config, context.auth)
            pool = pools.to(where, context.scope)
            connection = await pool.take()
        except SqlFailure as problem:
            return _placed(failed_with(problem, HELPER), where)
        session = self._session(connection)
        try:
            return _placed(await run_statements(session, config, context, HELPER), where)
        finally:
            await pool.give(connection, keep=session.clean)

    async def execution_ended(self, execution_id: str) -> None:
        """Connections are shared by all executions."""

    async def close(self) -> None:
        await self._pools.close()


def server_of(config: Any, auth: Credential | None) -> dict[str, Any]:
    """Return the fields of the connection. Values of the task take precedence over those of its credential."""
    where: dict[str, Any] = {}
    if auth is not None:
        for name, value in auth.fields.items():
            key = _OTHER_NAMES.get(name, name)
            if key in _KEYS and value not in (None, ""):
                where[key] = value
    for key in ("dsn", "host", "port", "user", "password", "dbname", "sslmode"):
        value = getattr(config, key)
        if value is not None:
            where[key] = value
    if not where.keys() & {"dsn", "host", "hostaddr"}:
        raise SqlFailure("config", "a postgres task needs a server: set auth, dsn or host")
    return where


def place_of(where: Mapping[str, Any]) -> dict[str, Any]:
    """Return host, port and dbname of a connection; {} if it names several servers."""
    fields = {key: value for key, value in where.items() if key in ("host", "hostaddr", "port", "user", "dbname")}
    try:
        parts = address_of(str(where.get("dsn") or ""), **fields).parts
    except AddressError:
        return {}
    host = parts.get("host") or parts.get("hostaddr", "")
    if host.startswith("/"):
        host = "localhost"  # a path is the folder of a socket
    port, database = parts.get("port") or "5432", parts.get("dbname") or parts.get("user", "")
    if not host or not database or "," in host or not port.isdigit():
        return {}
    return {"host": host, "port": int(port), "dbname": database}


def _placed(outcome: Outcome, where: Mapping[str, Any]) -> Outcome:
    """Add the server to the outcome's metadata, without the address itself, which may be secret."""
    if place := place_of(where) if where else {}:
        outcome.meta = {**outcome.meta, "server": place}
    return outcome


def _open(services: ToolServices) -> PostgresTool:
    return PostgresTool(services.settings)


def _text(name: str, doc: str) -> Field:
    return Field(name, "string", doc, template=True)


KIND = ToolKind(
    sql_kind(
        "postgres",
        "Runs SQL on a PostgreSQL server. The data are the rows.",
        HELPER,
        _text(
            "dsn",
            "Address of the database: postgresql://user@host:port/dbname, or key=value pairs of libpq. Prefer `auth`.",
        ),
        _text(
            "host",
            "Host of the server, or folder of its socket (`arclog run`; elsewhere see `postgres.allow_networks`).",
        ),
        Field("port", "integer|string", "Port of the server. Default: 5432.", template=True),
        _text("user", "User name."),
        _text("password", "Password. Prefer `auth`, because the text of a playbook is recorded."),
        _text("dbname", "Name of the database. Default: the user name."),
        _text("sslmode", "disable, prefer (default), require, verify-ca, verify-full."),
        auth=("postgres_credential", "secret", "secret_manager", "basic", "env", "file"),
        opens_files=False,
    ),
    _open,
)
