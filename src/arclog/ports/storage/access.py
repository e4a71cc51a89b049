"""API keys, sessions and the audit log of callers.

Rules that every store keeps (`arclog.testing.conformance.store` checks them):
- A key is added once, read by its public id, and revoked for good; nothing else of it ever changes. Only the hash of
  the secret is stored.
- `has_keys` stays True once a key was added: revoking the last one does not open a server.
- A session is added once, read by the digest of its token until it expires, and removed for good. The token is not
  stored.
- Audit entries are appended in order and read newest first; none is ever changed. Entries older than the caller's limit
  are removed.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class KeyRecord(Struct, frozen=True):
    """An API key, without its secret."""

    #: the public part of the key, before its secret
    key_id: str
    name: str
    #: argon2id, in its usual text form
    hash: str
    tenant: str
    roles: tuple[str, ...]
    created_at: int
    #: the only project and environment that it can access; '' for all
    project: str = ""
    environment: str = ""
    expires_at: int | None = None
    revoked_at: int | None = None


class SessionRecord(Struct, frozen=True):
    """A browser session."""

    #: sha256 of the session's token, in hex
    digest: str
    #: the API key that opened it; '' if an issuer's token did
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
    """The decision about one request."""

    at: int
    #: granted | denied
    decision: str
    #: the caller; '' if unknown
    principal: str
    #: '' if unknown
    tenant: str
    method: str
    #: the declared route, or the requested path if none matches
    route: str
    #: the parameters of the path: `execution_id=123`
    target: str
    #: the address of the client
    address: str
    #: why it was denied
    reason: str = ""


class NewKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a new key."""

    name: str
    roles: tuple[str, ...]
    project: str = ""
    environment: str = ""
    #: None if it does not expire
    expires_in_s: int | None = None


class KeyInfo(Struct, frozen=True):
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


class CreatedKey(Struct, frozen=True):
    #: the key itself: shown only once, and not stored
    key: str
    about: KeyInfo
    #: whether it is the first key ever: from now on callers must authenticate
    first: bool


class AuditedRequest(Struct, frozen=True):
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
    """Management of keys: those of a tenant, or (on the store itself) of all."""

    async def create(self, new: NewKey) -> CreatedKey:
        """Create a key. Raises RequestRejected."""

    async def list(self) -> builtins.list[KeyInfo]:
        """Return all keys, oldest first, including expired and revoked ones."""

    async def revoke(self, key_id: str) -> KeyInfo:
        """Revoke a key for good; one that was revoked before keeps its time. Raises NotFound."""


class AuditApi(Protocol):
    async def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> builtins.list[AuditedRequest]:
        """Return decisions (granted, denied or all), newest first, before a position if given."""


class AccessBook(Protocol):
    async def add_key(self, key: KeyRecord) -> None:
        """Store a key. Raises Conflict if its id is taken."""

    async def key(self, key_id: str) -> KeyRecord | None:
        """Return a key by its public id, even if it has expired or was revoked."""

    async def keys(self, tenant: str = "") -> list[KeyRecord]:
        """Return all keys (of one tenant), oldest first."""

    async def revoke_key(self, key_id: str, at: int) -> KeyRecord | None:
        """Revoke a key; None if there is none. One that was revoked before keeps its time."""

    async def has_keys(self) -> bool:
        """Return whether there ever was a key."""

    async def add_session(self, session: SessionRecord, most: int = 0) -> None:
        """Store a session. Expired sessions are removed, and the oldest of the same subject if it has more than `most`.

        0 for any number of sessions.
        """

    async def session(self, digest: str) -> SessionRecord | None:
        """Return a session by the digest of its token, even if it has expired."""

    async def remove_session(self, digest: str) -> bool:
        """Remove a session. Returns whether it existed."""

    async def add_audit(self, entries: Sequence[AuditEntry], *, keep_from: int = 0) -> None:
        """Append entries, durably; remove those from before `keep_from`."""

    async def trim_audit(self, tenant: str, principal: str, of_caller: int, of_tenant: int) -> None:
        """Remove the oldest entries of a caller above `of_caller`, then of its tenant above `of_tenant`.

        Removes a bounded number per call.
        """

    async def audit(
        self, *, tenant: str = "", decision: str = "", before: int = 0, limit: int = 100
    ) -> list[tuple[int, AuditEntry]]:
        """Return entries with their positions, newest first, before a position if given."""
