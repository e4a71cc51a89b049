"""Handlers of keys, audit and credentials in `operations.access`."""

from __future__ import annotations

from arclog.model.errors import NotFound, RequestRejected
from arclog.operations import access as ops
from arclog.operations.operation import ByName
from arclog.ports.secrets import SecretInfo
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
    found = await call.workspace.audit.page(decision=asked.decision, before=asked.before, limit=asked.limit)
    return ops.AuditPage(found, found[-1].position if len(found) == asked.limit else None)


# -- credentials -------------------------------------------------------------------------------------------------------


@handles(ops.PUT_CREDENTIAL)
async def put_credential(call: Call, asked: ByName, body: ops.NewCredential) -> SecretInfo:
    scope = _scope(body.tenant, body.project, body.environment)
    return await call.workspace.credentials.put(asked.name, body.value, scope)


@handles(ops.LIST_CREDENTIALS)
async def list_credentials(call: Call) -> ops.CredentialList:
    return ops.CredentialList(await call.workspace.credentials.list())


@handles(ops.REMOVE_CREDENTIAL)
async def remove_credential(call: Call, asked: ops.RemoveCredential) -> ops.Forgotten:
    scope = _scope(asked.tenant, asked.project, asked.environment)
    return ops.Forgotten(asked.name, await call.workspace.credentials.remove(asked.name, scope))


def _scope(tenant: str, project: str, environment: str) -> str:
    """TENANT/PROJECT/ENVIRONMENT, of which any part may be empty."""
    if "/" in tenant:
        raise NotFound(f"there is no tenant {tenant[:128]!r} for this caller")
    if "/" in project + environment:
        raise RequestRejected("a project and an environment have no `/` in their names")
    return f"{tenant}/{project}/{environment}"
