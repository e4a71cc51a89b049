"""One connection to one NATS server.

Law: nothing is sent before the connection is encrypted where `tls://` asks for it, and no server is connected to that was
not named. A connection that is lost is not mended: its owner makes a new one, and sets up there all that it needs, since
the server may have forgotten everything.
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

#: whose certificates are trusted
Trust = Callable[[], ssl.SSLContext]
Version = tuple[int, int, int]

#: What the client's calls raise when the server fails or is away.
FAULTS = (nats.errors.Error, OSError, TimeoutError)

#: Time for a connection to say goodbye.
_CLOSE_S = 1.0
#: The same after a failed attempt: after a failed TLS handshake the client's close never ends, though its socket is closed.
_GIVE_UP_S = 0.1
#: How often a server is asked that hangs up in the middle of a login.
_TRIES = 3
_SHOWN_CHARS = 200
#: What servers answer to a login that they do not accept.
_LOGIN = re.compile(r"authorization|authentication|credentials|nkey|jwt|user.*expired|revoked", re.IGNORECASE)
_FULL = re.compile(r"maximum (connections|account)", re.IGNORECASE)
_TLS_WANTED = re.compile(r"secure connection", re.IGNORECASE)
_MAX_GREETING_BYTES = 64 * 1024


class Cause(Enum):
    """Why there is no connection."""

    UNREACHABLE = auto()
    #: no answer in time
    LATE = auto()
    #: the server does not encrypt, and `tls://` was asked for
    UNENCRYPTED = auto()
    CERTIFICATE = auto()
    TLS = auto()
    LOGIN = auto()
    #: the server takes no more connections
    FULL = auto()
    VERSION = auto()
    #: the server said something else
    REFUSED = auto()


class NotConnected(Exception):
    """No connection; the text says why in the server's or the system's words, and has no secret."""

    def __init__(self, cause: Cause, text: str) -> None:
        super().__init__(text)
        self.cause = cause


class _HungUp(NotConnected):
    """The server has greeted, and ended the connection before it was set up.

    So it does after it has refused a login: when its words and the client's next ones cross, the words are lost. It is asked
    again, for the sake of the reason.
    """

    def __init__(self) -> None:
        super().__init__(Cause.UNREACHABLE, "the server ended the connection while it was set up")


class Connection(Client):
    """nats-py's client for one server: it does not reconnect, and says when it is over."""

    def __init__(self, *, encrypted: bool, trust: Trust) -> None:
        super().__init__()
        self._encrypted = encrypted
        self._trust = trust
        #: set when the connection is lost or closed
        self.over = asyncio.Event()
        #: called with what the server says outside of any answer
        self.on_error: Callable[[Exception], None] = lambda _: None
        self.on_over: Callable[[], None] = lambda: None
        self.reported: Exception | None = None
        #: why it is not known whom to trust
        self.distrust: Exception | None = None

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Made when it is needed: to read all authorities takes longer than to connect."""
        try:
            return self._trust()
        except Exception as problem:
            self.distrust = problem
            raise

    @property
    def version_text(self) -> str:
        return str(self._server_info.get("version", ""))

    @property
    def version(self) -> Version:
        """The server's; zeros when it is unknown."""
        numbers = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", self.version_text)
        return (int(numbers[1]), int(numbers[2]), int(numbers[3] or 0)) if numbers else (0, 0, 0)

    async def close(self, within_s: float | None = None) -> None:
        """Close it, whatever state it is in, and leave no task or socket behind."""
        within_s = _CLOSE_S if within_s is None else within_s
        listening = [sub._wait_for_msgs_task for sub in self._subs.values()]  # noqa: SLF001 - nobody else ends them
        with suppress(Exception):
            async with asyncio.timeout(within_s):
                await super().close()
        # A close that failed on the way has left the socket open.
        if self._transport is not None:
            with suppress(Exception):
                self._transport.close()  # type: ignore[no-untyped-call]  # not typed there
        # Tasks, too, which nobody would know of any more: Python reports each, wherever it finds it.
        own = (self._reading_task, self._ping_interval_task, self._flusher_task, self._reconnection_task, *listening)
        left = [task for task in own if task is not None and not task.done() and task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=within_s)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        info.pop("connect_urls", None)
        # The client encrypts only where the server asks for it, and would send its password in clear else.
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
    """Connect to a server, at an `address` of its host that was checked before, or wherever its name leads.

    `oldest`: the first version that will do. Raises NotConnected, AddressError for a login that cannot be used,
    ImportError where a package for it is missing, and what `trust` raises.
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
            # Each server is tried so often and once more; 0 would mean for ever.
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
        if client.distrust is not None:
            raise client.distrust from None
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
    """An error's text; some have none."""
    return (str(problem) or type(problem).__name__).removeprefix("nats: ").strip().strip("'\"")[:_SHOWN_CHARS]


def _explained(cause: Exception, raised: Exception) -> Exception:
    """`cause` is what the client reported while it connected, or else what it raised."""
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
    """What a server says of itself before anybody logs in."""

    version: str
    jetstream: bool


async def greeting(server: Server) -> Greeting:
    """Raises OSError when the server cannot be reached, ValueError when something else answers."""
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
