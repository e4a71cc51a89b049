"""Who may call which route. Deny by default: a route without an access mark keeps the server from starting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute

from arclog.model.errors import InvariantBroken, NotAllowed
from arclog.model.principal import Principal
from arclog.ports.api import Api
from arclog.server.services import Services

VIEW = frozenset({"viewer", "operator", "engineer"})
OPERATE = frozenset({"operator", "engineer"})
BUILD = frozenset({"engineer"})
ADMIN = frozenset({"admin"})
WORK = frozenset({"worker"})
PRODUCE = frozenset({"producer", "worker"})

_MARK = "arclog_access"


def services_of(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def allows(roles: frozenset[str]) -> Any:
    """A dependency: the caller is authenticated and has one of these roles (an admin has all)."""

    async def check(request: Request) -> Principal:
        principal = await services_of(request).authenticate(dict(request.headers))
        if not principal.may(roles):
            wanted = ", ".join(sorted(roles))
            raise NotAllowed(f"{principal.name} may not do this; it takes the role {wanted}")
        request.state.principal = principal
        return principal

    setattr(check, _MARK, roles)
    return Depends(check)


def public() -> Any:
    """A dependency: anybody may call the route."""

    async def check() -> None: ...

    setattr(check, _MARK, None)
    return Depends(check)


def principal_of(request: Request) -> Principal:
    found: Principal = request.state.principal
    return found


def api_of(request: Request) -> Api:
    """The API as the caller sees it. Only behind `allows`."""
    return services_of(request).api(principal_of(request))


def access_of(route: APIRoute) -> frozenset[str] | None:
    """The roles that a route takes; None is public."""
    for dependency in route.dependant.dependencies:
        call: Callable[..., Any] | None = dependency.call
        if call is not None and hasattr(call, _MARK):
            roles: frozenset[str] | None = getattr(call, _MARK)
            return roles
    raise InvariantBroken(f"route {route.path} says nobody who may call it: give it `allows` or `public`")


def check_all(app: FastAPI) -> None:
    for route in app.routes:
        if isinstance(route, APIRoute):
            access_of(route)
