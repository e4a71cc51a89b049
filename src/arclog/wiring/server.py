"""arclog as a server: store, engine and its duties in this process, the application on a socket.

Workers come over HTTP, or (`arclog up`) one runs in this process, too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Mapping

import uvicorn

from arclog.model.errors import ArclogError, SettingsError
from arclog.model.principal import ROLES, Principal
from arclog.model.settings import Settings
from arclog.server.app import create_app
from arclog.server.services import Services
from arclog.wiring.embedded import Embedded, embedded


async def serve(settings: Settings, *, with_worker: bool, started: asyncio.Future[str] | None = None) -> None:
    """Serve until told to stop (SIGTERM, SIGINT: requests under way end first); `started` gets the address."""
    _check_address(settings)
    async with embedded(settings) as here:
        if with_worker:
            await here.start_worker()
        services = _services(settings, here)
        config = uvicorn.Config(
            create_app(services),
            host=settings.text("server.host"),
            port=settings.integer("server.port"),
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=round(settings.number("server.drain_s")),
        )
        server = _Announcing(config, started)
        services.draining = lambda: server.should_exit
        await server.serve()


class _Announcing(uvicorn.Server):
    """Tells its address once it listens."""

    def __init__(self, config: uvicorn.Config, started: asyncio.Future[str] | None) -> None:
        super().__init__(config)
        self._announced = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self._announced is not None:
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            self._announced.set_result(f"http://{host}:{port}")


def _services(settings: Settings, here: Embedded) -> Services:
    everybody = Principal(
        "anybody on this machine",
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

    return Services(settings, lambda _: here.api, here.control, here.results, authenticate, ready)


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
