"""Runs nats tasks. One attempt is one operation on a shared connection."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct

from arclog.drivers.http.guard import Guard
from arclog.drivers.nats.address import SCHEMES, AddressError, Login, Server, creds_login, servers_of
from arclog.drivers.nats.connect import Cause, NotConnected, connect
from arclog.model.config.settings import Settings
from arclog.model.errors import ResultUnavailable
from arclog.model.outcome import Outcome, error, failed
from arclog.ports.secrets import Credential
from arclog.ports.tool import TaskContext
from arclog.tools.nats import kv
from arclog.tools.nats.connection import SharedConnection, version_failure
from arclog.tools.nats.failure import Failure, refused
from arclog.tools.nats.kind import NatsConfig, check
from arclog.tools.nats.payload import check_subject
from arclog.tools.nats.publish import publish, request
from arclog.tools.nats.pull import acknowledge, fetch

# ── target ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# The target of a task: its `servers`, and the login from its `auth`.
#
# Invariant: an address from a credential is never shown, not even in part.

_IS_CREDS = "-----BEGIN NATS USER JWT-----"
_IS_SEED = re.compile(r"SU[A-Z2-7]{56}")
#: field of a login → the names that it may have in a credential
_NAMES = {
    "servers": ("servers", "server", "url"),
    "creds": ("creds", "credentials"),
    "jwt": ("jwt",),
    "seed": ("seed", "nkey", "nkey_seed"),
    "user": ("username", "user"),
    "password": ("password", "pass"),
    "token": ("token", "access_token"),
}


class Target(Struct, frozen=True):
    """The key of a connection: tasks with the same target share one."""

    servers: tuple[Server, ...]
    #: shown in errors instead of a server from a credential
    hidden: str
    login: Login
    inbox_prefix: str
    #: executions of different scopes never share a connection
    scope: str

    def shown(self, server: Server) -> str:
        """Return a server's name for errors."""
        return self.hidden or str(server)


def target_of(config: NatsConfig, auth: Credential | None, scope: str) -> Target:
    fields = {} if auth is None else _credential_fields(auth)
    login = _login(fields, auth)
    written = config.servers if isinstance(config.servers, list) else config.servers.split(",")
    servers = [server for text in written if text.strip() for server in _servers_of(text.strip())]
    hidden = ""
    if auth is not None and fields.get("servers"):
        place = f"the server of auth {auth.name!r}"
        try:
            others, other_login = servers_of(fields["servers"])
        except AddressError as problem:
            raise refused(f"{place}: {problem}") from None
        hidden = "" if servers else place
        servers = servers or list(others)
        login = other_login if login == Login() else login
    elif auth is not None and login == Login():
        raise refused(
            f"auth {auth.name!r} ({auth.kind}) has no login: it must have creds (the text of a .creds file), seed "
            "(an NKEY), jwt + seed, username + password, token, or a server's url"
        )
    if not servers:
        raise refused("a nats task needs a server: set `servers: nats://host:4222`, or an `auth` that has `servers`")
    prefix = check_subject(config.inbox_prefix, "inbox_prefix") if config.inbox_prefix else ""
    return Target(tuple(servers), hidden, login, prefix, scope)


def _credential_fields(auth: Credential) -> dict[str, str]:
    """Return the credential's fields by our names."""
    fields: Mapping[str, Any] = auth.fields
    value = fields.get("value")
    if isinstance(value, str) and auth.kind not in ("bearer", "oauth2"):
        try:
            parsed = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            parsed = None
        fields = parsed if isinstance(parsed, dict) else _of_text(value)
    given_fields: dict[str, str] = {}
    for ours, names in _NAMES.items():
        for name in names:
            text = fields.get(name)
            if isinstance(text, list):
                text = ",".join(map(str, text))
            if isinstance(text, str) and text:
                given_fields.setdefault(ours, text)
    return given_fields


def _of_text(value: str) -> dict[str, str]:
    """Return the field that a single text stands for."""
    text = value.strip()
    if _IS_CREDS in text:
        return {"creds": text}
    if _IS_SEED.fullmatch(text):
        return {"seed": text}
    if text.startswith(tuple(f"{scheme}://" for scheme in SCHEMES)):
        return {"servers": text}
    return {"token": text}


def _login(fields: Mapping[str, str], auth: Credential | None) -> Login:
    if "creds" in fields:
        try:
            return creds_login(fields["creds"])
        except AddressError as problem:
            raise refused(f"auth {'' if auth is None else auth.name!r}: {problem}") from None
    if "seed" in fields:
        return Login(jwt=fields.get("jwt", ""), seed=fields["seed"].strip(), token=fields.get("token", ""))
    if "user" in fields and "password" in fields:
        return Login(user=fields["user"], password=fields["password"])
    return Login(token=fields.get("token", ""))


def _servers_of(text: str) -> tuple[Server, ...]:
    """Return the servers that a task names."""
    try:
        servers, login = servers_of(text)
    except AddressError as problem:
        raise refused(f"servers: {problem}") from None
    if login != Login() or "@" in text:
        raise refused("servers: an address must not contain credentials; use `auth`")
    return servers


# ── connections ───────────────────────────────────────────────────────────────────────────────────────────────────────
# The connections of one worker, kept for reuse.
#
# Invariants: tasks with the same servers, login and scope share one connection; an unused one is closed after a while.
# Each goes to an address that the guard permits.

SETTING = "nats.allow_networks"
#: Maximum number of unused connections.
_KEPT = 64
#: Older servers lack headers and the "no responders" status, which this kind depends on.
_OLDEST = (2, 2, 0)
#: Interval between pings. After two unanswered pings the server is considered gone.
_PING_S = 20
#: Interval between repeated cancellations, since the client may swallow one.
_AGAIN_S = 0.05


class _Place:
    """The slot of one target's connection."""

    def __init__(self) -> None:
        self.connection: SharedConnection | None = None
        #: the connection being opened; concurrent tasks share it, and its failure
        self.opening: asyncio.Task[SharedConnection] | None = None
        self.users = 0
        self.expiry: asyncio.TimerHandle | None = None


class Connections:
    def __init__(self, settings: Settings) -> None:
        self._guard = Guard(settings.text(SETTING), setting=SETTING, caller="nats tasks")
        self._ca_file = settings.text("nats.ca_file")
        self._connect_s = settings.number("nats.connect_timeout_s")
        self._answer_s = settings.number("nats.request_timeout_s")
        self._idle_s = settings.number("nats.idle_s")
        self._trust: ssl.SSLContext | None = None
        #: least recently used first
        self._places: dict[Target, _Place] = {}
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def to(self, target: Target) -> AsyncIterator[SharedConnection]:
        """Return the connection to a target, for the duration of one task."""
        place = self._places.pop(target, None) or _Place()
        self._places[target] = place
        place.users += 1
        if place.expiry is not None:
            place.expiry.cancel()
            place.expiry = None
        try:
            yield await self._connection(target, place)
        finally:
            place.users -= 1
            if not place.users:
                self._leave(target, place)

    async def close(self) -> None:
        places, self._places = list(self._places.values()), {}
        for place in places:
            self._shut(place)
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)

    async def _connection(self, target: Target, place: _Place) -> SharedConnection:
        connection = place.connection
        if connection is not None and connection.usable and not connection.doubted:
            return connection
        if place.opening is None:
            place.opening = asyncio.ensure_future(self._open(target, place))
            place.opening.add_done_callback(lambda opening: _opened(place, opening))
        return await asyncio.shield(place.opening)

    async def _open(self, target: Target, place: _Place) -> SharedConnection:
        connection = place.connection
        if connection is not None and connection.usable and await connection.proved(self._connect_s):
            return connection
        self._close(place)
        place.connection = await self._connected(target)
        return place.connection

    async def _connected(self, target: Target) -> SharedConnection:
        """Connect to the first of the target's servers that accepts a connection."""
        failure = refused("there is no server to connect to")
        for server in target.servers:
            try:
                addresses = await self._guard.addresses(server.host, server.port)
            except Failure as problem:
                failure = _unnamed(problem, target)
                continue
            for address in addresses:
                try:
                    return await self._connected_at(server, address, target)
                except Failure as problem:
                    failure = problem
                    if problem.problem.kind in ("auth", "config"):
                        raise  # all servers of a cluster have the same logins
        raise failure

    async def _connected_at(self, server: Server, address: str, target: Target) -> SharedConnection:
        where = target.shown(server)
        try:
            client = await connect(
                server,
                target.login,
                trust=self._trusted,
                timeout_s=self._connect_s,
                oldest=_OLDEST,
                address=address,
                ping_interval=_PING_S,
                # Write each command before the next one; otherwise the client lets its pings overtake messages.
                pending_size=1,
                inbox_prefix=target.inbox_prefix or "_INBOX",
            )
        except NotConnected as problem:
            raise _not_connected(problem, where, auth=target.login != Login()) from None
        except AddressError as problem:
            raise refused(f"auth: {problem}") from None
        return SharedConnection(client, where, self._answer_s)

    def _leave(self, target: Target, place: _Place) -> None:
        if self._places.get(target) is not place or place.connection is None or not self._idle_s:
            self._forget(target, place)
            return
        place.expiry = asyncio.get_running_loop().call_later(self._idle_s, self._forget, target, place)
        unused = [(connection, at) for connection, at in self._places.items() if not at.users]
        for connection, at in unused[: max(0, len(unused) - _KEPT)]:
            self._forget(connection, at)

    def _forget(self, target: Target, place: _Place) -> None:
        if self._places.get(target) is place:
            del self._places[target]
        self._shut(place)

    def _shut(self, place: _Place) -> None:
        if place.expiry is not None:
            place.expiry.cancel()
            place.expiry = None
        if place.opening is not None:
            self._later(self._abandon(place, place.opening))
        self._close(place)

    async def _abandon(self, place: _Place, opening: asyncio.Task[SharedConnection]) -> None:
        """Cancel the opening of a connection. The client may swallow one cancellation."""
        while not opening.done():
            opening.cancel()
            await asyncio.wait({opening}, timeout=_AGAIN_S)
        self._close(place)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        closing = asyncio.ensure_future(work)
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _close(self, place: _Place) -> None:
        connection, place.connection = place.connection, None
        if connection is not None:
            self._later(connection.close())

    def _trusted(self) -> ssl.SSLContext:
        if self._trust is None:
            trust = ssl.create_default_context()
            if self._ca_file:
                try:
                    trust.load_verify_locations(cafile=self._ca_file)
                except (OSError, ssl.SSLError) as problem:
                    raise refused(f"nats.ca_file: {self._ca_file} cannot be used: {problem}") from None
            self._trust = trust
        return self._trust


def _opened(place: _Place, opening: asyncio.Task[SharedConnection]) -> None:
    place.opening = None
    if not opening.cancelled():
        opening.exception()  # marks the exception as retrieved; the waiting tasks have it


def _not_connected(problem: NotConnected, where: str, *, auth: bool) -> Failure:
    """Return the error for a failed connection."""
    match problem.cause:
        case Cause.CERTIFICATE:
            message = (
                f"{where}: the server's certificate is not trusted: {problem} (to trust its authority, name it in "
                "nats.ca_file)"
            )
            return Failure(error("connection", message, code="CERTIFICATE", retryable=False))
        case Cause.UNENCRYPTED:
            message = f"{where}: the server does not encrypt (tls:// was requested)"
            return Failure(error("connection", message, code="TLS", retryable=False))
        case Cause.TLS:
            return Failure(error("connection", f"{where}: no TLS connection: {problem}", code="TLS"))
        case Cause.LATE:
            message = f"{where}: {problem} (setting nats.connect_timeout_s)"
            return Failure(error("timeout", message, code="CONNECT"))
        case Cause.LOGIN:
            hint = "" if auth else "; the task has no `auth`"
            return Failure(error("auth", f"{where} refuses the login: {problem}{hint}", code="LOGIN"))
        case Cause.FULL:
            return Failure(error("connection", f"{where} accepts no more connections: {problem}", code="TOO_MANY"))
        case Cause.VERSION:
            return version_failure(where, "NATS with headers", str(problem) or "of an unknown version", _OLDEST)
        case Cause.REFUSED:
            return Failure(error("connection", f"{where}: the server says: {problem}", code="CONNECTION"))
        case Cause.UNREACHABLE:
            return Failure(error("connection", f"{where}: {problem}", code="CONNECTION"))


def _unnamed(failure: Failure, target: Target) -> Failure:
    """Return the guard's error without the host, which must not be shown if it came from a credential."""
    if not target.hidden:
        return failure
    problem = failure.problem
    return Failure(error(problem.kind, f"{target.hidden} cannot be reached: {problem.code}", code=problem.code))


# ── tool ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class NatsTool:
    """Runs nats tasks."""

    Config: type[Struct] = NatsConfig

    def __init__(self, settings: Settings) -> None:
        self._connections = Connections(settings)
        self._max_messages = settings.integer("nats.max_messages")
        self._max_bytes = settings.integer("nats.max_bytes")
        self._max_entries = settings.integer("nats.max_entries")

    async def run(self, config: NatsConfig, context: TaskContext) -> Outcome:
        try:
            check(config)
            target = target_of(config, context.auth, context.scope)
            async with self._connections.to(target) as connection:
                return await self._do(connection, config, context)
        except Failure as failure:
            return failed(failure.problem)
        except ResultUnavailable as lost:
            return failed(error("result", str(lost)))

    async def execution_ended(self, execution_id: str) -> None:
        """Connections are shared by all executions of their scope."""

    async def close(self) -> None:
        await self._connections.close()

    async def _do(self, connection: SharedConnection, config: NatsConfig, context: TaskContext) -> Outcome:
        match config.op:
            case "publish":
                return await publish(connection, config, context)
            case "request":
                return await request(connection, config, context)
            case "fetch":
                return await fetch(connection, config, context, self._max_messages, self._max_bytes)
            case "ack":
                return await acknowledge(connection, config, context)
            case "kv_get":
                return await kv.get(connection, config, context)
            case "kv_keys":
                return await kv.keys(connection, config, context, self._max_entries)
            case "kv_history":
                return await kv.history(connection, config, context, self._max_entries)
            case _:
                return await kv.write(connection, config, context)
