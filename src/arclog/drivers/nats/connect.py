"""One connection to one NATS server.

Invariants: with `tls://`, nothing is sent before the connection is encrypted. Servers that were not named are never
contacted. A lost connection is not restored: its owner opens a new one and sets up its subscriptions again, since the
server may have lost its state.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Any

import nats.errors
from msgspec import Struct
from nats.aio.client import Client

from arclog.drivers.nats.address import AddressError, Login, Server

#: returns the trusted certificates
Trust = Callable[[], ssl.SSLContext]
Version = tuple[int, int, int]

#: Exceptions that the client raises if the server fails or is unreachable.
FAULTS = (nats.errors.Error, OSError, TimeoutError)

#: Time limit for closing a connection.
_CLOSE_S = 1.0
#: The same after a failed attempt: after a failed TLS handshake the client's close never returns, although the socket
#: is closed.
_GIVE_UP_S = 0.1
#: Number of attempts if the server closes the connection during the login.
_TRIES = 3
_SHOWN_CHARS = 200
#: Texts with which servers reject a login.
_LOGIN = re.compile(r"authorization|authentication|credentials|nkey|jwt|user.*expired|revoked", re.IGNORECASE)
_FULL = re.compile(r"maximum (connections|account)", re.IGNORECASE)
_TLS_WANTED = re.compile(r"secure connection", re.IGNORECASE)
_MAX_GREETING_BYTES = 64 * 1024


class Cause(Enum):
    """The reason why a connection failed."""

    UNREACHABLE = auto()
    #: no response in time
    LATE = auto()
    #: the server does not encrypt, but the address is `tls://`
    UNENCRYPTED = auto()
    CERTIFICATE = auto()
    TLS = auto()
    LOGIN = auto()
    #: the server has reached its maximum of connections
    FULL = auto()
    VERSION = auto()
    #: another error from the server
    REFUSED = auto()


class NotConnected(Exception):
    """The connection failed. The text is the server's or the system's reason and contains no secret."""

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class _HungUp(NotConnected):
    """The server closed the connection after its greeting, during the setup.

    Servers do this after they reject a login, and their message may be lost if the client is sending at the same time.
    The connection is tried again to learn the reason.
    """

    def __init__(self) -> None:
        super().__init__(Cause.UNREACHABLE, "the server ended the connection while it was set up")


class Connection(Client):
    """A nats-py client for one server. It does not reconnect, and signals the end of the connection."""

    def __init__(self, *, encrypted: bool, trust: Trust) -> None:
        super().__init__()
        self._encrypted = encrypted
        self._trust = trust
        #: set when the connection is lost or closed
        self.over = asyncio.Event()
        #: called with errors that the server sends outside of any response
        self.on_error: Callable[[Exception], None] = lambda _: None
        self.on_over: Callable[[], None] = lambda: None
        self.reported: Exception | None = None
        #: the exception of `trust`, if it failed
        self.trust_error: Exception | None = None

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Created on first use: loading all certificate authorities takes longer than connecting."""
        try:
            return self._trust()
        except Exception as problem:
            self.trust_error = problem
            raise

    @property
    def version_text(self) -> str:
        return str(self._server_info.get("version", ""))

    @property
    def version(self) -> Version:
        """The server's version, or zeros if it is unknown."""
        numbers = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", self.version_text)
        return (int(numbers[1]), int(numbers[2]), int(numbers[3] or 0)) if numbers else (0, 0, 0)

    async def close(self, within_s: float | None = None) -> None:
        """Close the connection in any state, without leaving a task or socket open."""
        within_s = _CLOSE_S if within_s is None else within_s
        listening = [sub._wait_for_msgs_task for sub in self._subs.values()]  # noqa: SLF001 - nobody else ends them
        with suppress(Exception):
            async with asyncio.timeout(within_s):
                await super().close()
        # A failed close leaves the socket open.
        if self._transport is not None:
            with suppress(Exception):
                self._transport.close()  # type: ignore[no-untyped-call]  # not typed there
        # Tasks that are left would be reported by Python when they are garbage-collected.
        own = (self._reading_task, self._ping_interval_task, self._flusher_task, self._reconnection_task, *listening)
        unfinished = [
            task for task in own if task is not None and not task.done() and task is not asyncio.current_task()
        ]
        for task in unfinished:
            task.cancel()
        if unfinished:
            await asyncio.wait(unfinished, timeout=within_s)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        info.pop("connect_urls", None)
        # The client encrypts only if the server asks for it, and would otherwise send its password in plain text.
        if self._encrypted and initial_connection and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise NotConnected(Cause.UNENCRYPTED, "the server does not encrypt")
            info["tls_required"] = True
        await super()._process_info(info, initial_connection)

    async def _error_reported(self, problem: Exception) -> None:
        self.reported = problem
        self.on_error(problem)

    async def _ended(self) -> None:
        self.over.set()
        self.on_over()


async def connect(
    server: Server,
    login: Login,
    *,
    trust: Trust,
    timeout_s: float,
    oldest: Version,
    address: str = "",
    **options: Any,
) -> Connection:
    """Connect to a server, either at a checked `address` of its host or at its host name.

    `oldest` is the minimum version. Raises NotConnected, AddressError if the login is invalid, ImportError if a package
    for it is missing, and the exceptions of `trust`.
    """
    host = address or server.host
    options = {
        "servers": [f"nats://{f'[{host}]' if ':' in host else host}:{server.port}"],
        "connect_timeout": round(timeout_s) + 1,
        "tls_hostname": server.host,
        **login.options(),
        **options,
    }
    try:
        async with asyncio.timeout(timeout_s):
            for _ in range(_TRIES - 1):
                with suppress(_HungUp):
                    return await _attempt(server, trust, oldest, options)
            return await _attempt(server, trust, oldest, options)
    except TimeoutError:
        raise NotConnected(Cause.LATE, f"no connection within {timeout_s:g} s") from None


async def _attempt(server: Server, trust: Trust, oldest: Version, options: dict[str, Any]) -> Connection:
    client = Connection(encrypted=server.encrypted, trust=trust)
    try:
        await client.connect(
            error_cb=client._error_reported,  # noqa: SLF001 - made for it
            closed_cb=client._ended,  # noqa: SLF001 - made for it
            name="arclog",
            allow_reconnect=False,
            # The number of retries for each server; 0 would mean no limit.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            **options,
        )
        if not client.is_connected:
            raise _HungUp
        if client.version < oldest:
            raise NotConnected(Cause.VERSION, client.version_text)
    except Exception as problem:  # noqa: BLE001 - nats-py lets through whatever a socket raises
        await client.close(_GIVE_UP_S)
        if client.trust_error is not None:
            raise client.trust_error from None
        cause = client.reported or problem
        if isinstance(cause, ConnectionError) and client.version_text:
            raise _HungUp from None
        if isinstance(cause, TimeoutError):
            raise TimeoutError from None
        raise _explained(cause, problem) from None
    except BaseException:
        await client.close(_GIVE_UP_S)
        raise
    return client


def text_of(problem: BaseException) -> str:
    """Return an error's text, or the name of its type if it has none."""
    return (str(problem) or type(problem).__name__).removeprefix("nats: ").strip().strip("'\"")[:_SHOWN_CHARS]


def _explained(cause: Exception, raised: Exception) -> Exception:
    """Translate an error. `cause` is the error that the client reported while connecting, or else the one that it
    raised.
    """
    if isinstance(raised, NotConnected | AddressError | ImportError):
        return raised
    if isinstance(cause, NotConnected):
        return cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        return NotConnected(Cause.CERTIFICATE, cause.verify_message or str(cause))
    if isinstance(cause, ssl.SSLError):
        return NotConnected(Cause.TLS, cause.reason or str(cause))
    if isinstance(cause, OSError):
        reason = os.strerror(cause.errno) if cause.errno and cause.errno > 0 else cause.strerror or text_of(cause)
        return NotConnected(Cause.UNREACHABLE, reason)
    text = text_of(cause)
    if isinstance(cause, nats.errors.NoServersError) or not isinstance(cause, nats.errors.Error):
        return NotConnected(Cause.UNREACHABLE, "the server cannot be reached, or is not a NATS server")
    for pattern, why in ((_LOGIN, Cause.LOGIN), (_FULL, Cause.FULL), (_TLS_WANTED, Cause.TLS)):
        if pattern.search(text):
            return NotConnected(why, text)
    return NotConnected(Cause.REFUSED, text)


class Greeting(Struct, frozen=True):
    """The information that a server sends before any login."""

    version: str
    jetstream: bool


async def greeting(server: Server) -> Greeting:
    """Return the greeting of a server. Raises OSError if it is unreachable, ValueError if it is not a NATS server."""
    reader, writer = await asyncio.open_connection(server.host, server.port, limit=_MAX_GREETING_BYTES)
    try:
        line = await reader.readline()
    finally:
        writer.close()
    word, _, body = line.partition(b" ")
    if word != b"INFO":
        raise ValueError("it does not start with INFO")
    info = json.loads(body)
    return Greeting(str(info.get("version", "?")), bool(info.get("jetstream")))
