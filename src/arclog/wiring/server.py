"""arclog as a server: store, engine and its duties in this process, the application on a socket.

Workers come over HTTP, or (`arclog up`) one runs in this process, too. Told to stop, it first drains: new work is
refused, streams and long polls end, requests under way are answered; then it closes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType

import uvicorn

from arclog.model.errors import ArclogError, SettingsError
from arclog.model.principal import EVERYBODY, ROLES, Principal
from arclog.model.settings import Settings
from arclog.server.app import create_app
from arclog.server.services import Services
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.workplace import workplace_of

#: Connections that may wait to be accepted.
_BACKLOG = 2048
#: Time for connections to close once the drain is over.
_CLOSE_S = 1


async def serve(
    settings: Settings,
    *,
    with_worker: bool,
    started: asyncio.Future[str] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until told to stop (by `stop`, SIGTERM or SIGINT); `started` gets the address."""
    _check_address(settings)
    listener = _listen(settings)
    try:
        async with embedded(settings, works_here=with_worker) as here:
            told = stop or asyncio.Event()
            here.start_duties()
            if with_worker:
                await here.start_worker()
            await here.continue_all()
            services = _services(settings, here)
            server = _Server(services, told)
            if here.worker is not None:
                here.worker.add_done_callback(lambda _: told.set())
            if started is not None:
                started.set_result(_address(listener))
            await server.serve([listener])
            if here.worker is not None and here.worker.done():
                here.worker.result()  # raises what stopped it: a server without its worker is of no use
    finally:
        listener.close()


class _Server(uvicorn.Server):
    """Drains before it closes: `stop` begins it, a second signal cuts it short."""

    def __init__(self, services: Services, stop: asyncio.Event) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(services),
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                backlog=_BACKLOG,
                timeout_graceful_shutdown=_CLOSE_S,
            )
        )
        self._services = services
        self._stop = stop
        self._loop = asyncio.get_running_loop()

    async def main_loop(self) -> None:
        ticking = asyncio.ensure_future(super().main_loop())
        told = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((ticking, told), return_when=asyncio.FIRST_COMPLETED)
            self._services.stopping.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._services.settings.number("server.drain_s")):
                    await self._services.traffic.quiet()
        finally:
            for task in (ticking, told):
                task.cancel()
            await asyncio.gather(ticking, told, return_exceptions=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature is uvicorn's
        if self._stop.is_set():
            self.force_exit = self.should_exit = True
        self._loop.call_soon_threadsafe(self._stop.set)


def _listen(settings: Settings) -> socket.socket:
    """The socket, bound before anything else is opened: a taken port is known at once."""
    host, port = settings.text("server.host"), settings.integer("server.port")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio turns Nagle's algorithm off only where the protocol is named: else a small answer waits 40 ms.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as problem:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}; stop what listens there, or choose "
            "another port (--port, ARCLOG_SERVER_PORT; 0 takes a free one)"
        ) from None
    return listener


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _services(settings: Settings, here: Embedded) -> Services:
    everybody = Principal(
        EVERYBODY,
        settings.text("scope.tenant"),
        frozenset(ROLES),
    )

    async def authenticate(_: Mapping[str, str]) -> Principal:
        return everybody

    async def ready() -> str:
        try:
            await here.api.list(limit=1)
        except ArclogError as problem:
            return str(problem)
        return ""

    return Services(
        settings, lambda _: here.api, here.control, here.results, authenticate, ready, workplace=workplace_of(here)
    )


def _check_address(settings: Settings) -> None:
    host = settings.text("server.host")
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise SettingsError(
            f"server.host {host} can be reached by others, and no authentication is configured; "
            "make a key first (arclog key create), or listen on 127.0.0.1"
        )
