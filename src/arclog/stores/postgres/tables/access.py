"""API keys and the audit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arclog.model.errors import Conflict
from arclog.model.ids import MAX_ID
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.stores.postgres.connection.pipeline import Call
from arclog.stores.postgres.connection.values import columns
from arclog.stores.postgres.part import Part, shown
from arclog.stores.records import (
    FORGOTTEN,
    audit_query,
    key_columns,
    key_record,
    session_columns,
    session_record,
)


class Access(Part):
    async def add_key(self, key: KeyRecord) -> None:
        if not await self._pool.write(self._sql["add_key"], *key_columns(key)):
            raise Conflict(f"there is a key {key.key_id} already")

    async def key(self, key_id: str) -> KeyRecord | None:
        rows = await self._pool.read(self._sql["key"], key_id)
        return key_record(rows[0]) if rows else None

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        return [key_record(row) for row in await self._pool.read(self._sql["keys"], tenant)]

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        _, rows = await self._pool.run([(self._sql["revoke_key"], (at, key_id)), (self._sql["key"], (key_id,))])
        return key_record(rows[0]) if rows else None

    async def has_keys(self) -> bool:
        [(found,)] = await self._pool.read(self._sql["has_keys"])
        return bool(found)

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        calls: list[Call] = [
            (self._sql["forget_sessions"], (session.created_at,)),
            (self._sql["add_session"], session_columns(session)),
        ]
        if most:
            calls.append((self._sql["trim_sessions"], (session.tenant, session.subject, most)))
        await self._pool.run(calls)

    async def session(self, digest: str) -> SessionRecord | None:
        rows = await self._pool.read(self._sql["session"], digest)
        return session_record(rows[0]) if rows else None

    async def remove_session(self, digest: str) -> bool:
        return bool(await self._pool.write(self._sql["remove_session"], digest))

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        if not entries:
            return
        rows = [(entry.at, *(shown(text) for text in msgspec.structs.astuple(entry)[1:])) for entry in entries]
        calls: list[Call] = [(self._sql["add_audit"], columns("itttttttt", rows))]
        if keep_from > 0:
            calls.insert(0, (self._sql["forget_audit"], (keep_from, FORGOTTEN + len(entries))))
        await self._pool.run(calls)

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        name, narrowed = audit_query(tenant, decision)
        rows = await self._pool.read(self._sql[name], *narrowed, before or MAX_ID, limit)
        return [(pos, AuditEntry(*entry)) for pos, *entry in rows]
