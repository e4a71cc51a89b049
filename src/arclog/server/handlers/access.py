"""Handlers of keys, audit and credentials in `operations.access`."""

from __future__ import annotations

from arclog.model.errors import NotAllowed, NotFound, RequestRejected
from arclog.model.ids import timestamp
from arclog.model.principal import Principal, binding, checked_name
from arclog.operations import access as ops
from arclog.operations.operation import ByName
from arclog.ports.secrets import SecretInfo, Vault
from arclog.ports.storage.access import KeyMade, KeyShown, NewKey
from arclog.server.call import Call
from arclog.server.dispatch import handles


@handles(ops.CREATE_KEY)
async def create_key(call: Call, body: NewKey) -> KeyMade:
    made = await call.workspace.keys.create(body)
    call.services.key_made()
    return made


@handles(ops.LIST_KEYS)
async def list_keys(call: Call) -> ops.KeyList:
    return ops.KeyList(await call.workspace.keys.list())


@handles(ops.REVOKE_KEY)
async def revoke_key(call: Call, asked: ops.ByKeyId) -> KeyShown:
    return await call.workspace.keys.revoke(asked.key_id)


@handles(ops.AUDIT)
async def audit(call: Call, asked: ops.ListAudit) -> ops.AuditPage:
    found = await call.services.audit.page(call.principal.tenant, asked.decision, asked.before, asked.limit)
    return ops.AuditPage(found, found[-1].position if len(found) == asked.limit else None)


# -- credentials -------------------------------------------------------------------------------------------------------


@handles(ops.PUT_CREDENTIAL)
async def put_credential(call: Call, asked: ByName, body: ops.NewCredential) -> SecretInfo:
    scope = _scope(call.principal, body.tenant, body.project, body.environment)
    at = timestamp(call.services.clock.now())
    return await _vault(call).put(asked.name, scope, body.value, at)


@handles(ops.LIST_CREDENTIALS)
async def list_credentials(call: Call) -> ops.CredentialList:
    found = await _vault(call).infos()
    return ops.CredentialList([info for info in found if _is_valid_for(call.principal, info.scope)])


@handles(ops.REMOVE_CREDENTIAL)
async def remove_credential(call: Call, asked: ops.RemoveCredential) -> ops.Forgotten:
    scope = _scope(call.principal, asked.tenant, asked.project, asked.environment)
    await _vault(call).remove(asked.name, scope)
    return ops.Forgotten(asked.name, scope)


def _scope(caller: Principal, tenant: str, project: str, environment: str) -> str:
    """The scope that a secret is kept for. Who is bound to a project or an environment keeps secrets for that alone."""
    if tenant not in ("", caller.tenant):
        raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")
    project, environment = project or caller.project, environment or caller.environment
    for name, what in ((project, "project"), (environment, "environment")):
        if name:
            checked_name(name, what)
    if environment and not project:
        raise RequestRejected(
            "`environment` needs `project`: a secret is valid in a tenant, a project or an environment of one"
        )
    if not caller.reaches(caller.tenant, project, environment):
        bound = binding(caller.project, caller.environment)
        raise NotAllowed(f"{caller.name} is bound to {bound} and looks after no secrets of others")
    return "/".join(part for part in (caller.tenant, project, environment) if part)


def _is_valid_for(caller: Principal, scope: str) -> bool:
    """Whether runs that the caller reaches may use a secret of this scope."""
    tenant, project, environment, *_ = *scope.split("/"), "", ""
    return (
        tenant == caller.tenant
        and (not project or caller.project in ("", project))
        and (not environment or caller.environment in ("", environment))
    )


def _vault(call: Call) -> Vault:
    vault = call.services.vault
    if vault is None:
        raise NotFound("this server keeps no credentials; they are its workers' own")
    return vault
