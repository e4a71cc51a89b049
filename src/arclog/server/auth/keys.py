"""API keys: `ark_<id>_<secret>`. The id is public and names the key; the secret is shown once and kept as an argon2id hash.

A verified key is remembered by its sha256, so that argon2 (slow by intent) runs once in each process; whether the key
was revoked is checked again every `auth.cache_s`. Callers cannot tell a wrong id from a wrong secret.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import re
import secrets
import string
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from arclog.model.config.extras import required
from arclog.model.config.settings import Settings
from arclog.model.errors import NotAllowed, NotFound, RequestRejected, TooManyRequests, Unauthenticated
from arclog.model.ids import MICROS, timestamp
from arclog.model.principal import ROLES, Principal, checked_name
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.storage.access import AccessBook, CreatedKey, KeyInfo, KeyRecord, NewKey
from arclog.ports.storage.store import Scope

if TYPE_CHECKING:
    from argon2 import PasswordHasher

# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


PREFIX = "ark_"
_FORM = re.compile(r"ark_(?P<id>[0-9a-z]{16})_(?P<secret>[0-9A-Za-z]{43})")
_ID_LETTERS = string.digits + string.ascii_lowercase
_LETTERS = string.digits + string.ascii_letters
#: Verified keys that are remembered, and verifications that may wait for their turn.
_REMEMBERED = 10_000
_WAITING = 64
_LONGEST_NAME = 128
#: argon2id with OWASP's parameters: 19 MiB, two passes, one lane. The secret itself has 256 bits.
_TIME, _MEMORY_KIB, _LANES = 2, 19_456, 1


def make_key(
    name: str,
    roles: Sequence[str],
    tenant: str,
    now: int,
    *,
    project: str = "",
    environment: str = "",
    expires_at: int | None = None,
) -> tuple[str, KeyRecord]:
    """A new key and the record to store. Raises RequestRejected."""
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise RequestRejected(f"a key's name has 1 to {_LONGEST_NAME} printable characters")
    unknown = [role for role in roles if role not in ROLES]
    if unknown or not roles:
        problem = f"{unknown[0][:64]!r} is not a role" if unknown else "a key requires a role"
        raise RequestRejected(f"{problem}; roles are {', '.join(ROLES)}")
    if expires_at is not None and expires_at <= now:
        raise RequestRejected("a key cannot expire before it is created")
    key_id = "".join(secrets.choice(_ID_LETTERS) for _ in range(16))
    text = f"{PREFIX}{key_id}_" + "".join(secrets.choice(_LETTERS) for _ in range(43))
    record = KeyRecord(
        key_id=key_id,
        name=name,
        hash=_hasher().hash(text),
        tenant=checked_name(tenant, "tenant"),
        roles=tuple(role for role in ROLES if role in roles),
        created_at=now,
        project=checked_name(project, "project") if project else "",
        environment=checked_name(environment, "environment") if environment else "",
        expires_at=expires_at,
    )
    return text, record


def shown(record: KeyRecord) -> KeyInfo:
    return KeyInfo(
        key_id=record.key_id,
        name=record.name,
        tenant=record.tenant,
        roles=record.roles,
        project=record.project,
        environment=record.environment,
        created_at=timestamp(record.created_at),
        expires_at=None if record.expires_at is None else timestamp(record.expires_at),
        revoked_at=None if record.revoked_at is None else timestamp(record.revoked_at),
    )


class _Proved(Struct):
    record: KeyRecord
    #: when it was last looked up in the store
    looked_at: float


class Keys:
    """Verifies API keys."""

    def __init__(self, book: AccessBook, clock: Clock, settings: Settings) -> None:
        self._book = book
        self._clock = clock
        self._cache_s = settings.number("auth.cache_s")
        self._proved: OrderedDict[bytes, _Proved] = OrderedDict()
        #: verifications in progress, by digest
        self._proofs: dict[bytes, asyncio.Task[KeyRecord]] = {}
        self._turn = asyncio.Semaphore(1)
        self._waiting = 0
        self._nobodys = ""

    async def cached(self, text: str) -> Principal | None:
        """The principal of a key that was verified before and is still valid; does not run argon2."""
        digest = _digest(text)
        verified = self._proved.get(digest)
        if verified is None:
            return None
        self._proved.move_to_end(digest)
        if self._clock.monotonic() - verified.looked_at >= self._cache_s:
            record = await self._book.key(verified.record.key_id)
            if record is None or record.hash != verified.record.hash:
                self._proved.pop(digest, None)
                return None
            verified.record, verified.looked_at = record, self._clock.monotonic()
        return self._holder(verified.record)

    async def prove(self, text: str) -> Principal:
        """The principal of a key. Raises Unauthenticated, or TooManyRequests when too many verifications wait for
        their turn.
        """
        digest = _digest(text)
        # Many requests may come with the same key at once, for example after a restart: it is verified once for all of
        # them.
        proof = self._proofs.get(digest)
        if proof is None:
            proof = self._proofs[digest] = asyncio.ensure_future(self._proof(text, digest))
            proof.add_done_callback(self._proved_now)
        return self._holder(await asyncio.shield(proof))

    def _proved_now(self, proof: asyncio.Task[KeyRecord]) -> None:
        self._proofs = {digest: other for digest, other in self._proofs.items() if other is not proof}
        if not proof.cancelled():
            proof.exception()  # marks the exception as retrieved; the caller may be gone

    async def _proof(self, text: str, digest: bytes) -> KeyRecord:
        form = _FORM.fullmatch(text)
        record = await self._book.key(form["id"]) if form else None
        if not await self._fits(text, record) or record is None:
            raise Unauthenticated("invalid API key; `arclog key create` creates one")
        self._proved[digest] = _Proved(record, self._clock.monotonic())
        while len(self._proved) > _REMEMBERED:
            self._proved.popitem(last=False)
        return record

    async def _fits(self, text: str, record: KeyRecord | None) -> bool:
        """Return whether a text is the key; equally slow for a key that does not exist."""
        if self._waiting >= _WAITING:
            raise TooManyRequests("too many keys are being checked; try again in a moment", retry_after_s=1)
        self._waiting += 1
        try:
            async with self._turn:
                return await asyncio.to_thread(self._verify, text, record)
        finally:
            self._waiting -= 1

    def _verify(self, text: str, record: KeyRecord | None) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        if not self._nobodys:
            self._nobodys = _hasher().hash(secrets.token_hex(32))
        try:
            _hasher().verify(self._nobodys if record is None else record.hash, text)
        except (VerificationError, InvalidHashError):
            return False
        return record is not None

    def _holder(self, record: KeyRecord) -> Principal:
        if record.revoked_at is not None:
            raise Unauthenticated(f"the key {record.key_id} was revoked; ask for a new one")
        if record.expires_at is not None and record.expires_at <= self._clock.now():
            raise Unauthenticated(f"the key {record.key_id} has expired; ask for a new one")
        return Principal(
            name=record.name,
            tenant=record.tenant,
            roles=frozenset(record.roles),
            project=record.project,
            environment=record.environment,
            subject=f"key-{record.key_id}",
        )


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _hasher() -> PasswordHasher:
    with required("server", "making and checking API keys"):
        from argon2 import PasswordHasher
    return PasswordHasher(_TIME, _MEMORY_KIB, _LANES)


# ── key book ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# API keys in the store, within a boundary, for the routes and, on the machine itself, for the command line.


#: Ten years; the longest lifetime of a key that expires.
_LONGEST_S = 10 * 366 * 86_400


class KeyBook:
    """Implements `ports.storage.access.KeyApi`."""

    def __init__(self, book: AccessBook, clock: Clock, boundary: Boundary) -> None:
        """A principal that is bound to a project or an environment creates and sees only keys that are bound to the
        same.
        """
        self._book = book
        self._clock = clock
        self._boundary = boundary

    async def create(self, new: NewKey) -> CreatedKey:
        now = self._clock.now()
        tenant, reach = self._boundary.home.tenant, self._boundary.reach
        project, environment = new.project or reach.project, new.environment or reach.environment
        if not self._boundary.sees(Scope(tenant, project, environment)):
            raise NotAllowed(f"callers bound to {self._boundary.binding} can only create keys with the same binding")
        span = None if new.expires_in_s is None else min(new.expires_in_s, _LONGEST_S)
        text, record = await asyncio.to_thread(
            make_key,
            new.name,
            new.roles,
            tenant,
            now,
            project=project,
            environment=environment,
            expires_at=None if span is None else now + span * MICROS,
        )
        first = not await self._book.has_keys()
        await self._book.add_key(record)
        return CreatedKey(text, shown(record), first)

    async def list(self) -> builtins.list[KeyInfo]:
        records = await self._book.keys(self._boundary.reach.tenant)
        return [shown(record) for record in records if self._boundary.sees(_scope_of(record))]

    async def revoke(self, key_id: str) -> KeyInfo:
        record = await self._book.key(key_id)
        if record is None or not self._boundary.sees(_scope_of(record)):
            raise NotFound(f"there is no key {key_id[:64]}; `arclog key list` and GET /api/keys list all keys")
        return shown(await self._book.revoke_key(key_id, self._clock.now()) or record)


def _scope_of(key: KeyRecord) -> Scope:
    return Scope(key.tenant, key.project, key.environment)
