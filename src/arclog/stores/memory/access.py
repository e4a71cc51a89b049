"""API keys, sessions, the audit, and sealed credentials."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.model.errors import Conflict
from arclog.ports.secrets import SealedSecret, SecretInfo
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.stores.memory.tables import Tables


class Access(Tables):
    async def add_key(self, key: KeyRecord) -> None:
        self._check_open()
        if key.key_id in self._callers:
            raise Conflict(f"there is a key {key.key_id} already")
        self._callers[key.key_id] = key

    async def key(self, key_id: str) -> KeyRecord | None:
        self._check_open()
        return self._callers.get(key_id)

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        self._check_open()
        found = [key for key in self._callers.values() if tenant in ("", key.tenant)]
        return sorted(found, key=lambda key: (key.created_at, key.key_id))

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        self._check_open()
        found = self._callers.get(key_id)
        if found is not None and found.revoked_at is None:
            found = self._callers[key_id] = replace(found, revoked_at=at)
        return found

    async def has_keys(self) -> bool:
        self._check_open()
        return bool(self._callers)

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        self._check_open()
        now = session.created_at
        self._sessions = {digest: each for digest, each in self._sessions.items() if each.expires_at > now}
        self._sessions[session.digest] = session
        subject = (session.tenant, session.subject)
        own = sorted(
            (one for one in self._sessions.values() if (one.tenant, one.subject) == subject),
            key=lambda one: (-one.created_at, one.digest),
        )
        for one in own[most:] if most else ():
            del self._sessions[one.digest]

    async def session(self, digest: str) -> SessionRecord | None:
        self._check_open()
        return self._sessions.get(digest)

    async def remove_session(self, digest: str) -> bool:
        self._check_open()
        return self._sessions.pop(digest, None) is not None

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        self._check_open()
        self._audit = [each for each in self._audit if each[1].at >= keep_from]
        for entry in entries:
            self._audited += 1
            self._audit.append((self._audited, entry))

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        self._check_open()
        found = [
            (position, entry)
            for position, entry in reversed(self._audit)
            if tenant in ("", entry.tenant) and decision in ("", entry.decision) and (not before or position < before)
        ]
        return found[:limit]

    # -- sealed credentials -----------------------------------------------------------------------------------------

    async def put_secret(self, secret: SealedSecret) -> None:
        self._check_open()
        if any(each.key != secret.key for each in self._sealed.values()):
            raise Conflict(f"the secrets of the store are sealed with another key than {secret.key}")
        self._sealed[secret.info.name, secret.info.scope] = secret

    async def secret(self, name: str, scopes: Sequence[str]) -> SealedSecret | None:
        self._check_open()
        found = (self._sealed.get((name, scope)) for scope in sorted(scopes, key=len, reverse=True))
        return next((each for each in found if each is not None), None)

    async def secrets(self) -> list[SecretInfo]:
        self._check_open()
        return [each.info for _, each in sorted(self._sealed.items(), key=lambda item: item[0])]

    async def secrets_key(self) -> str:
        self._check_open()
        return next((each.key for each in self._sealed.values()), "")

    async def remove_secret(self, name: str, scope: str) -> bool:
        self._check_open()
        return self._sealed.pop((name, scope), None) is not None
