"""The application: routes, problems, access. Nothing here knows a store or a process."""

from __future__ import annotations

from functools import cache
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from arclog import __version__
from arclog.server import problems
from arclog.server.auth import access, audit
from arclog.server.console import Console
from arclog.server.headers import SecurityHeaders
from arclog.server.openapi import schemas
from arclog.server.routes import catalog, checks, pages, published
from arclog.server.routes.operations import audit as audit_routes
from arclog.server.routes.operations import (
    configuration,
    credentials,
    doctor,
    health,
    keys,
    overview,
    schedules,
    session,
)
from arclog.server.routes.runs import contract as runs
from arclog.server.routes.runs import events, executions, history, results, streams
from arclog.server.routes.runs import signals as steering
from arclog.server.routes.workers import control, pools
from arclog.server.routes.workers import results as work_results
from arclog.server.routes.workers import secrets as work_secrets
from arclog.server.services import Services
from arclog.server.traffic import Admission

#: Every group of routes.
ROUTERS = (
    health.router,
    executions.router,
    overview.router,
    streams.router,
    steering.router,
    history.router,
    history.playbooks,
    catalog.router,
    checks.router,
    configuration.router,
    results.router,
    control.router,
    work_results.router,
    work_secrets.router,
    session.router,
    keys.router,
    audit_routes.router,
    events.router,
    runs.router,
    published.router,
    schedules.router,
    credentials.router,
    doctor.router,
    pools.router,
    pages.router,
)


def create_app(services: Services) -> FastAPI:
    app = _bare()
    app.state.services = services
    app.add_middleware(Console, is_open=None if services.gate is None else services.gate.is_page_open)
    app.add_middleware(Admission, traffic=services.traffic, stopping=services.stopping)
    app.add_middleware(SecurityHeaders)
    problems.install(app)
    audit.install(app, services.audit)
    access.check_all(app, public_pages={pages.DOCUMENT})
    return app


def described() -> dict[str, Any]:
    """The OpenAPI document, without a server."""
    return _bare().openapi()


def _bare() -> FastAPI:
    app = FastAPI(
        title="arclog",
        version=__version__,
        docs_url=None,  # a page of our own: FastAPI's loads its parts from the internet
        redoc_url=None,
        openapi_url=pages.DOCUMENT,
        # A redirect would be made from the Host header, which is anybody's.
        redirect_slashes=False,
    )
    app.router.routes.extend(_routes())
    schemas.install(app)
    return app


@cache
def _routes() -> list[BaseRoute]:
    """The routes of every application of this process: what FastAPI works out for each of them takes 0.1 s in all."""
    holder = APIRouter()
    for router in ROUTERS:
        holder.include_router(router)
    return holder.routes
