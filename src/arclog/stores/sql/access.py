"""API keys, sessions and the audit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from arclog.model.errors import Conflict
from arclog.model.ids import MAX_ID
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.stores.records import key_columns, key_record, session_columns, session_record
from arclog.stores.sql.part import Call, SqlPart

#: entries of the audit that go at a time, beside as many as come
_FORGOTTEN = 500


class Access(SqlPart):
    async def add_key(self, key: KeyRecord) -> None:
        if not await self._write("add_key", *key_columns(key)):
            raise Conflict(f"there is a key {key.key_id} already")

    async def key(self, key_id: str) -> KeyRecord | None:
        rows = await self._look_up("key", key_id)
        return key_record(rows[0]) if rows else None

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        return [key_record(row) for row in await self._list("keys", tenant)]

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        _, rows = await self._run([("revoke_key", (at, key_id)), ("key", (key_id,))])
        return key_record(rows[0]) if rows else None

    async def has_keys(self) -> bool:
        [(some,)] = await self._look_up("has_keys")
        return bool(some)

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        calls: list[Call] = [("forget_sessions", (session.created_at,)), ("add_session", session_columns(session))]
        if most:
            calls.append(("trim_sessions", (session.tenant, session.subject, most)))
        await self._run(calls)

    async def session(self, digest: str) -> SessionRecord | None:
        rows = await self._look_up("session", digest)
        return session_record(rows[0]) if rows else None

    async def remove_session(self, digest: str) -> bool:
        return bool(await self._write("remove_session", digest))

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        if not entries:
            return
        rows = [(entry.at, *map(self._shown, msgspec.structs.astuple(entry)[1:])) for entry in entries]
        calls = self._each("add_audit", "itttttttt", rows)
        if keep_from > 0:
            calls.insert(0, ("forget_audit", (keep_from, _FORGOTTEN + len(entries))))
        await self._run(calls)

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        narrowed = {"of_tenant": tenant, "by_decision": decision}
        name = "_".join(["audit", *(each for each, value in narrowed.items() if value)])
        rows = await self._list(name, *filter(None, narrowed.values()), before or MAX_ID, limit)
        return [(pos, AuditEntry(*entry)) for pos, *entry in rows]
