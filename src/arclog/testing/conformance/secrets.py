"""The rules of `arclog.ports.secrets.SecretBook` as tests, for every store that several servers share.

    class TestMyStore(SecretsContract):
        @pytest.fixture
        def make_books(self):
            return lambda: (MyStore(url), MyStore(url))

The two are those of two servers: what one does, the other sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import pytest

from arclog.model.errors import Conflict
from arclog.ports.secrets import SealedSecret, SecretBook, SecretInfo

# ── keeping ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of sealed secrets: their content, their scopes and their key.

AT = "2026-01-02T03:04:05.000000Z"


class Book(SecretBook, Protocol):
    """A book that is opened and closed."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


MakeBooks = Callable[[], tuple[Book, Book]]
Pair = tuple[Book, Book]


def sealed(name: str, scope: str, data: bytes = b"\x00sealed\xff", *, key: str = "k1") -> SealedSecret:
    fields = ("user", "pass\x00wörd", '"') if data else ()
    return SealedSecret(SecretInfo(name, scope, fields, AT), key, b"\x00" * 12, data)


class SecretsContract:
    @pytest.fixture
    def make_books(self) -> MakeBooks:
        pytest.fail("a subclass of SecretsContract gives make_books()")

    @pytest.fixture
    async def books(self, make_books: MakeBooks) -> AsyncIterator[Pair]:
        first, second = make_books()
        await first.open()
        await second.open()
        yield first, second
        await first.close()
        await second.close()

    async def test_a_secret_is_returned_unchanged(self, books: Pair) -> None:
        first, second = books
        for sealed_secret in (
            sealed("a", "t/p/e"),
            sealed("empty", "t", b""),
            sealed("large", "t", bytes(range(256)) * 300),
        ):
            await first.put_secret(sealed_secret)
            assert await second.secret(sealed_secret.info.name, [sealed_secret.info.scope]) == sealed_secret
        assert await second.secret("b", ["t/p/e"]) is None
        assert await second.secret("a", []) is None

    async def test_a_later_secret_replaces_the_earlier_one(self, books: Pair) -> None:
        first, second = books
        await first.put_secret(sealed("a", "t", b"one"))
        await second.put_secret(sealed("a", "t", b"two"))
        read = await first.secret("a", ["t"])
        assert read is not None
        assert read.data == b"two"
        assert len(await first.secrets()) == 1

    async def test_the_longest_scope_wins_and_no_other_is_seen(self, books: Pair) -> None:
        first, second = books
        for scope in ("t", "t/p", "t/p/e", "x", "tt"):
            await first.put_secret(sealed("a", scope, scope.encode()))
        for scopes in (["t", "t/p", "t/p/e"], ["t/p/e", "t/p", "t"], ["t/p/e"]):
            read = await second.secret("a", scopes)
            assert read is not None
            assert read.data == b"t/p/e"
        read = await second.secret("a", ["t/q/e", "t/q", "t"])
        assert read is not None
        assert read.info.scope == "t"
        assert await second.secret("a", ["y/p/e", "y/p", "y"]) is None
        assert await second.secret("A", ["t"]) is None

    async def test_all_secrets_are_listed_by_name_and_scope(self, books: Pair) -> None:
        first, second = books
        for name, scope in (("b", "t"), ("a", "t/p"), ("B", "t"), ("a", "t")):
            await first.put_secret(sealed(name, scope))
        assert [(info.name, info.scope) for info in await second.secrets()] == [
            ("B", "t"),
            ("a", "t"),
            ("a", "t/p"),
            ("b", "t"),
        ]
        assert (await second.secrets())[0] == sealed("B", "t").info

    async def test_a_removed_secret_is_gone_in_every_process(self, books: Pair) -> None:
        first, second = books
        await first.put_secret(sealed("a", "t"))
        await first.put_secret(sealed("a", "t/p"))
        assert not await second.remove_secret("a", "t/p/e")
        assert not await second.remove_secret("b", "t")
        assert await second.remove_secret("a", "t/p")
        assert not await first.remove_secret("a", "t/p")
        assert [info.scope for info in await first.secrets()] == ["t"]

    async def test_all_processes_have_the_same_key(self, books: Pair) -> None:
        first, second = books
        assert await second.secrets_key() == ""
        await first.put_secret(sealed("a", "t"))
        assert await second.secrets_key() == "k1"
        for name in ("a", "b"):
            with pytest.raises(Conflict):
                await second.put_secret(sealed(name, "t", b"other", key="k2"))
        assert await first.secret("a", ["t"]) == sealed("a", "t")
        assert len(await first.secrets()) == 1
        await first.remove_secret("a", "t")
        await second.put_secret(sealed("b", "t", key="k2"))
        assert await first.secrets_key() == "k2"

    async def test_of_two_keys_at_once_one_stays(self, books: Pair) -> None:
        """The first secret of the store, written by two servers with different keys at once."""
        for round_ in range(10):
            puts = [books[n].put_secret(sealed(f"a{n}", "t", key=f"k{n}")) for n in (round_ % 2, 1 - round_ % 2)]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "NoneType"]
            [secret] = await books[0].secrets()
            assert await books[1].secrets_key() == secret.name.replace("a", "k")
            await books[1].remove_secret(secret.name, "t")


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────

__all__ = ["Book", "MakeBooks", "SecretsContract"]
