"""The PostgreSQL servers that tasks and transfers may connect to, and the logins that they may use.

Invariant: unless the setting is `all`, a connection goes to an address that the guard permits, and with nothing that
belongs to the worker: no socket of its machine, and no password, certificate, ticket or file of its user. libpq takes
all of these by itself if an address leaves them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arclog.drivers.failure import Failure
from arclog.drivers.http.guard import Guard
from arclog.drivers.postgres.address import AddressError, PostgresAddress, address_of, keywords
from arclog.drivers.postgres.connect import timeout_of
from arclog.model.config.settings import Settings
from arclog.tools.sql.failures import SqlFailure

SETTING = "postgres.allow_networks"
LIMIT = "postgres.max_row_bytes"
ALL = "all"
#: Times are in UTC and durations in ISO 8601, whatever the server's own settings.
_SESSION = "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601"
_PORT = "5432"
#: Keywords of libpq that name no file and no login of the worker.
_HARMLESS = frozenset(
    {"host", "hostaddr", "port", "user", "password", "dbname", "options", "connect_timeout", "application_name"}
    | {"fallback_application_name", "client_encoding", "keepalives", "keepalives_idle", "keepalives_interval"}
    | {"keepalives_count", "tcp_user_timeout", "sslmode", "sslnegotiation", "sslcompression", "sslsni"}
    | {"ssl_min_protocol_version", "ssl_max_protocol_version", "min_protocol_version", "max_protocol_version"}
    | {"channel_binding", "target_session_attrs", "load_balance_hosts"}
)
#: What libpq uses instead of the worker's own: a path at which there is never a file, and no Kerberos.
_NO_LOGIN = {
    "password": "",
    "passfile": "/dev/null/none",
    "sslcert": "/dev/null/none",
    "gssencmode": "disable",
    "require_auth": "!gss,!sspi",
}


class PostgresServers:
    """What a worker's tasks may connect to."""

    def __init__(self, settings: Settings) -> None:
        text = settings.text(SETTING).strip() or ALL
        self._guard = None if text == ALL else Guard(text, setting=SETTING, caller="postgres tasks")
        self._connect_s = settings.number("sql.connect_timeout_s")
        self._ca_file = settings.text("postgres.ca_file")
        #: most that a server may send without a row, or as one
        self.max_row_bytes = settings.integer(LIMIT)

    def address(self, where: Mapping[str, Any]) -> PostgresAddress:
        """Return the address of a server, with the options of every session. Raises SqlFailure."""
        fields = {key: value for key, value in where.items() if value is not None}
        try:
            parts = address_of(str(fields.pop("dsn", "")), **fields).parts
        except AddressError as problem:
            raise SqlFailure("config", f"the dsn cannot be read: {problem}; prefer auth") from None
        defaults = {"connect_timeout": str(timeout_of(self._connect_s)), "application_name": "arclog"}
        if self._ca_file:
            defaults["sslrootcert"] = self._ca_file
        if self._guard is not None:
            harmless = _HARMLESS | ({"sslrootcert"} if parts.get("sslrootcert") == "system" else set())
            if own := sorted(parts.keys() - harmless):
                raise SqlFailure(
                    "config",
                    f"{', '.join(own)}: connections of tasks do not use files and logins of the worker; give user and "
                    "password, and let the operator set postgres.ca_file for certificate authorities, or "
                    f"{SETTING} to {ALL}",
                    "LOGIN_REFUSED",
                )
            if not _NO_LOGIN.keys() <= keywords():
                raise SqlFailure(
                    "config", "this worker's libpq is older than 16, which could log in as the worker's user"
                )
            defaults |= _NO_LOGIN
        return PostgresAddress({**defaults, **parts, "options": f"{_SESSION} {parts.get('options', '')}".strip()})

    async def resolved(self, address: PostgresAddress) -> PostgresAddress:
        """Return an address with the permitted addresses of its hosts, to which libpq connects in turn. Raises SqlFailure if
        there is none.
        """
        if self._guard is None:
            return address
        found: list[tuple[str, str, str]] = []
        problems: list[SqlFailure] = []
        for host, literal, port in _servers(address.parts):
            try:
                if not literal and host.startswith(("/", "@")):
                    raise SqlFailure(
                        "config",
                        f"{host} is a socket of the worker's machine; name a host, or let the operator set {SETTING} to {ALL}",
                        "ADDRESS_REFUSED",
                    )
                permitted = await self._guard.addresses(literal or host, int(port))
                found += [(host or literal, each, port) for each in permitted]
            except Failure as failure:
                problems.append(SqlFailure(failure.problem.kind, failure.problem.message, failure.problem.code))
            except SqlFailure as failure:
                problems.append(failure)
        if not found:
            raise problems[0]
        hosts, literals, ports = (",".join(column) for column in zip(*found, strict=True))
        return PostgresAddress({**address.parts, "host": hosts, "hostaddr": literals, "port": ports})


def _servers(parts: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return host, literal address and port of each server that an address names; as for libpq, one port may be for all.
    Raises SqlFailure.
    """
    hosts, literals = parts.get("host", "").split(","), parts.get("hostaddr", "").split(",")
    ports = parts.get("port", "").split(",")
    count = max(len(hosts), len(literals))
    hosts, literals = ([*names, *[""] * (count - len(names))] for names in (hosts, literals))
    if len(ports) not in (1, count):
        raise SqlFailure("config", f"{count} hosts have {len(ports)} ports")
    if len(ports) == 1:
        ports *= count
    servers = list(zip(hosts, literals, (port or _PORT for port in ports), strict=True))
    if not all(host or literal for host, literal, _ in servers):
        raise SqlFailure("config", "the address of the server has no host; without one, libpq uses a socket")
    return servers
