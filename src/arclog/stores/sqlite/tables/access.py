"""API keys and the audit: the writer's and the reader's part."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arclog.model.errors import Conflict
from arclog.model.ids import MAX_ID
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.stores.records import (
    FORGOTTEN,
    audit_query,
    key_columns,
    key_record,
    session_columns,
    session_record,
)
from arclog.stores.sqlite.lanes import Tx
from arclog.stores.sqlite.queries import SQL
from arclog.stores.sqlite.reads import Execute


def add_key(tx: Tx, key: KeyRecord) -> None:
    tx.execute(SQL["add_key"], key_columns(key))
    if not tx.changes():
        raise Conflict(f"there is a key {key.key_id} already")


def key(execute: Execute, key_id: str) -> KeyRecord | None:
    row = execute(SQL["key"], (key_id,)).fetchone()
    return None if row is None else key_record(row)


def keys(execute: Execute, tenant: str) -> list[KeyRecord]:
    return [key_record(row) for row in execute(SQL["keys"], (tenant,))]


def revoke_key(tx: Tx, key_id: str, at: int) -> KeyRecord | None:
    tx.execute(SQL["revoke_key"], (at, key_id))
    return key(tx.execute, key_id)


def has_keys(execute: Execute) -> bool:
    return bool(execute(SQL["has_keys"]).get)


def add_session(tx: Tx, session: SessionRecord, most: int) -> None:
    tx.execute(SQL["forget_sessions"], (session.created_at,))
    tx.execute(SQL["add_session"], session_columns(session))
    if most:
        tx.execute(SQL["trim_sessions"], (session.tenant, session.subject, most))


def session(execute: Execute, digest: str) -> SessionRecord | None:
    row = execute(SQL["session"], (digest,)).fetchone()
    return None if row is None else session_record(row)


def remove_session(tx: Tx, digest: str) -> bool:
    tx.execute(SQL["remove_session"], (digest,))
    return bool(tx.changes())


def add_audit(tx: Tx, entries: Sequence[AuditEntry], keep_from: int) -> None:
    if keep_from > 0:
        tx.execute(SQL["forget_audit"], (keep_from, FORGOTTEN + len(entries)))
    for entry in entries:
        tx.execute(SQL["add_audit"], msgspec.structs.astuple(entry))


def audit(execute: Execute, tenant: str, decision: str, before: int, limit: int) -> list[tuple[int, AuditEntry]]:
    name, narrowed = audit_query(tenant, decision)
    rows = execute(SQL[name], (*narrowed, before or MAX_ID, limit))
    return [(pos, AuditEntry(*entry)) for pos, *entry in rows]
