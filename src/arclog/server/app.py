"""The application: routes, problems, access. Nothing here knows a store or a process."""

from __future__ import annotations

from fastapi import FastAPI

from arclog import __version__
from arclog.server import access, audit, problems, schemas
from arclog.server.headers import SecurityHeaders
from arclog.server.routes import audit as audit_routes
from arclog.server.routes import (
    catalog,
    control,
    credentials,
    doctor,
    events,
    executions,
    health,
    keys,
    pages,
    pools,
    published,
    results,
    runs,
    schedules,
    steering,
    streams,
    work_results,
    work_secrets,
)
from arclog.server.services import Services
from arclog.server.traffic import Admission

#: Every group of routes.
ROUTERS = (
    health.router,
    executions.router,
    streams.router,
    steering.router,
    catalog.router,
    results.router,
    control.router,
    work_results.router,
    work_secrets.router,
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
    app = FastAPI(
        title="arclog",
        version=__version__,
        docs_url=None,  # a page of our own: FastAPI's loads its parts from the internet
        redoc_url=None,
        openapi_url=pages.DOCUMENT,
        # A redirect would be made from the Host header, which is anybody's.
        redirect_slashes=False,
    )
    app.state.services = services
    app.add_middleware(Admission, settings=services.settings, traffic=services.traffic, stopping=services.stopping)
    app.add_middleware(SecurityHeaders)
    problems.install(app)
    audit.install(app, services.audit)
    for router in ROUTERS:
        app.include_router(router)
    access.check_all(app, public_pages={pages.DOCUMENT})
    schemas.install(app)
    return app
