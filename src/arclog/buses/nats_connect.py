"""One connection to NATS, made and checked. It ends when it is lost: whoever wants another makes a new one, and sets up there
all that it needs, since the server may have forgotten everything.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
from contextlib import suppress
from random import sample
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js import JetStreamContext

from arclog.buses.nats_address import Address
from arclog.model.config.extras import missing
from arclog.model.errors import BusUnavailable, SettingsError

log = logging.getLogger("arclog.bus")

#: Durable consumers that are removed when they are not used (`inactive_threshold`) are the newest thing that is needed.
OLDEST = (2, 9)
#: A connection is taken for dead when nothing came back for so many pings, so far apart.
_PING_S = 10
_PINGS = 2
#: Time for a connection to say goodbye.
_CLOSE_S = 1.0
#: Things that are not allowed, of which the log tells: each once a connection.
_FORBIDDEN = 20
#: What NATS says to a caller whom it does not let in.
_NOT_LET_IN = re.compile(r"authorization|authentication|user.*expired|revoked|secure connection", re.IGNORECASE)

FAULTS = (nats.errors.Error, OSError, TimeoutError)


class Connection(Client):
    """nats-py's client, once connected for good or bad: it does not reconnect, and says when it is over."""

    def __init__(self, *, encrypted: bool) -> None:
        super().__init__()
        self._encrypted = encrypted
        self.over = asyncio.Event()

    async def close(self) -> None:
        """Whatever state it is in."""
        listening = [each._wait_for_msgs_task for each in self._subs.values()]  # noqa: SLF001 - nobody else ends them
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_S):
                await super().close()
        # A close that failed on the way has left the socket open.
        if self._transport is not None:
            with suppress(Exception):
                self._transport.close()  # type: ignore[no-untyped-call]  # not typed there
        # Tasks, too, which nobody would know of any more: Python tells of each, wherever it finds it.
        own = (self._reading_task, self._ping_interval_task, self._flusher_task, self._reconnection_task, *listening)
        left = [each for each in own if each is not None and not each.done() and each is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CLOSE_S)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        # The client encrypts only where the server asks for it, and would send its password in clear else.
        if self._encrypted and initial_connection and not info.get("tls_required"):
            if not info.get("tls_available"):
                raise _Unencrypted
            self._server_info["tls_required"] = True
        await super()._process_info(info, initial_connection)


class _Unencrypted(nats.errors.Error):
    """The server does not speak TLS."""


async def connect(address: Address, timeout_s: float) -> tuple[Connection, JetStreamContext]:
    """Connect to one of the servers. Raises BusUnavailable while none is there, and SettingsError where trying again would
    lead to the same.
    """
    problem: Exception = BusUnavailable("no server is named")
    for server in sample(address.servers, len(address.servers)):
        try:
            return await _connect_to(server, address, timeout_s)
        except (BusUnavailable, SettingsError) as found:
            # Of several servers one may be set up wrongly; that is the problem only if no other works.
            problem = found if not isinstance(problem, SettingsError) else problem
    raise problem


async def _connect_to(server: str, address: Address, timeout_s: float) -> tuple[Connection, JetStreamContext]:
    client = Connection(encrypted=address.encrypted)

    cause: Exception | None = None
    forbidden: set[str] = set()

    async def over() -> None:
        client.over.set()

    async def error(problem: Exception) -> None:
        nonlocal cause
        cause = problem
        text = text_of(problem).removeprefix("nats: ")
        # What happens beside any call; what matters of it is known by its consequences, but for this.
        if "permissions violation" not in text.lower():
            log.debug("NATS: %s", text)
        elif text not in forbidden and len(forbidden) < _FORBIDDEN:
            forbidden.add(text)
            log.error("NATS: %s; allow it to the user of ARCLOG_BUS_URL", text)

    try:
        async with asyncio.timeout(timeout_s * 2):
            await client.connect(
                server,
                error_cb=error,
                closed_cb=over,
                name="arclog",
                allow_reconnect=False,
                # The first failure is the last; 0 would mean forever.
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=max(1, round(timeout_s)),
                ping_interval=_PING_S,
                max_outstanding_pings=_PINGS,
                no_echo=True,
                **address.options,
            )
    except Exception as problem:  # noqa: BLE001 - nats-py lets through whatever a socket or a file raises
        await client.close()
        raise _explained(server, cause or problem) from None
    except BaseException:
        await client.close()
        raise
    try:
        stream = client.jetstream(timeout=timeout_s)
        _check_version(server, client)
        await _check_jetstream(server, stream)
    except BaseException:
        await client.close()
        raise
    return client, stream


def text_of(problem: BaseException) -> str:
    """Some say nothing of themselves."""
    return str(problem) or type(problem).__name__


def _explained(server: str, problem: Exception) -> Exception:
    text = text_of(problem)
    if isinstance(problem, _Unencrypted):
        return SettingsError(f"ARCLOG_BUS_URL: {server} does not use TLS; write nats:// to connect without it")
    if isinstance(problem, ssl.SSLCertVerificationError):
        return SettingsError(
            f"ARCLOG_BUS_URL: the certificate of {server} is not trusted: {problem.verify_message}; name its authority in "
            "ARCLOG_BUS_CA_FILE"
        )
    if isinstance(problem, ssl.SSLError):
        return SettingsError(f"ARCLOG_BUS_URL: no TLS with {server}: {text}; see ARCLOG_BUS_CERT_FILE")
    if isinstance(problem, nats.errors.Error) and _NOT_LET_IN.search(text):
        return SettingsError(
            f"ARCLOG_BUS_URL: {server} does not let us in ({text.removeprefix('nats: ')}); see the credentials in the "
            "address, ARCLOG_BUS_CREDS_FILE and ARCLOG_BUS_NKEY_FILE"
        )
    if isinstance(problem, ImportError):
        return missing(problem, "ARCLOG_BUS_URL", "nats") or problem
    return BusUnavailable(f"NATS cannot be reached at {server}: {text}")


def _check_version(server: str, client: Connection) -> None:
    said = str(client._server_info.get("version", ""))  # noqa: SLF001 - there is no other way to an unparsed version
    found = re.match(r"v?(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < OLDEST:
        least = ".".join(map(str, OLDEST))
        raise SettingsError(
            f"ARCLOG_BUS_URL: {server} is NATS {said or 'of an unknown version'}; {least} or newer is needed, for "
            "consumers that are removed when they are not used"
        )


async def _check_jetstream(server: str, stream: JetStreamContext) -> None:
    missing = (
        f"ARCLOG_BUS_URL: {server} has no JetStream for us; start nats-server with -js (jetstream {{}} in its "
        "configuration) and enable it for the account"
    )
    try:
        await stream.account_info()
    except nats.js.errors.APIError as problem:
        # None: nobody answers to the question; 10039: not enabled for the account; 10076: not enabled at all. Else (no
        # leader yet …) it may come.
        if problem.err_code in (None, 10039, 10076):
            raise SettingsError(missing) from None
        raise BusUnavailable(f"JetStream at {server} is not ready: {problem.description}") from None
    except FAULTS as problem:
        raise BusUnavailable(f"JetStream at {server} does not answer: {text_of(problem)}") from None
