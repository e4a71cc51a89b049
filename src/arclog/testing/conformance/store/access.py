"""Rules of API keys and of the audit."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arclog.model.errors import Conflict
from arclog.ports.storage.access import AuditEntry, KeyRecord, SessionRecord
from arclog.testing.conformance.store.base import Rules, World

KEY = KeyRecord("k1", "ci", "$argon2id$…", "t1", ("operator", "viewer"), 5, "p", "e", expires_at=99)


SESSION = SessionRecord("ab" * 32, "k1", "ada", "t1", ("viewer",), "key-k1", 5, 50, "p", "e")


class AccessRules(Rules):
    async def test_a_key_is_kept_as_it_is(self, world: World) -> None:
        store = world.store
        other = KeyRecord("k2", "other", "h", "t2", ("worker",), 4)
        await store.add_key(KEY)
        await store.add_key(other)
        assert await store.key("k1") == KEY
        assert await store.key("k3") is None
        assert await store.keys() == [other, KEY]
        assert await store.keys("t1") == [KEY]
        assert await store.keys("t3") == []

    async def test_a_key_id_is_taken_once(self, world: World) -> None:
        await world.store.add_key(KEY)
        with pytest.raises(Conflict):
            await world.store.add_key(replace(KEY, tenant="t2"))
        assert await world.store.keys() == [KEY]

    async def test_a_key_is_revoked_for_good(self, world: World) -> None:
        store = world.store
        await store.add_key(KEY)
        assert await store.revoke_key("k1", 50) == replace(KEY, revoked_at=50)
        assert await store.revoke_key("k1", 60) == replace(KEY, revoked_at=50)
        assert await store.key("k1") == replace(KEY, revoked_at=50)
        assert await store.revoke_key("k2", 50) is None

    async def test_a_store_that_had_a_key_has_keys(self, world: World) -> None:
        assert not await world.store.has_keys()
        await world.store.add_key(KEY)
        await world.store.revoke_key("k1", 50)
        assert await world.store.has_keys()

    async def test_a_session_is_kept_until_it_is_removed(self, world: World) -> None:
        store = world.store
        await store.add_session(SESSION)
        assert await store.session(SESSION.digest) == SESSION
        assert await store.session("cd" * 32) is None
        assert await store.remove_session(SESSION.digest)
        assert not await store.remove_session(SESSION.digest)
        assert await store.session(SESSION.digest) is None

    async def test_the_oldest_sessions_of_a_subject_go_when_it_has_too_many(self, world: World) -> None:
        store = world.store
        digests = [f"{number:02x}" * 32 for number in range(4)]
        for number, digest in enumerate(digests):
            await store.add_session(replace(SESSION, digest=digest, created_at=SESSION.created_at + number), 2)
        await store.add_session(replace(SESSION, digest="ff" * 32, subject="somebody else"), 2)
        kept = [digest for digest in (*digests, "ff" * 32) if await store.session(digest) is not None]
        assert kept == [*digests[2:], "ff" * 32]

    async def test_sessions_that_have_expired_go_with_the_next_one(self, world: World) -> None:
        store = world.store
        longer = replace(SESSION, digest="cd" * 32, expires_at=51)
        await store.add_session(SESSION)
        await store.add_session(longer)
        await store.add_session(replace(SESSION, digest="ef" * 32, created_at=50, expires_at=90))
        assert await store.session(SESSION.digest) is None
        assert await store.session(longer.digest) == longer

    async def test_the_audit_is_read_newest_first(self, world: World) -> None:
        store = world.store
        await store.add_audit([_entry(1, "granted", "t1"), _entry(2, "denied", "t2")])
        await store.add_audit([_entry(3, "denied", "t1", "no such role")])

        async def times(tenant: str = "", decision: str = "", before: int = 0, limit: int = 100) -> list[int]:
            found = await store.audit(tenant=tenant, decision=decision, before=before, limit=limit)
            return [entry.at for _, entry in found]

        assert await times() == [3, 2, 1]
        assert await times(limit=2) == [3, 2]
        assert await times(tenant="t1") == [3, 1]
        assert await times(tenant="t1", decision="granted") == [1]
        assert await times(decision="denied") == [3, 2]
        (position, entry), *_ = await store.audit()
        assert entry == _entry(3, "denied", "t1", "no such role")
        assert await times(before=position) == [2, 1]

    async def test_old_entries_go_and_their_positions_are_not_given_again(self, world: World) -> None:
        store = world.store
        await store.add_audit([_entry(at, "granted", "t1") for at in (1, 2, 3)])
        last = (await store.audit(limit=1))[0][0]
        await store.add_audit([_entry(9, "granted", "t1")], keep_from=9)
        ((position, entry),) = await store.audit()
        assert entry.at == 9
        assert position > last


def _entry(at: int, decision: str, tenant: str, reason: str = "") -> AuditEntry:
    return AuditEntry(at, decision, "ci", tenant, "POST", "/api/x/{id}", "id=1", "127.0.0.1", reason)
