"""The application: routes, problems, access. Nothing here knows a store or a process."""

from __future__ import annotations

from fastapi import FastAPI

from arclog import __version__
from arclog.server import access, problems, schemas
from arclog.server.routes import catalog, executions, health, results, schedules, steering, streams
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
    schedules.router,
)


def create_app(services: Services) -> FastAPI:
    app = FastAPI(
        title="arclog", version=__version__, docs_url="/api/docs", redoc_url=None, openapi_url="/api/openapi.json"
    )
    app.state.services = services
    app.add_middleware(Admission, settings=services.settings, traffic=services.traffic, stopping=services.stopping)
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    access.check_all(app)
    schemas.install(app)
    return app
