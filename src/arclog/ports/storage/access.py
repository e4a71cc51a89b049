"""API keys, and the record of what callers were granted and denied: as a store keeps them, and as they are asked for.

Rules that every store keeps (`arclog.testing.conformance.store` proves them):
- A key is added once, read by its public id, and revoked for good; nothing else of it ever changes. The secret itself is
  never here, only its hash.
- `has_keys` stays True once a key was added: revoking the last one does not open a server.
- A session is added once, read by the digest of its token until it expires, and removed for good. The token is never here.
- Audit entries are appended in order and read newest first; none is ever changed. Those older than the caller's limit go.
"""

from __future__ import annotations

import builtins
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
    #: the only project and environment that it acts in; '' = all of them
    project: str = ""
    environment: str = ""
    expires_at: int | None = None
    revoked_at: int | None = None


class SessionRecord(Struct, frozen=True):
    """A browser session."""

    #: sha256 of the session's token, in hex
    digest: str
    #: the API key that it was opened with; '' when a token of an issuer was
    key_id: str
    name: str
    tenant: str
    roles: tuple[str, ...]
    subject: str
    created_at: int
    expires_at: int
    project: str = ""
    environment: str = ""


class AuditEntry(Struct, frozen=True):
    """One decision about one request."""

    at: int
    #: granted | denied
    decision: str
    #: the caller; '' if unknown
    principal: str
    #: '' if unknown
    tenant: str
    method: str
    #: the route as it is declared, or the path asked for when none fits
    route: str
    #: the parameters of the path: `execution_id=123`
    target: str
    #: the address of the client
    address: str
    #: why it was denied
    reason: str = ""


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key asked for."""

    name: str
    roles: tuple[str, ...]
    project: str = ""
    environment: str = ""
    #: None: it does not expire
    expires_in_s: int | None = None


class KeyShown(Struct, frozen=True):
    """The public metadata of a key, without its secret and hash."""

    key_id: str
    name: str
    tenant: str
    roles: tuple[str, ...]
    project: str
    environment: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class KeyMade(Struct, frozen=True):
    #: the key itself: shown this once, and kept nowhere
    key: str
    about: KeyShown
    #: whether it is the first one ever: from now on callers are asked who they are
    first: bool


class Audited(Struct, frozen=True):
    """One entry of the audit log."""

    position: int
    at: str
    #: granted | denied
    decision: str
    principal: str
    tenant: str
    method: str
    route: str
    target: str
    address: str
    reason: str


class KeyApi(Protocol):
    """Keys as an administrator sees them: those of a tenant, or (on the store itself) of all."""

    async def create(self, new: NewKey) -> KeyMade:
        """Make a key. Raises RequestRejected."""

    async def list(self) -> builtins.list[KeyShown]:
        """Oldest first, those that are over included."""

    async def revoke(self, key_id: str) -> KeyShown:
        """End it for good; one that was revoked before keeps its time. Raises NotFound."""


class AuditApi(Protocol):
    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> builtins.list[Audited]:
        """Decisions (granted, denied or all), newest first, before a position when that is given."""


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

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        """Keep a session; those that expired before it was created are removed, and the oldest of the same subject when it
        has more than `most` (0: any number).
        """

    async def session(self, digest: str) -> SessionRecord | None:
        """A session by the digest of its token, also when it has expired."""

    async def remove_session(self, digest: str) -> bool:
        """Forget a session; whether it was there."""

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        """Append entries, durably; those from before `keep_from` are removed."""

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        """Entries with their positions, newest first, before a position when that is given."""
