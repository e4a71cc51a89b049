"""Making a connection: to one server at a time, at an address that was checked, as whom the credential says.

Law: nothing is said before the connection is encrypted where `tls://` asks for it, and no server is gone to that the
task did not name.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from nats.aio.client import Client
from nats.errors import Error, NoServersError, SecureConnWantedError

from arclog.drivers.http.guard import Guard
from arclog.model.outcome import error
from arclog.tools.nats.failure import Failure, no_connection, refused, refused_greeting
from arclog.tools.nats.link import Link, too_old
from arclog.tools.nats.where import Login, Server, Target

#: whose certificates are trusted
Trust = Callable[[], ssl.SSLContext]

#: A server that says nothing for twice as long is gone.
_PING_S = 20
#: Older servers know neither headers nor "nobody listens", which everything here is built on.
_OLDEST = (2, 2, 0)
#: After a failed TLS handshake the client's close never ends, though its socket is closed by then.
_HANG_UP_S = 0.1


class _OneServer(Client):
    """The client for one server: it never goes to others that the server tells of, nor says anything in the clear."""

    def __init__(self, *, encrypted: bool, trust: Trust) -> None:
        super().__init__()
        self._encrypted = encrypted
        self._trust = trust

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Made when it is needed: to read all authorities takes longer than to connect."""
        return self._trust()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        info.pop("connect_urls", None)
        if initial_connection and self._encrypted and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise SecureConnWantedError
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)


async def connected(
    target: Target, guard: Guard, trust: Trust, connect_s: float, answer_s: float
) -> Link:  # fmt: skip
    """A connection to the first of the target's servers that takes one."""
    failure = refused("there is no server to connect to")
    for server in target.servers:
        try:
            addresses = await guard.addresses(server.host, server.port)
        except Failure as problem:
            failure = _unnamed(problem, server)
            continue
        for address in addresses:
            try:
                return await _connected(server, address, target, trust, connect_s, answer_s)
            except Failure as problem:
                failure = problem
                if problem.problem.kind in ("auth", "config"):
                    raise  # all servers of a cluster know the same logins
    raise failure


async def _connected(
    server: Server, address: str, target: Target, trust: Trust, connect_s: float, answer_s: float
) -> Link:
    client = _OneServer(encrypted=server.encrypted, trust=trust)
    link: Link | None = None
    last: list[Exception] = []

    async def told(problem: Exception) -> None:
        last[:] = [problem]
        if link is not None:
            link.trouble(problem)

    async def closed() -> None:
        if link is not None:
            link.ended()

    host = f"[{address}]" if ":" in address else address
    try:
        async with asyncio.timeout(connect_s):
            await client.connect(
                servers=[f"nats://{host}:{server.port}"],
                error_cb=told,
                closed_cb=closed,
                name="arclog",
                allow_reconnect=False,
                # Each server is tried so often and once more; 0 would mean forever.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=round(connect_s) + 1,
                ping_interval=_PING_S,
                # Each command is written before the next begins; else the client lets its pings overtake messages.
                pending_size=1,
                tls_hostname=server.host,
                inbox_prefix=target.inbox_prefix or "_INBOX",
                **_login(target.login),
            )
        link = Link(client, server, answer_s)
        if not link.usable:
            raise no_connection(None, server.shown, connect_s)
        if link.version < _OLDEST:
            raise too_old(link, "NATS with headers", _OLDEST)
        return link
    except BaseException as problem:
        with suppress(Exception):
            async with asyncio.timeout(_HANG_UP_S):
                await client.close()
        if isinstance(problem, SecureConnWantedError):
            message = f"{server.shown}: the server does not encrypt (tls:// was asked for)"
            raise Failure(error("connection", message, code="TLS", retryable=False)) from None
        if isinstance(problem, NoServersError):
            raise no_connection(last[0] if last else None, server.shown, connect_s) from None
        if isinstance(problem, OSError):  # a TimeoutError is one
            raise no_connection(problem, server.shown, connect_s) from None
        if isinstance(problem, Error):
            raise refused_greeting(str(problem), server.shown, auth=target.login != Login()) from None
        raise


def _login(login: Login) -> dict[str, Any]:
    """The client's words for a login; a seed never leaves this process, it signs what the server asks to be signed."""
    if login.seed:
        import nkeys  # type: ignore[import-untyped]  # it has no types

        try:
            pair = nkeys.from_seed(bytearray(login.seed.encode()))
            pair.public_key.decode()
        except Exception:  # noqa: BLE001 - each sort of bad seed raises something of its own
            raise refused("the seed of this auth is not an NKEY of a user (SU…)") from None
        if not login.jwt:
            return {"nkeys_seed_str": login.seed, **({"token": login.token} if login.token else {})}
        return {
            "user_jwt_cb": lambda: bytearray(login.jwt.encode()),
            "signature_cb": lambda nonce: base64.b64encode(pair.sign(nonce.encode())),
        }
    if login.user:
        return {"user": login.user, "password": login.password}
    return {"token": login.token} if login.token else {}


def _unnamed(problem: Failure, server: Server) -> Failure:
    """The guard names a host; one that came out of a credential is not to be shown."""
    if server.host in server.shown:
        return problem
    told = problem.problem
    return Failure(error(told.kind, f"{server.shown} cannot be reached: {told.code}", code=told.code))
