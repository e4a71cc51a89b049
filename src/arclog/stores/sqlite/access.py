"""API keys and the audit: the writer's and the reader's part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from arclog.model.errors import Conflict
from arclog.ports.access import AuditEntry, KeyRecord
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.reads import Execute

_ROLES = msgspec.json.Decoder(tuple[str, ...])


def add_key(tx: Tx, key: KeyRecord) -> None:
    named = msgspec.structs.asdict(key)
    named["roles"] = msgspec.json.encode(key.roles).decode()
    columns = ("key_id", "name", "hash", "tenant", "roles", "created_at", "project", "environment")
    tx.execute(SQL["add_key"], (*(named[column] for column in columns), key.expires_at, key.revoked_at))
    if not tx.changes():
        raise Conflict(f"there is a key {key.key_id} already")


def key(execute: Execute, key_id: str) -> KeyRecord | None:
    row = execute(SQL["key"], (key_id,)).fetchone()
    return None if row is None else _key(row)


def keys(execute: Execute, tenant: str) -> list[KeyRecord]:
    return [_key(row) for row in execute(SQL["keys"], (tenant,))]


def revoke_key(tx: Tx, key_id: str, at: int) -> KeyRecord | None:
    tx.execute(SQL["revoke_key"], (at, key_id))
    return key(tx.execute, key_id)


def has_keys(execute: Execute) -> bool:
    return bool(execute(SQL["has_keys"]).get)


def add_audit(tx: Tx, entries: Sequence[AuditEntry], keep_from: int) -> None:
    if keep_from > 0:
        tx.execute(SQL["forget_audit"], (keep_from,))
    for entry in entries:
        tx.execute(SQL["add_audit"], msgspec.structs.astuple(entry))


def audit(execute: Execute, tenant: str, decision: str, before: int, limit: int) -> list[tuple[int, AuditEntry]]:
    if tenant:
        rows = execute(SQL["audit_of_tenant"], (decision, before, limit, tenant))
    else:
        rows = execute(SQL["audit"], (decision, before, limit))
    return [(pos, AuditEntry(*entry)) for pos, *entry in rows]


def _key(row: Any) -> KeyRecord:
    key_id, name, hashed, tenant, roles, *rest = row
    return KeyRecord(key_id, name, hashed, tenant, _ROLES.decode(roles), *rest)
