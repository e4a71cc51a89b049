"""The ASGI application: admission, then the console's files, then the operations. It knows no store and no process."""

from __future__ import annotations

from starlette.types import ASGIApp

from arclog.operations.table import OPERATIONS
from arclog.server.console import Console
from arclog.server.dispatch import Dispatcher
from arclog.server.handlers import (  # noqa: F401 - importing them registers them
    access,
    catalog,
    events,
    executions,
    history,
    pools,
    results,
    runs,
    schedules,
    server,
    signals,
    workers,
)
from arclog.server.services import Services
from arclog.server.traffic import Admission


def create_app(services: Services) -> ASGIApp:
    """Raises InvariantBroken if an operation has no handler."""
    operations = Dispatcher(services, OPERATIONS)
    console = Console(operations, is_open=None if services.gate is None else services.gate.is_page_open)
    return Admission(console, services.traffic, services.stopping, operations.is_urgent)
