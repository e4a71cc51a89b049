"""Credentials of the caller's tenant, for the keychains of playbooks. They go in and never come out."""

from __future__ import annotations

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.model.errors import NotAllowed, NotFound, RequestRejected
from arclog.model.ids import timestamp
from arclog.model.principal import Principal, binding, checked_name
from arclog.ports.secrets import SecretInfo, Vault
from arclog.server.auth.access import BUILD, VIEW, allows, principal_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/credentials", tags=["access"])


class NewCredential(Struct, frozen=True, forbid_unknown_fields=True):
    """A secret to keep: a text, or a JSON object as text."""

    value: str
    #: the caller's own, or '': whoever names another has made a mistake, which is a 404
    tenant: str = ""
    #: '' = all projects, all environments of a project
    project: str = ""
    environment: str = ""


class CredentialList(Struct, frozen=True):
    credentials: list[SecretInfo]


class Forgotten(Struct, frozen=True):
    name: str
    scope: str
    removed: bool = True


_INFO = SecretInfo("crm", "acme/shop", ("client_id", "client_secret"), "2026-01-02T03:04:05.000000Z")


@router.put(
    "/{name}",
    dependencies=[allows(BUILD)],
    **documented(
        answer=SecretInfo,
        example=_INFO,
        takes=NewCredential,
        takes_example=NewCredential("the secret itself", project="shop"),
        errors=(404, 409),
    ),
)
async def put(name: str, request: Request) -> Response:
    """Store or replace a secret of the caller's tenant. No response ever contains its value."""
    asked = await body_of(request, NewCredential)
    scope = _scope(request, asked.tenant, asked.project, asked.environment)
    at = timestamp(services_of(request).clock.now())
    return answered(await _vault(request).put(name, scope, asked.value, at))


@router.get(
    "", dependencies=[allows(VIEW)], **documented(answer=CredentialList, example=CredentialList([_INFO]), errors=(404,))
)
async def listed(request: Request) -> Response:
    """List the names, scopes, field names and dates of the secrets in the caller's scope."""
    caller = principal_of(request)
    found = await _vault(request).infos()
    return answered(CredentialList([info for info in found if _is_valid_for(caller, info.scope)]))


@router.delete(
    "/{name}",
    dependencies=[allows(BUILD)],
    **documented(answer=Forgotten, example=Forgotten("crm", "acme/shop"), errors=(404,)),
)
async def remove(name: str, request: Request, tenant: str = "", project: str = "", environment: str = "") -> Response:
    """Remove a secret of the caller's tenant."""
    scope = _scope(request, tenant, project, environment)
    await _vault(request).remove(name, scope)
    return answered(Forgotten(name, scope))


def _scope(request: Request, tenant: str, project: str, environment: str) -> str:
    """The scope that a secret is kept for. Who is bound to a project or an environment keeps secrets for that alone."""
    caller = principal_of(request)
    if tenant not in ("", caller.tenant):
        raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")
    project, environment = project or caller.project, environment or caller.environment
    for name, what in ((project, "project"), (environment, "environment")):
        if name:
            checked_name(name, what)
    if environment and not project:
        raise RequestRejected("`environment` requires `project`")
    if not caller.reaches(caller.tenant, project, environment):
        bound = binding(caller.project, caller.environment)
        raise NotAllowed(f"{caller.name} is bound to {bound} and cannot manage other secrets")
    return "/".join(part for part in (caller.tenant, project, environment) if part)


def _is_valid_for(caller: Principal, scope: str) -> bool:
    """Whether runs that the caller reaches may use a secret of this scope."""
    tenant, project, environment, *_ = *scope.split("/"), "", ""
    return (
        tenant == caller.tenant
        and (not project or caller.project in ("", project))
        and (not environment or caller.environment in ("", environment))
    )


def _vault(request: Request) -> Vault:
    vault = services_of(request).vault
    if vault is None:
        raise NotFound("this server does not store credentials; workers have their own")
    return vault
