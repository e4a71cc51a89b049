"""Signing in and out with a browser, and who somebody is once that is done."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import RedirectResponse, Response

from arclog.model.errors import (
    ArclogError,
    Conflict,
    NotAllowed,
    NotFound,
    RequestRejected,
    StoreError,
    Unauthenticated,
)
from arclog.model.ids import timestamp
from arclog.model.principal import EVERYBODY, ROLES, SIGNAL_ROLES, Principal, role_names
from arclog.server.auth.access import VIEW, admitted, allows, denied_routes, principal_of, public, services_of
from arclog.server.auth.gate import Gate
from arclog.server.auth.oidc import CALLBACK, LOGIN_S, own_place
from arclog.server.auth.sessions import cookie_of
from arclog.server.bodies import answered, body_of
from arclog.server.openapi.schemas import JSON, documented

router = APIRouter(prefix="/api", tags=["access"])

_LOGIN_COOKIE = "arclog_login"


class Me(Struct, frozen=True):
    """Who asks, and what that may not do."""

    name: str
    tenant: str
    #: '' where the operator's default is used
    project: str
    environment: str
    roles: list[str]
    #: False on a server that asks nobody who they are
    authenticated: bool
    #: when the session ends; null without one
    expires_at: str | None
    #: what requests of the session send as `X-Arclog-CSRF` when they change something; '' without one
    csrf: str
    #: by `METHOD /path`: why not. What is not here is allowed
    denied: dict[str, str]
    #: by signal
    denied_signals: dict[str, str]


class SignIn(Struct, frozen=True):
    """How to sign in, and who did."""

    #: whether callers must say who they are
    required: bool
    #: key, oidc
    methods: list[str]
    #: name of the OIDC issuer; '' without one
    issuer: str
    #: null: nobody is signed in
    me: Me | None


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    #: an API key
    key: str


_ME = Me(
    "ada", "acme", "", "", ["viewer"], True, "2026-01-02T11:04:05.000000Z", "5f…",
    {"POST /api/keys": "requires the role admin"}, {"CANCEL": "requires the role admin or engineer or operator"},
)  # fmt: skip


@router.get("/me", dependencies=[allows(frozenset(ROLES))], **documented(answer=Me, example=_ME, errors=()))
async def me(request: Request) -> Response:
    """Describe the caller and the requests that it is not allowed to make."""
    return answered(_me(request, principal_of(request)))


@router.get(
    "/session",
    dependencies=[public()],
    **documented(answer=SignIn, example=SignIn(True, ["key", "oidc"], "login.example", _ME), errors=()),
)
async def session(request: Request) -> Response:
    """Describe the ways to sign in and the current session of this browser."""
    gate = _gate(request)
    required = await gate.is_required()
    methods = [*(["key"] if required else []), *(["oidc"] if gate.oidc is not None else [])]
    known: Me | None = None
    if not required or gate.sessions.token_of(request.headers):
        try:
            known = _me(request, await gate.authenticate(request.headers, _address(request)))
        except (Unauthenticated, NotAllowed):
            known = None
    return answered(SignIn(required, methods, "" if gate.oidc is None else gate.oidc.name, known))


@router.post(
    "/session",
    dependencies=[public()],
    **documented(
        status=201,
        answer=Me,
        example=_ME,
        takes=NewSession,
        takes_example={"key": "ark_4k2m7q9x1c5v8b3n_…"},
        errors=(409,),
    ),
)
async def sign_in(request: Request) -> Response:
    """Open a session with an API key. The response sets a cookie."""
    gate = _gate(request)
    if not await gate.is_required():
        raise Conflict("this server does not use authentication")
    gate.sessions.check_own_site(request.headers)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise RequestRejected(f"the body must be {JSON}")
    key = (await body_of(request, NewSession)).key.strip()
    principal, key_id = await gate.sign_in(key, _address(request))
    return await _opened(request, principal, key_id)


@router.delete("/session", dependencies=[public()], **documented(status=204, text="No active session.", errors=()))
async def sign_out(request: Request) -> Response:
    """Close the session of this browser."""
    gate = _gate(request)
    token = gate.sessions.token_of(request.headers)
    if token and await gate.is_required():
        try:
            await admitted(request, frozenset(ROLES))
        except Unauthenticated:
            pass  # it is over already
        else:
            await services_of(request).audit.note(request, principal_of(request), "granted")
        await gate.sessions.close(token)
    answer = Response(status_code=204)
    answer.headers["Set-Cookie"] = gate.sessions.cookie(request.headers, request.url.scheme, "")
    return answer


_REDIRECT = {"status": 303, "media": "text/plain", "text": "Redirect of the browser."}


@router.get("/session/oidc", dependencies=[public()], **documented(**_REDIRECT))  # type: ignore[arg-type]  # plain words
async def begin(
    request: Request,
    place: Annotated[str, Query(alias="next", description="The page to return to", max_length=2000)] = "/",
) -> Response:
    """Start signing in at the OIDC issuer."""
    gate = _gate(request)
    if gate.oidc is None:
        raise NotFound("sign-in with OIDC is not configured (auth.oidc_client_id)")
    address, cookie = await gate.oidc.begin(place, request.headers)
    answer = RedirectResponse(address, 303)
    answer.headers["Set-Cookie"] = _login_cookie(request, cookie, LOGIN_S)
    return answer


@router.get("/session/callback", dependencies=[public()], **documented(**_REDIRECT))  # type: ignore[arg-type]  # plain words
async def callback(
    request: Request,
    code: Annotated[str, Query(max_length=4096)] = "",
    state: Annotated[str, Query(max_length=200)] = "",
    error: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    """Complete the sign-in at the OIDC issuer and open a session."""
    gate = _gate(request)
    if gate.oidc is None:
        raise NotFound("sign-in with OIDC is not configured (auth.oidc_client_id)")
    cookie = cookie_of(request.headers, _LOGIN_COOKIE)
    try:
        if error:
            raise Unauthenticated(f"the issuer refused the sign-in ({error[:100]})")
        principal, place = await gate.sign_in_at_issuer(cookie, state, code, _address(request))
        opened = await _opened(request, principal)
    except (Unauthenticated, NotAllowed, StoreError) as problem:
        await services_of(request).audit.note(request, None, "denied", str(problem))
        # A person looks at this: the page of the console says what went wrong, and lets them try again.
        answer = RedirectResponse(f"/?sign_in={_reason(problem)}", 303)
    else:
        answer = RedirectResponse(own_place(place), 303)
        answer.headers["Set-Cookie"] = opened.headers["Set-Cookie"]
    answer.headers.append("Set-Cookie", _login_cookie(request, "", 0))
    return answer


async def _opened(request: Request, principal: Principal, key_id: str = "") -> Response:
    if not principal.may(VIEW):
        raise NotAllowed(f"{principal.name} is not allowed to use the console; the role {role_names(VIEW)} is required")
    request.state.principal = principal
    await services_of(request).audit.note(request, principal, "granted")
    sessions = _gate(request).sessions
    token, opened = await sessions.open(principal, key_id)
    cookie = sessions.cookie(request.headers, request.url.scheme, token)
    return answered(_me(request, opened), 201, {"Set-Cookie": cookie})


def _me(request: Request, principal: Principal) -> Me:
    return Me(
        name=principal.name,
        tenant=principal.tenant,
        project=principal.project,
        environment=principal.environment,
        roles=[role for role in ROLES if role in principal.roles],
        authenticated=principal.name != EVERYBODY or bool(principal.subject),
        expires_at=None if principal.expires_at is None else timestamp(principal.expires_at),
        csrf=principal.csrf,
        denied=denied_routes(request.app, principal),
        denied_signals={
            signal: f"requires the role {role_names(roles)}"
            for signal, roles in SIGNAL_ROLES.items()
            if not principal.may(roles)
        },
    )


def _reason(problem: ArclogError) -> str:
    from urllib.parse import quote

    return quote(str(problem)[:300], safe="")


def _login_cookie(request: Request, value: str, lasts: int) -> str:
    # Lax: the issuer's page sends the browser back to us, and it must come along.
    secure = _gate(request).sessions.secure(request.url.scheme)
    return f"{_LOGIN_COOKIE}={value}; Path={CALLBACK}; Max-Age={lasts}; HttpOnly; SameSite=Lax{secure}"


def _address(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _gate(request: Request) -> Gate:
    found = services_of(request).gate
    if found is None:
        raise NotFound("sign-in is not available on this server")
    return found
