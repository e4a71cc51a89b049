"""Handlers of keys, audit and credentials in `operations.access`."""

from __future__ import annotations

from urllib.parse import quote

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
from arclog.model.principal import EVERYBODY, ROLES, SIGNAL_ROLES, Principal, checked_name, role_names
from arclog.operations import access as ops
from arclog.operations.operation import JSON, VIEW, ByName
from arclog.operations.table import OPERATIONS
from arclog.ports.secrets import SecretInfo
from arclog.ports.storage.access import CreatedKey, KeyInfo, NewKey
from arclog.server.auth.gate import Gate
from arclog.server.auth.oidc import CALLBACK, LOGIN_S, own_place
from arclog.server.auth.sessions import cookie_of
from arclog.server.call import Call
from arclog.server.dispatch import Reply, handles

# ── access ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@handles(ops.CREATE_KEY)
async def create_key(call: Call, body: NewKey) -> CreatedKey:
    made = await call.workspace.keys.create(body)
    call.services.key_made()
    return made


@handles(ops.LIST_KEYS)
async def list_keys(call: Call) -> ops.KeyList:
    return ops.KeyList(await call.workspace.keys.list())


@handles(ops.REVOKE_KEY)
async def revoke_key(call: Call, request: ops.ByKeyId) -> KeyInfo:
    return await call.workspace.keys.revoke(request.key_id)


@handles(ops.AUDIT)
async def audit(call: Call, request: ops.ListAudit) -> ops.AuditPage:
    entries = await call.workspace.audit.page(decision=request.decision, before=request.before, limit=request.limit)
    return ops.AuditPage(entries, entries[-1].position if len(entries) == request.limit else None)


# -- credentials -------------------------------------------------------------------------------------------------------


@handles(ops.PUT_CREDENTIAL)
async def put_credential(call: Call, request: ByName, body: ops.NewCredential) -> SecretInfo:
    scope = _scope(body.tenant, body.project, body.environment)
    return await call.workspace.credentials.put(request.name, body.value, scope)


@handles(ops.LIST_CREDENTIALS)
async def list_credentials(call: Call) -> ops.CredentialList:
    return ops.CredentialList(await call.workspace.credentials.list())


@handles(ops.REMOVE_CREDENTIAL)
async def remove_credential(call: Call, request: ops.RemoveCredential) -> ops.CredentialRemoved:
    scope = _scope(request.tenant, request.project, request.environment)
    return ops.CredentialRemoved(request.name, await call.workspace.credentials.remove(request.name, scope))


def _scope(tenant: str, project: str, environment: str) -> str:
    """Return TENANT/PROJECT/ENVIRONMENT, any part of which may be empty."""
    if "/" in tenant:
        raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")
    for name, part in ((project, "project"), (environment, "environment")):
        if name:
            checked_name(name, part)
    return f"{tenant}/{project}/{environment}"


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Handlers of the sessions in `operations.access`: sign in and out with a browser, and the current principal.


_LOGIN_COOKIE = "arclog_login"


@handles(ops.ME)
async def me(call: Call) -> ops.Me:
    return _me(call.principal)


@handles(ops.SESSION)
async def session(call: Call) -> ops.SignIn:
    gate = _gate(call)
    required = await gate.is_required()
    methods = [*(["key"] if required else []), *(["oidc"] if gate.oidc is not None else [])]
    me: ops.Me | None = None
    if not required or gate.sessions.token_of(call.headers):
        try:
            me = _me(await gate.authenticate(call.headers, call.address))
        except (Unauthenticated, NotAllowed):
            me = None
    return ops.SignIn(required, methods, "" if gate.oidc is None else gate.oidc.name, me)


@handles(ops.SIGN_IN)
async def sign_in(call: Call) -> Reply:
    gate = _gate(call)
    if not await gate.is_required():
        raise Conflict("this server does not use authentication")
    gate.sessions.check_own_site(call.headers)
    if call.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        raise RequestRejected(f"the body must be {JSON}")
    key = (await call.body(ops.NewSession)).key.strip()
    principal, key_id = await gate.sign_in(key, call.address)
    opened, cookie = await _opened(call, principal, key_id)
    return Reply(_me(opened), 201, {"Set-Cookie": cookie})


@handles(ops.SIGN_OUT)
async def sign_out(call: Call) -> Reply:
    gate = _gate(call)
    token = gate.sessions.token_of(call.headers)
    if token and await gate.is_required():
        try:
            principal = await call.admit(frozenset(ROLES))
        except Unauthenticated:
            pass  # it is over already
        else:
            await call.services.audit.note(call, principal, "granted")
        await gate.sessions.close(token)
    return Reply(None, 204, {"Set-Cookie": gate.sessions.cookie(call.headers, call.scheme, "")})


@handles(ops.BEGIN)
async def begin(call: Call, request: ops.BeginSignIn) -> Response:
    gate = _gate(call)
    if gate.oidc is None:
        raise NotFound("sign-in with OIDC is not configured (auth.oidc_client_id)")
    address, cookie = await gate.oidc.begin(request.place, call.headers)
    answer = RedirectResponse(address, 303)
    answer.headers["Set-Cookie"] = _login_cookie(call, cookie, LOGIN_S)
    return answer


@handles(ops.CALLBACK)
async def callback(call: Call, request: ops.SignInCallback) -> Response:
    gate = _gate(call)
    if gate.oidc is None:
        raise NotFound("sign-in with OIDC is not configured (auth.oidc_client_id)")
    try:
        if request.error:
            raise Unauthenticated(f"the issuer refused the sign-in ({request.error[:100]})")
        cookie = cookie_of(call.headers, _LOGIN_COOKIE)
        principal, place = await gate.sign_in_at_issuer(cookie, request.state, request.code, call.address)
        _, cookie = await _opened(call, principal)
    except (Unauthenticated, NotAllowed, StoreError) as problem:
        await call.services.audit.note(call, None, "denied", str(problem))
        # A person sees this: the console shows what went wrong and offers to try again.
        answer = RedirectResponse(f"/?sign_in={_reason(problem)}", 303)
    else:
        answer = RedirectResponse(own_place(place), 303)
        answer.headers["Set-Cookie"] = cookie
    answer.headers.append("Set-Cookie", _login_cookie(call, "", 0))
    return answer


async def _opened(call: Call, principal: Principal, key_id: str = "") -> tuple[Principal, str]:
    """Open a session; returns the principal of its requests, and its cookie."""
    if not principal.may(VIEW):
        raise NotAllowed(f"{principal.name} is not allowed to use the console; the role {role_names(VIEW)} is required")
    call.principal = principal
    await call.services.audit.note(call, principal, "granted")
    sessions = _gate(call).sessions
    token, opened = await sessions.open(principal, key_id)
    return opened, sessions.cookie(call.headers, call.scheme, token)


def _me(principal: Principal) -> ops.Me:
    return ops.Me(
        name=principal.name,
        tenant=principal.tenant,
        project=principal.project,
        environment=principal.environment,
        roles=[role for role in ROLES if role in principal.roles],
        authenticated=principal.name != EVERYBODY or bool(principal.subject),
        expires_at=None if principal.expires_at is None else timestamp(principal.expires_at),
        csrf=principal.csrf,
        denied={
            f"{operation.method} {operation.path}": f"requires the role {role_names(operation.access)}"
            for operation in OPERATIONS
            if operation.access is not None and not principal.may(operation.access)
        },
        denied_signals={
            signal: f"requires the role {role_names(roles)}"
            for signal, roles in SIGNAL_ROLES.items()
            if not principal.may(roles)
        },
    )


def _reason(problem: ArclogError) -> str:
    return quote(str(problem)[:300], safe="")


def _login_cookie(call: Call, value: str, lasts: int) -> str:
    # SameSite=Lax: the cookie must be sent when the issuer redirects the browser back to this server.
    secure = _gate(call).sessions.secure(call.scheme)
    return f"{_LOGIN_COOKIE}={value}; Path={CALLBACK}; Max-Age={lasts}; HttpOnly; SameSite=Lax{secure}"


def _gate(call: Call) -> Gate:
    gate = call.services.gate
    if gate is None:
        raise NotFound("sign-in is not available on this server")
    return gate
