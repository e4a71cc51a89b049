"""What a store keeps about callers: API keys, and the record of what callers were granted and denied.

Rules that every store keeps (`arclog.testing.conformance.store` proves them):
- A key is added once, read by its public id, and revoked for good; nothing else of it ever changes. The secret itself is
  never here, only its hash.
- `has_keys` stays True once a key was added: revoking the last one does not open a server.
- Audit entries are appended in order and read newest first; none is ever changed. Those older than the caller's limit go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class KeyRecord(Struct, frozen=True):
    """An API key, without its secret."""

    #: public: the part of the key before its secret
    key_id: str
    name: str
    #: argon2id, in its usual text form
    hash: str
    tenant: str
    roles: tuple[str, ...]
    created_at: int
    #: where its runs go when a request names no other; '' = the operator's default
    project: str = ""
    environment: str = ""
    expires_at: int | None = None
    revoked_at: int | None = None


class AuditEntry(Struct, frozen=True):
    """One decision about one request."""

    at: int
    #: granted | denied
    decision: str
    #: who asked; '' when nobody can tell
    principal: str
    #: '' when nobody can tell
    tenant: str
    method: str
    #: the route as it is declared, or the path asked for when none fits
    route: str
    #: what the path names: `execution_id=123`
    target: str
    #: where the request came from
    address: str
    #: why it was denied
    reason: str = ""


class AccessBook(Protocol):
    async def add_key(self, key: KeyRecord) -> None:
        """Keep a key. Raises Conflict when its id is taken."""

    async def key(self, key_id: str) -> KeyRecord | None:
        """A key by its public id, also when it is over."""

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        """All keys (of one tenant), oldest first."""

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        """End a key; None when there is none. One that was revoked before keeps its time."""

    async def has_keys(self) -> bool:
        """Whether there ever was a key."""

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        """Append entries, durably; those from before `keep_from` are removed."""

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        """Entries with their positions, newest first, before a position when that is given."""
