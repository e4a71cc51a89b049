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
# Rules of sealed secrets: what is kept, for whom, and with which key.

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
        here, there = make_books()
        await here.open()
        await there.open()
        yield here, there
        await here.close()
        await there.close()

    async def test_it_is_given_back_as_it_was_put(self, books: Pair) -> None:
        here, there = books
        for sealed_secret in (
            sealed("a", "t/p/e"),
            sealed("empty", "t", b""),
            sealed("large", "t", bytes(range(256)) * 300),
        ):
            await here.put_secret(sealed_secret)
            assert await there.secret(sealed_secret.info.name, [sealed_secret.info.scope]) == sealed_secret
        assert await there.secret("b", ["t/p/e"]) is None
        assert await there.secret("a", []) is None

    async def test_a_later_one_takes_the_place(self, books: Pair) -> None:
        here, there = books
        await here.put_secret(sealed("a", "t", b"one"))
        await there.put_secret(sealed("a", "t", b"two"))
        read = await here.secret("a", ["t"])
        assert read is not None
        assert read.data == b"two"
        assert len(await here.secrets()) == 1

    async def test_the_longest_scope_wins_and_no_other_is_seen(self, books: Pair) -> None:
        here, there = books
        for scope in ("t", "t/p", "t/p/e", "x", "tt"):
            await here.put_secret(sealed("a", scope, scope.encode()))
        for scopes in (["t", "t/p", "t/p/e"], ["t/p/e", "t/p", "t"], ["t/p/e"]):
            read = await there.secret("a", scopes)
            assert read is not None
            assert read.data == b"t/p/e"
        read = await there.secret("a", ["t/q/e", "t/q", "t"])
        assert read is not None
        assert read.info.scope == "t"
        assert await there.secret("a", ["y/p/e", "y/p", "y"]) is None
        assert await there.secret("A", ["t"]) is None

    async def test_all_are_told_by_name_and_scope(self, books: Pair) -> None:
        here, there = books
        for name, scope in (("b", "t"), ("a", "t/p"), ("B", "t"), ("a", "t")):
            await here.put_secret(sealed(name, scope))
        assert [(info.name, info.scope) for info in await there.secrets()] == [
            ("B", "t"),
            ("a", "t"),
            ("a", "t/p"),
            ("b", "t"),
        ]
        assert (await there.secrets())[0] == sealed("B", "t").info

    async def test_what_is_removed_is_gone_everywhere(self, books: Pair) -> None:
        here, there = books
        await here.put_secret(sealed("a", "t"))
        await here.put_secret(sealed("a", "t/p"))
        assert not await there.remove_secret("a", "t/p/e")
        assert not await there.remove_secret("b", "t")
        assert await there.remove_secret("a", "t/p")
        assert not await here.remove_secret("a", "t/p")
        assert [info.scope for info in await here.secrets()] == ["t"]

    async def test_all_have_one_key(self, books: Pair) -> None:
        here, there = books
        assert await there.secrets_key() == ""
        await here.put_secret(sealed("a", "t"))
        assert await there.secrets_key() == "k1"
        for name in ("a", "b"):
            with pytest.raises(Conflict):
                await there.put_secret(sealed(name, "t", b"other", key="k2"))
        assert await here.secret("a", ["t"]) == sealed("a", "t")
        assert len(await here.secrets()) == 1
        await here.remove_secret("a", "t")
        await there.put_secret(sealed("b", "t", key="k2"))
        assert await here.secrets_key() == "k2"

    async def test_of_two_keys_at_once_one_stays(self, books: Pair) -> None:
        """The first secret of the store, written by two servers with different keys at once."""
        for round_ in range(10):
            puts = [books[n].put_secret(sealed(f"a{n}", "t", key=f"k{n}")) for n in (round_ % 2, 1 - round_ % 2)]
            outcomes = await asyncio.gather(*puts, return_exceptions=True)
            assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Conflict", "NoneType"]
            [kept] = await books[0].secrets()
            assert await books[1].secrets_key() == kept.name.replace("a", "k")
            await books[1].remove_secret(kept.name, "t")


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────

__all__ = ["Book", "MakeBooks", "SecretsContract"]
