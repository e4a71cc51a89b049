"""Who may call which route. Deny by default: a route without an access mark keeps the server from starting."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from arclog.model.errors import InvariantBroken, NotAllowed, StoreError, StoreUnavailable, Unauthenticated
from arclog.model.principal import Principal, may_act_for_the_tenant, role_names
from arclog.ports.views.api import Api
from arclog.server.auth.audit import LOOKING
from arclog.server.auth.sessions import check_csrf
from arclog.server.services import Services
from arclog.server.traffic import SLOT

log = logging.getLogger("arclog.server")

VIEW = frozenset({"viewer", "operator", "engineer"})
OPERATE = frozenset({"operator", "engineer"})
BUILD = frozenset({"engineer"})
ADMIN = frozenset({"admin"})
WORK = frozenset({"worker"})
PRODUCE = frozenset({"producer", "worker"})

#: What these are granted is not in the audit: each report and event is in the log, with who sent it.
_IN_THE_LOG = (WORK, PRODUCE)

_MARK = "arclog_access"


def services_of(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


def allows(roles: frozenset[str], *, tenant_wide: bool = False) -> Any:
    """A dependency: the caller is authenticated and has one of these roles (an admin has all). Where the whole tenant is
    concerned, it must not be bound to a project or an environment.
    """

    async def check(request: Request) -> Principal:
        principal = await admitted(request, roles)
        if tenant_wide:
            may_act_for_the_tenant(principal)
        if request.method not in LOOKING and roles not in _IN_THE_LOG:
            await services_of(request).audit.note(request, principal, "granted")
        return principal

    setattr(check, _MARK, roles)
    return Depends(check)


async def admitted(request: Request, roles: frozenset[str]) -> Principal:
    """Who asks, if it has one of these roles. Raises Unauthenticated or NotAllowed."""
    if len(request.headers.getlist("authorization")) > 1:
        raise Unauthenticated("the request has several Authorization headers; send only one")
    address = "" if request.client is None else request.client.host
    try:
        principal = await services_of(request).authenticate(request.headers, address)
    except StoreError as problem:
        # Whoever asks may be anybody: where the store is, is not for them.
        log.warning("callers cannot be authenticated: %s", problem)
        raise StoreUnavailable("the server cannot verify credentials right now; try again in a moment") from None
    request.state.principal = principal
    if (slot := request.scope.get(SLOT)) is not None:
        slot.take(principal)
    if request.method not in LOOKING:
        check_csrf(principal, request.headers)
    if not principal.may(roles):
        raise NotAllowed(f"{principal.name} is not allowed to do this; the role {role_names(roles)} is required")
    return principal


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
    raise InvariantBroken(f"route {route.path} has no access rule: give it `allows` or `public`")


def denied_routes(app: FastAPI, principal: Principal) -> dict[str, str]:
    """By `METHOD /path`: why the principal may not call it."""
    return {
        f"{method} {route.path}": f"requires the role {role_names(roles)}"
        for route in _all(app.routes)
        if isinstance(route, APIRoute) and (roles := access_of(route)) is not None and not principal.may(roles)
        for method in sorted(route.methods or ())
    }


def check_all(app: FastAPI, public_pages: Collection[str] = ()) -> None:
    """Refuse an application with a route of which nobody said who may call it."""
    for route in _all(app.routes):
        if isinstance(route, APIRoute):
            access_of(route)
        elif getattr(route, "path", "") not in public_pages:
            raise InvariantBroken(f"{route} is a route without an access rule")


def _all(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """Each route; FastAPI keeps a router that was included as one entry, and its routes inside."""
    for route in routes:
        inside: APIRouter | None = getattr(route, "original_router", None)
        if inside is None:
            yield route
        else:
            yield from _all(inside.routes)
