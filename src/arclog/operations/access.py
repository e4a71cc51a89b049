"""Access: browser sessions, API keys, the audit log and credentials."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from arclog.model.principal import ROLES
from arclog.operations.operation import ADMIN, BUILD, TEXT, VIEW, ByName, Operation
from arclog.ports.secrets import SecretInfo
from arclog.ports.storage.access import AuditedRequest, CreatedKey, KeyInfo, NewKey

_TAG = "access"

# -- sessions ----------------------------------------------------------------------------------------------------------


class Me(Struct, frozen=True):
    """The caller and its permissions."""

    name: str
    tenant: str
    #: '' where the operator's default is used
    project: str
    environment: str
    roles: list[str]
    #: False on a server that requires no authentication
    authenticated: bool
    #: when the session ends; null without one
    expires_at: str | None
    #: the token that requests of the session send as `X-Arclog-CSRF` when they change something; '' without a session
    csrf: str
    #: the reason, by `METHOD /path`; other operations are allowed
    denied: dict[str, str]
    #: by signal
    denied_signals: dict[str, str]


class SignIn(Struct, frozen=True):
    """The ways to sign in, and the signed-in caller."""

    #: whether callers must authenticate
    required: bool
    #: key, oidc
    methods: list[str]
    #: name of the OIDC issuer; '' without one
    issuer: str
    #: null if the caller is not signed in
    me: Me | None


class NewSession(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a session."""

    #: an API key
    key: str


class BeginSignIn(Struct, frozen=True, omit_defaults=True, rename={"place": "next"}):
    place: Annotated[str, Meta(description="The page to return to after the sign-in", max_length=2000)] = "/"


class SignInCallback(Struct, frozen=True, omit_defaults=True):
    code: Annotated[str, Meta(description="The authorization code of the issuer", max_length=4096)] = ""
    state: Annotated[str, Meta(description="The state of the request that started the sign-in", max_length=200)] = ""
    error: Annotated[str, Meta(description="The error of the issuer", max_length=200)] = ""


_ME = Me(
    "ada", "acme", "", "", ["viewer"], True, "2026-01-02T11:04:05.000000Z", "5f…",
    {"POST /api/keys": "requires the role admin"}, {"CANCEL": "requires the role admin or engineer or operator"},
)  # fmt: skip

ME = Operation(
    name="session.me",
    method="GET",
    path="/api/me",
    access=frozenset(ROLES),
    tag=_TAG,
    text="Describe the caller and the requests that it is not allowed to make.",
    answer=Me,
    example=_ME,
    errors=(),
)
SESSION = Operation(
    name="session.session",
    method="GET",
    path="/api/session",
    access=None,
    tag=_TAG,
    text="Describe the ways to sign in and the current session of this browser.",
    answer=SignIn,
    example=SignIn(True, ["key", "oidc"], "login.example", _ME),
    errors=(),
)
SIGN_IN = Operation(
    name="session.sign_in",
    method="POST",
    path="/api/session",
    access=None,
    tag=_TAG,
    text="Open a session with an API key. The response sets a cookie.",
    takes=NewSession,
    takes_example={"key": "ark_4k2m7q9x1c5v8b3n_…"},
    reading="by handler",
    answer=Me,
    example=_ME,
    status=201,
    errors=(409,),
)
SIGN_OUT: Operation[None] = Operation(
    name="session.sign_out",
    method="DELETE",
    path="/api/session",
    access=None,
    tag=_TAG,
    text="Close the session of this browser.",
    status=204,
    outcome="The session is closed.",
    errors=(),
)
BEGIN: Operation[None] = Operation(
    name="session.begin",
    method="GET",
    path="/api/session/oidc",
    access=None,
    tag=_TAG,
    text="Start signing in at the OIDC issuer.",
    params=BeginSignIn,
    status=303,
    media=TEXT,
    outcome="Redirect of the browser.",
)
CALLBACK: Operation[None] = Operation(
    name="session.callback",
    method="GET",
    path="/api/session/callback",
    access=None,
    tag=_TAG,
    text="Complete the sign-in at the OIDC issuer and open a session.",
    params=SignInCallback,
    status=303,
    media=TEXT,
    outcome="Redirect of the browser.",
)

# -- keys --------------------------------------------------------------------------------------------------------------


class KeyList(Struct, frozen=True):
    """Keys, oldest first."""

    keys: list[KeyInfo]


class ByKeyId(Struct, frozen=True):
    key_id: str


_SHOWN = KeyInfo(
    key_id="4k2m7q9x1c5v8b3n",
    name="ci",
    tenant="acme",
    roles=("operator",),
    project="",
    environment="",
    created_at="2026-01-02T03:04:05.000000Z",
    expires_at=None,
    revoked_at=None,
)

CREATE_KEY = Operation(
    name="keys.create",
    method="POST",
    path="/api/keys",
    access=ADMIN,
    tag=_TAG,
    text="Create a key for the caller's tenant. The `key` is returned only once.",
    takes=NewKey,
    takes_example=NewKey("ci", ("operator",)),
    answer=CreatedKey,
    example=CreatedKey("ark_4k2m7q9x1c5v8b3n_…", _SHOWN, first=False),
    status=201,
    errors=(),
)
LIST_KEYS = Operation(
    name="keys.listed",
    method="GET",
    path="/api/keys",
    access=ADMIN,
    tag=_TAG,
    text="List the tenant's keys, oldest first, without their secrets.",
    answer=KeyList,
    example=KeyList([_SHOWN]),
    errors=(),
)
REVOKE_KEY = Operation(
    name="keys.revoke",
    method="DELETE",
    path="/api/keys/{key_id}",
    access=ADMIN,
    tag=_TAG,
    text="Revoke a key permanently. Every server applies this within `auth.cache_s`.",
    params=ByKeyId,
    answer=KeyInfo,
    example=_SHOWN,
    repeatable=True,
)

# -- audit -------------------------------------------------------------------------------------------------------------


class AuditPage(Struct, frozen=True):
    """A page of the audit log, newest entries first."""

    entries: list[AuditedRequest]
    #: the `before` of the next page; None if there is none
    next: int | None


class ListAudit(Struct, frozen=True, omit_defaults=True):
    decision: Annotated[Literal["", "denied", "granted"], Meta(description="Only entries with this decision")] = ""
    before: Annotated[int, Meta(description="Only entries before this position", ge=0, lt=1 << 62)] = 0
    limit: Annotated[int, Meta(description="Maximum number of items", ge=1, le=1000)] = 100


_ENTRY = AuditedRequest(
    position=7,
    at="2026-01-02T03:04:05.000000Z",
    decision="granted",
    principal="ci",
    tenant="acme",
    method="POST",
    route="/api/executions/{execution_id}/cancel",
    target="execution_id=318301234567890944",
    address="10.0.0.7",
    reason="ci is not allowed to do this; the role admin or engineer or operator is required",
)

AUDIT = Operation(
    name="audit.audit",
    method="GET",
    path="/api/audit",
    access=ADMIN,
    tag=_TAG,
    text="List granted and denied requests of the caller's tenant, newest first. For the next page, send `next` as `before`.",
    params=ListAudit,
    answer=AuditPage,
    example=AuditPage([_ENTRY], None),
    tenant_wide=True,
)

# -- credentials -------------------------------------------------------------------------------------------------------


class NewCredential(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret to store: a text, or a JSON object as text."""

    value: str
    #: the caller's own, or ''; naming another tenant is an error (404)
    tenant: str = ""
    #: '' = all projects, all environments of a project
    project: str = ""
    environment: str = ""


class CredentialList(Struct, frozen=True):
    """Secrets, without their values."""

    credentials: list[SecretInfo]


class CredentialRemoved(Struct, frozen=True):
    """The secret that was removed."""

    name: str
    scope: str
    removed: bool = True


class RemoveCredential(Struct, frozen=True, omit_defaults=True):
    name: str
    tenant: str = ""
    project: str = ""
    environment: str = ""


_INFO = SecretInfo("crm", "acme/shop", ("client_id", "client_secret"), "2026-01-02T03:04:05.000000Z")

PUT_CREDENTIAL = Operation(
    name="credentials.put",
    method="PUT",
    path="/api/credentials/{name}",
    access=BUILD,
    tag=_TAG,
    text="Store or replace a secret of the caller's tenant. No response ever contains its value.",
    params=ByName,
    takes=NewCredential,
    takes_example=NewCredential("the secret itself", project="shop"),
    answer=SecretInfo,
    example=_INFO,
    errors=(404, 409),
    repeatable=True,
)
LIST_CREDENTIALS = Operation(
    name="credentials.listed",
    method="GET",
    path="/api/credentials",
    access=VIEW,
    tag=_TAG,
    text="List the names, scopes, field names and dates of the secrets in the caller's scope.",
    answer=CredentialList,
    example=CredentialList([_INFO]),
)
REMOVE_CREDENTIAL = Operation(
    name="credentials.remove",
    method="DELETE",
    path="/api/credentials/{name}",
    access=BUILD,
    tag=_TAG,
    text="Remove a secret of the caller's tenant.",
    params=RemoveCredential,
    answer=CredentialRemoved,
    example=CredentialRemoved("crm", "acme/shop"),
)
