"""arclog: an event-sourced workflow engine.

    import arclog

    run = arclog.run("flow.yaml", workload={"name": "Ada"})
    print(run.state, run.result)

`run` and `open` run playbooks in this process, `Client` and `AsyncClient` call a server, `kind` makes a tool kind from a
function or a class, `arclog.testing` plays playbooks with mocked tools, and `arclog.errors` has the errors that they
raise. The names in `arclog.client` and the module `arclog.client.webhooks` are public as well. Every other module is private
and may change in any release.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing, which would cost each command 5 ms
if TYPE_CHECKING:
    from typing import Any

    from arclog import errors, testing
    from arclog.client.asynchronous import AsyncClient
    from arclog.client.blocking import Client
    from arclog.embedding import Arclog, AsyncArclog, AsyncRun, Run, open, open_async, run  # noqa: A004 - its public name
    from arclog.ports.tool import TaskContext
    from arclog.tools.custom import kind

__version__ = "0.1.0"

__all__ = [
    "Arclog",
    "AsyncArclog",
    "AsyncClient",
    "AsyncRun",
    "Client",
    "Run",
    "TaskContext",
    "errors",
    "kind",
    "open",
    "open_async",
    "run",
    "testing",
]

#: Public name → module. Names are imported on first use, so that CLI commands start in milliseconds.
_HOMES = {
    "Arclog": "arclog.embedding",
    "AsyncArclog": "arclog.embedding",
    "AsyncClient": "arclog.client.asynchronous",
    "AsyncRun": "arclog.embedding",
    "Client": "arclog.client.blocking",
    "Run": "arclog.embedding",
    "TaskContext": "arclog.ports.tool",
    "kind": "arclog.tools.custom",
    "open": "arclog.embedding",
    "open_async": "arclog.embedding",
    "run": "arclog.embedding",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in ("errors", "testing"):
        value = import_module(f"arclog.{name}")
    else:
        raise AttributeError(f"module 'arclog' has no attribute {name!r}; public names: {', '.join(__all__)}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
