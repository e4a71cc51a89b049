"""The application over an arclog that the test holds in its hands, on a free loopback port.

A bearer token `<tenant>/<name>` is the credential of that name in that tenant; without one, the caller is everybody.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import uvicorn

from arclog.engine.scoped_control import ScopedControl
from arclog.model.principal import ROLES, Principal
from arclog.model.settings import Settings
from arclog.server.app import create_app
from arclog.server.scoped_results import ScopedResults
from arclog.server.services import Services, Workplace
from arclog.wiring.embedded import Embedded

EVERYBODY = Principal("everybody", "", frozenset(ROLES))


async def _authenticate(headers: Mapping[str, str]) -> Principal:
    token = headers.get("authorization", "").removeprefix("Bearer ")
    if not token:
        return EVERYBODY
    tenant, _, name = token.partition("/")
    return Principal(name, tenant, frozenset({"worker"}))


async def _ready() -> str:
    return ""


@asynccontextmanager
async def served(here: Embedded, settings: Settings | None = None) -> AsyncIterator[str]:
    def workplace(principal: Principal) -> Workplace:
        name = "" if principal is EVERYBODY else principal.name
        engine = here.engine
        control = ScopedControl(here.control, engine.store, engine.clock, tenant=principal.tenant, name=name)
        return Workplace(control, ScopedResults(here.results, principal.tenant))

    services = Services(
        settings or Settings(),
        lambda _: here.api,
        here.control,
        here.results,
        _authenticate,
        _ready,
        workplace=workplace,
    )
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(services), log_config=None, access_log=False, lifespan="off"))
    serving = asyncio.ensure_future(server.serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        services.stopping.set()
        server.should_exit = True
        await serving
        listener.close()
