"""Clients of a server: the API, control and results ports over HTTP.

Programs use `AsyncClient` or its blocking form `Client`; both are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arclog.client.asynchronous import AsyncClient
    from arclog.client.blocking import Client
    from arclog.model.errors import RunFailed

__all__ = ["AsyncClient", "Client", "RunFailed"]


def __getattr__(name: str) -> Any:
    if name == "AsyncClient":
        from arclog.client.asynchronous import AsyncClient

        return AsyncClient
    if name == "Client":
        from arclog.client.blocking import Client

        return Client
    if name == "RunFailed":
        from arclog.model.errors import RunFailed

        return RunFailed
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
