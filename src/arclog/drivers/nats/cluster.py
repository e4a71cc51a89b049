"""Connections to the NATS servers that the `bus.*` settings name, for the bus and the result store."""

from __future__ import annotations

import logging
import ssl
from functools import cache, partial
from pathlib import Path
from random import sample

import nats.js.errors
from msgspec import structs
from nats.js import JetStreamContext

from arclog.drivers.nats.address import AddressError, Login, Server, creds_login, servers_of
from arclog.drivers.nats.connect import FAULTS, Cause, Connection, NotConnected, Trust, connect, text_of
from arclog.model.config.extras import missing
from arclog.model.config.settings import Settings, row_of
from arclog.model.errors import BusUnavailable, SettingsError

log = logging.getLogger("arclog.bus")

#: The oldest supported version of NATS: the first with durable consumers that expire (`inactive_threshold`).
OLDEST = (2, 9, 0)
#: A ping is sent at this interval. A connection is considered dead after this many unanswered pings.
_PING_S = 10
_PINGS = 2
#: Maximum number of denied permissions that are logged for a connection. Each is logged once.
_MOST_DENIALS = 20
#: JetStream's error codes for "not enabled for the account" and "not enabled at all"; None if there is no response.
_NO_JETSTREAM = (None, 10039, 10076)


class Cluster:
    """The servers and the credentials for them. Invalid settings raise when it is created."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingsError, whose message never contains a password."""
        try:
            self.servers, self._login = servers_of(settings.text("bus.url"))
        except AddressError as problem:
            raise SettingsError(f"ARCLOG_BUS_URL: {problem}") from None
        self._settings = settings
        self._trust = _trust(settings)
        self._login_now()

    def __str__(self) -> str:
        return ", ".join(map(str, self.servers))

    async def connect(self, timeout_s: float) -> tuple[Connection, JetStreamContext]:
        """Connect to one of the servers, in random order. Raises BusUnavailable if none is reachable, and SettingsError
        if a retry would fail in the same way.
        """
        problem: Exception = BusUnavailable("no server is named")
        for server in sample(self.servers, len(self.servers)):
            try:
                return await self._connect_to(server, timeout_s)
            except (BusUnavailable, SettingsError) as raised:
                # One of several servers may be misconfigured. That is reported only if no other works.
                problem = raised if not isinstance(problem, SettingsError) else problem
        raise problem

    async def _connect_to(self, server: Server, timeout_s: float) -> tuple[Connection, JetStreamContext]:
        try:
            client = await connect(
                server,
                self._login_now(),
                trust=self._trust,
                timeout_s=timeout_s,
                oldest=OLDEST,
                ping_interval=_PING_S,
                max_outstanding_pings=_PINGS,
                no_echo=True,
            )
        except NotConnected as problem:
            raise _translated(server, problem) from None
        except ImportError as problem:
            raise (missing(problem, "ARCLOG_BUS_URL", "nats") or problem) from None
        client.on_error = partial(_report, set())
        try:
            stream = client.jetstream(timeout=timeout_s)
            await _check_jetstream(server, stream)
        except BaseException:
            await client.close()
            raise
        return client, stream

    def _login_now(self) -> Login:
        """Return the login, with its files read again: credentials may change while a server runs."""
        login = self._login
        if self._settings.text("bus.creds_file"):
            creds = _login_of(self._settings, "bus.creds_file", "a credentials file: a user's JWT and NKEY seed")
            login = structs.replace(login, jwt=creds.jwt, seed=creds.seed)
        elif self._settings.text("bus.nkey_file"):
            key = _login_of(self._settings, "bus.nkey_file", "the file of an NKEY seed (SU…)")
            login = structs.replace(login, seed=key.seed)
        return login


def _login_of(settings: Settings, name: str, purpose: str) -> Login:
    path = _readable(settings, name)
    try:
        text = path.read_text()
        login = creds_login(text) if name == "bus.creds_file" else Login(seed=text.strip() or "-")
        login.options()
    except (AddressError, UnicodeDecodeError):
        raise SettingsError(f"{row_of(name).variable}: {path} is not {purpose}") from None
    except OSError as problem:
        raise SettingsError(f"{row_of(name).variable}: {path}: {problem.strerror}") from None
    return login


def _trust(settings: Settings) -> Trust:
    authorities, chain = settings.text("bus.ca_file"), settings.text("bus.cert_file")
    if not authorities and not chain:
        return cache(ssl.create_default_context)
    context = ssl.create_default_context()
    if authorities:
        path = _readable(settings, "bus.ca_file")
        try:
            context.load_verify_locations(path)
        except (ssl.SSLError, OSError):
            raise SettingsError(f"ARCLOG_BUS_CA_FILE: {path} is not a PEM file of certificates") from None
    if chain:
        path = _readable(settings, "bus.cert_file")
        key = _readable(settings, "bus.key_file") if settings.text("bus.key_file") else None
        try:
            context.load_cert_chain(path, key)
        except (ssl.SSLError, OSError):
            raise SettingsError(
                f"ARCLOG_BUS_CERT_FILE: {path} and its key ({key or 'expected in the same file'}) cannot be used"
            ) from None
    return lambda: context


def _readable(settings: Settings, name: str) -> Path:
    path = Path(settings.text(name))
    try:
        with path.open("rb"):
            return path
    except OSError as problem:
        raise SettingsError(f"{row_of(name).variable}: {path}: {problem.strerror}") from None


def _report(denials: set[str], problem: Exception) -> None:
    """Log an error that belongs to no call. Most are debug messages, since the failing call reports them; denied
    permissions are errors.
    """
    text = text_of(problem)
    if "permissions violation" not in text.lower():
        log.debug("NATS: %s", text)
    elif text not in denials and len(denials) < _MOST_DENIALS:
        denials.add(text)
        log.error("NATS: %s; allow it to the user of ARCLOG_BUS_URL", text)


def _translated(server: Server, problem: NotConnected) -> Exception:
    match problem.cause:
        case Cause.UNENCRYPTED:
            return SettingsError(f"ARCLOG_BUS_URL: {server} does not use TLS; use nats:// to connect without it")
        case Cause.CERTIFICATE:
            return SettingsError(
                f"ARCLOG_BUS_URL: the certificate of {server} is not trusted: {problem}; name its authority in "
                "ARCLOG_BUS_CA_FILE"
            )
        case Cause.TLS:
            return SettingsError(f"ARCLOG_BUS_URL: no TLS with {server}: {problem}; see ARCLOG_BUS_CERT_FILE")
        case Cause.LOGIN:
            return SettingsError(
                f"ARCLOG_BUS_URL: {server} rejects the login ({problem}); see the credentials in the address, "
                "ARCLOG_BUS_CREDS_FILE and ARCLOG_BUS_NKEY_FILE"
            )
        case Cause.VERSION:
            least = ".".join(map(str, OLDEST[:2]))
            return SettingsError(
                f"ARCLOG_BUS_URL: {server} is NATS {str(problem) or 'of an unknown version'}; {least} or newer is needed, "
                "for consumers that are removed when they are unused"
            )
        case _:
            return BusUnavailable(f"NATS cannot be reached at {server}: {problem}")


async def _check_jetstream(server: Server, stream: JetStreamContext) -> None:
    try:
        await stream.account_info()
    except nats.js.errors.APIError as problem:
        if problem.err_code in _NO_JETSTREAM:
            raise SettingsError(
                f"ARCLOG_BUS_URL: {server} has no JetStream for this account; start nats-server with -js (jetstream {{}} in its "
                "configuration) and enable it for the account"
            ) from None
        # JetStream may have no leader yet; this is temporary.
        raise BusUnavailable(f"JetStream at {server} is not ready: {problem.description}") from None
    except FAULTS as problem:
        raise BusUnavailable(f"JetStream at {server} does not answer: {text_of(problem)}") from None
