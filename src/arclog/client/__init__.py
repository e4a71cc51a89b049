"""Clients of a server: the API, control and results ports over HTTP.

Programs use `AsyncClient` or its blocking form `Client`, and the requests that their methods take. All names are imported
on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arclog.client.asynchronous import AsyncClient
    from arclog.client.blocking import Client
    from arclog.model.errors import RunFailed
    from arclog.ports.storage.access import NewKey
    from arclog.ports.storage.pools import NewResource
    from arclog.ports.storage.schedules import NewSchedule
    from arclog.ports.storage.task_logs import LogFilter
    from arclog.ports.views.api import ExecuteRequest, ForkRequest, RegisterRequest, SignalRequest
    from arclog.ports.views.history import SimulateRequest
    from arclog.ports.views.overview import RunQuery

__all__ = [
    "AsyncClient",
    "Client",
    "ExecuteRequest",
    "ForkRequest",
    "LogFilter",
    "NewKey",
    "NewResource",
    "NewSchedule",
    "RegisterRequest",
    "RunFailed",
    "RunQuery",
    "SignalRequest",
    "SimulateRequest",
]

#: Public name → module.
_HOMES = {
    "AsyncClient": "arclog.client.asynchronous",
    "Client": "arclog.client.blocking",
    "ExecuteRequest": "arclog.ports.views.api",
    "ForkRequest": "arclog.ports.views.api",
    "LogFilter": "arclog.ports.storage.task_logs",
    "NewKey": "arclog.ports.storage.access",
    "NewResource": "arclog.ports.storage.pools",
    "NewSchedule": "arclog.ports.storage.schedules",
    "RegisterRequest": "arclog.ports.views.api",
    "RunFailed": "arclog.model.errors",
    "RunQuery": "arclog.ports.views.overview",
    "SignalRequest": "arclog.ports.views.api",
    "SimulateRequest": "arclog.ports.views.history",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
