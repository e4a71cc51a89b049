"""The connection of a NATS result store, and what its failures mean.

Work that is handed in must be one that may be done twice: a server that went away in the middle is asked again as soon as
it is back, until `results.patience_s` has passed. Messages tell servers, never credentials.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js import errors as js_errors

from arclog.model.errors import ResultStoreAway, ResultUnavailable, SettingsError
from arclog.model.settings import Settings

R = TypeVar("R")
Work = Callable[[JetStreamContext], Awaitable[R]]

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
#: JetStream's code of a publish whose subject has had another message meanwhile
MOVED_ON = 10071
#: its codes of "no room": the stream's limit, the server's or the account's storage
_FULL = frozenset({10023, 10047, 10077, 10028})


class _Down(Exception):
    """The connection was lost while something was asked."""


class NatsLink:
    def __init__(self, settings: Settings) -> None:
        self._servers = [each.strip() for each in settings.text("bus.url").split(",") if each.strip()]
        if not self._servers:
            raise SettingsError("ARCLOG_RESULTS_URL is nats, which needs ARCLOG_BUS_URL to say where NATS is")
        #: for messages
        self.place = f"NATS {', '.join(map(_host, self._servers))}"
        self._settings = settings
        self._timeout_s = settings.number("results.timeout_s")
        self._patience_s = settings.number("results.patience_s")
        self._client: Client | None = None
        self._context: JetStreamContext | None = None
        self._connecting = asyncio.Lock()
        #: set while the connection is lost
        self._down = asyncio.Event()
        self._last: Exception | None = None

    @property
    def max_payload(self) -> int:
        """Largest message that the server takes."""
        return 0 if self._client is None else self._client.max_payload

    async def run(self, work: Work[R]) -> R:
        """What comes of the work; it may be done twice. What is not found, or moved on meanwhile, is the caller's."""
        clock = asyncio.get_running_loop()
        until = clock.time() + self._patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                context = await self._connected(until)
                return await self._unless_down(work(context))
            except js_errors.NotFoundError:
                raise
            except js_errors.BadRequestError as problem:
                raise (problem if problem.err_code == MOVED_ON else self._meant(problem)) from None
            except (nats.errors.Error, OSError, TimeoutError, _Down) as problem:
                meant = self._meant(problem)
                if not isinstance(meant, ResultStoreAway) or clock.time() + pause > until:
                    raise meant from problem
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    async def _unless_down(self, work: Awaitable[R]) -> R:
        """What comes of the work; a lost connection ends it at once, since its answer would never come."""
        working = asyncio.ensure_future(work)
        losing = asyncio.ensure_future(self._down.wait())
        try:
            await asyncio.wait({working, losing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise _Down
            return working.result()
        finally:
            losing.cancel()
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def _connected(self, until: float) -> JetStreamContext:
        async with self._connecting:
            if self._client is None or self._context is None:
                self._client = await self._connect(until)
                self._context = self._client.jetstream(timeout=self._timeout_s)
        if not self._client.is_connected:
            raise _Down
        return self._context

    async def _connect(self, until: float) -> Client:
        client = Client()
        refused: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def failed(problem: Exception) -> None:
            self._last = problem
            if _is_refusal(problem) and not refused.done():
                refused.set_exception(problem)

        async def lost() -> None:
            self._down.set()

        async def back() -> None:
            self._down.clear()

        options: dict[str, Any] = {
            "servers": self._servers,
            "name": "arclog results",
            "error_cb": failed,
            "disconnected_cb": lost,
            "reconnected_cb": back,
            "connect_timeout": self._timeout_s,
            "reconnect_time_wait": _FIRST_PAUSE_S,
            "max_reconnect_attempts": -1,
            **_credentials(self._settings),
        }
        coming = asyncio.ensure_future(client.connect(**options))
        left = max(until - asyncio.get_running_loop().time(), _FIRST_PAUSE_S)
        try:
            await asyncio.wait({coming, refused}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if refused.done():
                refused.result()
            if not coming.done():
                raise _Down
            coming.result()
            self._down.clear()
            return client
        except BaseException:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            with suppress(nats.errors.Error, OSError):
                await client.close()
            raise
        finally:
            if refused.done():
                refused.exception()  # seen
            refused.cancel()

    async def close(self) -> None:
        client, self._client, self._context = self._client, None, None
        if client is not None:
            with suppress(nats.errors.Error, OSError):
                await client.close()

    def _meant(self, problem: BaseException) -> ResultUnavailable:
        """What a failure is, and what to do."""
        if isinstance(problem, js_errors.APIError) and problem.err_code in _FULL:
            return ResultUnavailable(
                f"no room: a result could not be stored in {self.place} ({problem.description}), and nothing of it is kept; "
                "give the bucket or JetStream more room (`arclog gc` removes results that are no longer needed), then run "
                "it again"
            )
        if _is_refusal(problem):
            return ResultUnavailable(
                f"the result store {self.place} refuses our credentials; look at ARCLOG_BUS_URL and the settings bus.…"
            )
        if isinstance(problem, js_errors.ServiceUnavailableError | js_errors.NoStreamResponseError):
            return ResultStoreAway(
                f"the result store {self.place} gives no answer: JetStream is not enabled there (-js), or has no leader yet"
            )
        if isinstance(problem, _Down | nats.errors.ConnectionClosedError | nats.errors.NoServersError | OSError):
            last = "" if self._last is None else f" ({type(self._last).__name__}: {self._last})"
            return ResultStoreAway(f"the result store {self.place} cannot be reached{last}; look whether NATS runs")
        if isinstance(problem, TimeoutError):
            return ResultStoreAway(
                f"the result store {self.place} did not answer within {self._timeout_s:g} s; look whether it is overwhelmed, "
                "and whether our user may use JetStream (setting results.timeout_s)"
            )
        return ResultUnavailable(f"the result store {self.place} refuses: {problem}")


def _is_refusal(problem: BaseException) -> bool:
    # While it connects, the client tells the server's words only.
    return isinstance(problem, nats.errors.AuthorizationError) or "authorization violation" in str(problem).lower()


def _host(url: str) -> str:
    """An address without its credentials."""
    return urlsplit(url if "://" in url else f"nats://{url}").netloc.rpartition("@")[2]


def _credentials(settings: Settings) -> dict[str, Any]:
    options: dict[str, Any] = {}
    authority, certificate = settings.text("bus.ca_file"), settings.text("bus.cert_file")
    if authority or certificate:
        try:
            context = ssl.create_default_context()
            if authority:
                context.load_verify_locations(authority)
            if certificate:
                context.load_cert_chain(certificate, settings.text("bus.key_file") or None)
        except OSError as problem:
            raise SettingsError(
                f"the certificates for NATS cannot be used ({problem.strerror or problem}); look at bus.ca_file, "
                "bus.cert_file and bus.key_file"
            ) from problem
        options["tls"] = context
    if settings.text("bus.creds_file"):
        options["user_credentials"] = settings.text("bus.creds_file")
    if settings.text("bus.nkey_file"):
        options["nkeys_seed"] = settings.text("bus.nkey_file")
    return options
