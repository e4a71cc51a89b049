"""The application over an arclog that the test holds in its hands, on a free loopback port.

A bearer token `<tenant>/<name>` is the credential of that name in that tenant; without one, the caller is
everybody, of every tenant.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import uvicorn
from msgspec.structs import replace

from arclog.engine.dispatch.scoped_control import ScopedControl
from arclog.engine.runs.ingest import EngineIngest
from arclog.engine.views.run_contract import EngineRuns, new_cursors
from arclog.model.config.settings import Settings
from arclog.model.principal import EVERYBODY, ROLES, Principal
from arclog.ports.boundary import Boundary
from arclog.server.app import create_app
from arclog.server.auth.audit import Audit
from arclog.server.services import Services
from arclog.wiring.embedded import Embedded
from arclog.wiring.secrets import choose_vault

_EVERYBODY = Principal(EVERYBODY, "", frozenset(ROLES))


async def _authenticate(headers: Mapping[str, str], _: str) -> Principal:
    token = headers.get("authorization", "").removeprefix("Bearer ")
    if not token:
        return _EVERYBODY
    tenant, _, name = token.partition("/")
    return Principal(name, tenant, frozenset({"worker"}), subject=name)


async def _metrics() -> bytes:
    return b""


async def _ready() -> str:
    return ""


@asynccontextmanager
async def served(runtime: Embedded, settings: Settings | None = None) -> AsyncIterator[str]:
    settings = settings or Settings()
    clock, store = runtime.engine.clock, runtime.engine.store

    def boundary(principal: Principal, settings: Settings) -> Boundary:
        if principal.tenant:
            return Boundary.of(principal, settings)
        return replace(Boundary.owner(settings), principal=principal)

    services = Services(
        settings=settings,
        boundary=boundary,
        api=lambda _: runtime.api,
        control=lambda within: ScopedControl(runtime.control, store, clock, within),
        ingest=EngineIngest(runtime.engine),
        runs=lambda within: EngineRuns(runtime.engine, runtime.api, within, new_cursors()),
        results=runtime.results,
        authenticate=_authenticate,
        ready=_ready,
        clock=clock,
        book=store,
        audit=Audit(store, clock, settings),
        metrics=_metrics,
        vault=choose_vault(settings),
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
