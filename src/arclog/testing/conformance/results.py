"""The rules of `arclog.ports.results` as tests. Every result store runs them unchanged:

    class TestMyResults(ResultsContract):
        @pytest.fixture
        def make_results(self, tmp_path):
            return lambda settings: MyResults(tmp_path / "results", settings)

Needs pytest and pytest-asyncio (`asyncio_mode = "auto"`), and hypothesis for contents.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arclog.model.config.settings import Settings
from arclog.model.errors import InvariantBroken, ResultTooLarge, ResultUnavailable
from arclog.ports.results import Content, Results, StoredBlob

# ── base ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Shared parts of the rules: a result store, and short ways to fill and read it.

MakeResults = Callable[[Settings], Results]

TENANT = "acme"


def sha256_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


async def stored(results: Results, body: bytes, tenant: str = TENANT, step: int = 70_000) -> Content:
    """Store bytes, a few at a time."""
    writer = results.writer(tenant, content_type="text/plain")
    for at in range(0, len(body), step):
        await writer.write(body[at : at + step])
    return await writer.commit()


async def listed(results: Results, items: Sequence[Any], tenant: str = TENANT, step: int = 100) -> Content:
    """Store a list, some items at a time."""
    writer = results.writer(tenant, listed=True)
    for at in range(0, len(items), step):
        await writer.add(items[at : at + step])
    return await writer.commit()


async def read(results: Results, sha256: str, start: int = 0, end: int | None = None, tenant: str = TENANT) -> bytes:
    return b"".join([chunk async for chunk in results.chunks(tenant, sha256, start, end)])


async def everything(results: Results) -> list[StoredBlob]:
    return sorted([result async for result in results.all()], key=lambda result: (result.tenant, result.sha256))


class Rules:
    """Base of all groups of rules: the fixtures."""

    @pytest.fixture
    def make_results(self) -> MakeResults:
        pytest.fail("a subclass of ResultsContract gives make_results(settings)")

    @pytest.fixture
    async def results(self, make_results: MakeResults) -> AsyncIterator[Results]:
        made = make_results(Settings())
        yield made
        await made.close()


# ── storing ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of content: a read returns the stored bytes, by their hash and within their tenant, or nothing.

#: Each example uses the same store on purpose.
SHARED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
NOWHERE = "0" * 64
ODD_TENANTS = [
    "", ".", "..", "../acme", "a/b", "/etc", "a%2Fb", "%", "%00", "a\x00b", "A", "a", "é", "~", ".new", ".lock", "a b",
]  # fmt: skip


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


class StoringRules(Rules):
    async def test_content_is_named_by_the_hash_of_its_bytes(self, results: Results) -> None:
        body = "größer: ".encode() + noise(3_000_000)
        done = await stored(results, body)
        assert (done.sha256, done.bytes) == (sha256_of(body), len(body))
        assert (done.content_type, done.rows) == ("text/plain", None)
        assert await read(results, done.sha256) == body
        info = await results.find(TENANT, done.sha256)
        assert info is not None
        assert (info.tenant, info.sha256, info.stored_bytes) == (TENANT, done.sha256, done.stored_bytes)
        assert await everything(results) == [info]

    async def test_nothing_at_all_is_content_too(self, results: Results) -> None:
        done = await stored(results, b"")
        assert (done.sha256, done.bytes, done.preview) == (sha256_of(b""), 0, "")
        assert await read(results, done.sha256) == b""

    @SHARED
    @given(body=st.binary(max_size=5000), repeat=st.integers(1, 700), data=st.data())
    async def test_any_bytes_and_any_range(
        self, results: Results, body: bytes, repeat: int, data: st.DataObject
    ) -> None:
        whole = body * repeat
        sha256 = (await stored(results, whole, step=data.draw(st.integers(1000, 2_000_000)))).sha256
        assert await read(results, sha256) == whole
        start = data.draw(st.integers(0, len(whole) + 2))
        end = data.draw(st.none() | st.integers(0, len(whole) + 2))
        assert await read(results, sha256, start, end) == whole[start:end]

    async def test_the_same_content_is_stored_once(self, results: Results) -> None:
        body = noise(100_000)
        first, second = await stored(results, body), await stored(results, body, step=17)
        assert first == second
        assert len(await everything(results)) == 1
        assert await results.remove(TENANT, first.sha256)
        assert not await results.remove(TENANT, first.sha256)
        assert await everything(results) == []

    async def test_many_writers_of_the_same_content(self, results: Results) -> None:
        body = noise(2_500_000)
        done = await asyncio.gather(*(stored(results, body) for _ in range(8)))
        assert {stored.sha256 for stored in done} == {sha256_of(body)}
        assert len(await everything(results)) == 1
        assert await read(results, done[0].sha256) == body

    async def test_what_is_removed_or_was_never_there(self, results: Results) -> None:
        done = await stored(results, b"x")
        assert await results.remove(TENANT, done.sha256)
        for sha256 in (done.sha256, NOWHERE, "", "..", "../" * 20 + "etc/passwd", "A" * 64, "x\x00"):
            assert await results.find(TENANT, sha256) is None
            assert not await results.remove(TENANT, sha256)
            with pytest.raises(ResultUnavailable):
                await read(results, sha256)
            with pytest.raises(ResultUnavailable):
                await results.items(TENANT, sha256, 0, 1)

    async def test_content_that_was_stored_again_is_not_removed_for_its_old_age(self, results: Results) -> None:
        body = noise(1000)
        sha256 = (await stored(results, body)).sha256
        old = await results.find(TENANT, sha256)
        assert old is not None
        await self.age(results, sha256)
        first = await results.find(TENANT, sha256)
        assert first is not None
        await stored(results, body)
        again = await results.find(TENANT, sha256)
        assert again is not None
        assert again.stored_at != first.stored_at
        assert not await results.remove(TENANT, sha256, first.stored_at)
        assert await read(results, sha256) == body
        assert await results.remove(TENANT, sha256, again.stored_at)

    async def test_content_that_is_stored_again_while_it_is_read_is_read_on(self, results: Results) -> None:
        body = noise(3_500_000)
        sha256 = (await stored(results, body)).sha256
        got: list[bytes] = []
        async for chunk in results.chunks(TENANT, sha256):
            if not got:
                await stored(results, body)
            got.append(chunk)
        assert b"".join(got) == body

    async def test_content_that_is_removed_while_it_is_read_is_whole_or_missing(self, results: Results) -> None:
        body = noise(3_500_000)
        sha256 = (await stored(results, body)).sha256
        got: list[bytes] = []
        try:
            async for chunk in results.chunks(TENANT, sha256):
                if not got:
                    assert await results.remove(TENANT, sha256)
                got.append(chunk)
        except ResultUnavailable:
            assert body.startswith(b"".join(got))
        else:
            assert b"".join(got) == body
        assert await results.find(TENANT, sha256) is None

    async def age(self, results: Results, sha256: str) -> None:
        """Make content old, if a store's clock is too coarse to distinguish two times in a test."""

    async def test_tenants_are_apart(self, results: Results) -> None:
        body = noise(5000)
        sha256 = (await stored(results, body, "one")).sha256
        assert await results.find("two", sha256) is None
        assert not await results.remove("two", sha256)
        with pytest.raises(ResultUnavailable):
            await read(results, sha256, tenant="two")
        await stored(results, body, "two")
        assert [stored.tenant for stored in await everything(results)] == ["one", "two"]
        assert await results.remove("one", sha256)
        assert await read(results, sha256, tenant="two") == body

    async def test_odd_names_of_tenants_are_apart_too(self, results: Results) -> None:
        for number, tenant in enumerate(ODD_TENANTS):
            await stored(results, b"of tenant %d" % number, tenant)
        await stored(results, b"shared", ODD_TENANTS[0])
        assert len(await everything(results)) == len(ODD_TENANTS) + 1
        assert {stored.tenant for stored in await everything(results)} == set(ODD_TENANTS)
        for number, tenant in enumerate(ODD_TENANTS):
            sha256 = sha256_of(b"of tenant %d" % number)
            assert await read(results, sha256, tenant=tenant) == b"of tenant %d" % number
            for other in ODD_TENANTS:
                assert (await results.find(other, sha256) is not None) == (other == tenant)

    # -- writers that do not commit -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 10, 3_000_000])
    async def test_an_abandoned_result_is_not_stored(self, results: Results, size: int) -> None:
        body = noise(size)
        writer = results.writer(TENANT)
        await writer.write(body)
        assert await results.find(TENANT, sha256_of(body)) is None
        await writer.abandon()
        await writer.abandon()
        assert await everything(results) == []
        assert await results.leftovers(1 << 62) == 0
        with pytest.raises(InvariantBroken):
            await writer.write(b"x")
        with pytest.raises(InvariantBroken):
            await writer.commit()

    async def test_abandoning_a_committed_result_has_no_effect(self, results: Results) -> None:
        writer = results.writer(TENANT)
        await writer.write(b"kept")
        done = await writer.commit()
        await writer.abandon()
        assert await read(results, done.sha256) == b"kept"
        with pytest.raises(InvariantBroken):
            await writer.commit()

    async def test_a_cancelled_writer_leaves_nothing(self, results: Results) -> None:
        body = noise(4_000_000)

        async def work() -> Content:
            writer = results.writer(TENANT)
            try:
                while True:
                    await writer.write(body)
                    started.set()
                    await asyncio.sleep(0)
            finally:
                await writer.abandon()

        started = asyncio.Event()
        task = asyncio.ensure_future(work())
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await everything(results) == []
        assert await results.leftovers(1 << 62) == 0

    async def test_content_above_the_limit_is_refused_while_it_comes(self, make_results: MakeResults) -> None:
        results = make_results(Settings({"results.max_bytes": 2_000_000}))
        writer = results.writer(TENANT)
        await writer.write(noise(1_999_999))
        with pytest.raises(ResultTooLarge, match="ARCLOG_RESULTS_MAX_BYTES"):
            await writer.write(b"xx")
        with pytest.raises(InvariantBroken):
            await writer.commit()
        await writer.abandon()
        with pytest.raises(ResultTooLarge):
            await listed(results, ["x" * 1000] * 2100)
        assert await everything(results) == []
        assert await results.leftovers(1 << 62) == 0
        assert (await stored(results, noise(2_000_000))).bytes == 2_000_000
        await results.close()

    # -- previews -----------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("body", "preview"),
        [
            (b"short", "short"),
            (b"x" * 5000, "x" * 100),
            (b"a" + "é".encode() * 60, "a" + "é" * 49),
            (b"\xff\xfe\x00", "\ufffd\ufffd\x00"),
            (b"\xff" * 500, "\ufffd" * 33),
        ],
    )
    async def test_a_preview_is_text_within_its_limit(
        self, make_results: MakeResults, body: bytes, preview: str
    ) -> None:
        results = make_results(Settings({"results.preview_bytes": 100}))
        assert (await stored(results, body, step=7)).preview == preview
        await results.close()


# ── lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of lists: items are read unchanged, by index or as lines of JSON; a value that is not JSON is refused.

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=10,
)


def rows(count: int) -> list[dict[str, Any]]:
    return [
        {"id": number, "name": f"name\n {number}", "price": number / 8, "tags": ["a", None]} for number in range(count)
    ]


def lines(items: list[Any]) -> bytes:
    return b"".join(msgspec.json.encode(item) + b"\n" for item in items)


class ListRules(Rules):
    async def test_a_list_is_read_by_item_and_as_lines(self, results: Results) -> None:
        items = rows(60_000)  # several parts
        done = await listed(results, items, step=999)
        assert (done.rows, done.bytes, done.sha256) == (60_000, len(lines(items)), sha256_of(lines(items)))
        assert await read(results, done.sha256) == lines(items)
        for first, last in (
            (0, 3),
            (0, 60_000),
            (17_000, 43_000),
            (59_999, 60_000),
            (59_990, 70_000),
            (60_000, 60_001),
        ):
            assert await results.items(TENANT, done.sha256, first, last) == items[first:last]
        assert await results.items(TENANT, done.sha256, 5, 5) == []
        assert await results.items(TENANT, done.sha256, 7, 3) == []
        assert [(await results.items(TENANT, done.sha256, at, at + 1))[0]["id"] for at in range(0, 60_000, 1777)] == [
            *range(0, 60_000, 1777)
        ]

    @SHARED
    @given(items=st.lists(VALUES, max_size=30), step=st.integers(1, 40), data=st.data())
    async def test_any_list_and_any_slice(
        self, results: Results, items: list[Any], step: int, data: st.DataObject
    ) -> None:
        done = await listed(results, items, step=step)
        assert done.rows == len(items)
        first = data.draw(st.integers(0, len(items) + 1))
        last = data.draw(st.integers(0, len(items) + 1))
        assert await results.items(TENANT, done.sha256, first, last) == items[first:last]
        assert await read(results, done.sha256) == lines(items)

    async def test_items_larger_than_a_part(self, results: Results) -> None:
        items = ["a" * 3_000_000, "b", "c" * 2_500_000, *map(str, range(100))]
        sha256 = (await listed(results, items, step=2)).sha256
        assert await results.items(TENANT, sha256, 1, 4) == items[1:4]
        assert await results.items(TENANT, sha256, 2, 3) == items[2:3]
        assert await read(results, sha256, 2_999_990, 3_000_020) == lines(items)[2_999_990:3_000_020]

    async def test_tuples_are_lists(self, results: Results) -> None:
        sha256 = (await listed(results, [(1, "a"), (2, (3,))])).sha256
        assert await results.items(TENANT, sha256, 0, 2) == [[1, "a"], [2, [3]]]

    async def test_an_empty_list(self, results: Results) -> None:
        done = await listed(results, [])
        assert (done.rows, done.bytes) == (0, 0)
        assert await results.items(TENANT, done.sha256, 0, 10) == []

    async def test_lists_and_bytes_are_not_mixed(self, results: Results) -> None:
        plain, items = results.writer(TENANT), results.writer(TENANT, listed=True)
        with pytest.raises(TypeError):
            await plain.add([1])
        with pytest.raises(TypeError):
            await items.write(b"1")
        await plain.abandon()
        await items.abandon()
        sha256 = (await stored(results, b"[1, 2]")).sha256
        with pytest.raises(ResultUnavailable, match="is not a list"):
            await results.items(TENANT, sha256, 0, 1)

    @pytest.mark.parametrize("list_first", [True, False])
    async def test_the_same_bytes_as_a_list_and_as_plain_content(self, results: Results, list_first: bool) -> None:
        items = rows(20_000)
        if list_first:
            sha256 = (await listed(results, items)).sha256
            assert (await stored(results, lines(items))).sha256 == sha256
        else:
            sha256 = (await stored(results, lines(items))).sha256
            assert (await listed(results, items)).sha256 == sha256
        assert await results.items(TENANT, sha256, 15_000, 15_002) == items[15_000:15_002]
        assert await read(results, sha256) == lines(items)
        assert len(await everything(results)) == 1

    @pytest.mark.parametrize(
        ("odd", "word"),
        [
            (float("nan"), "nan"),
            (float("-inf"), "-inf"),
            (b"bytes", "bytes"),
            ({1, 2}, "set"),
            (dt.date(2024, 1, 1), "date"),
            (decimal.Decimal("1.5"), "Decimal"),
            (object(), "object"),
            ("half \ud800 pair", "surrogate"),
        ],
    )
    async def test_values_that_are_not_json_are_refused_with_their_place(
        self, results: Results, odd: Any, word: str
    ) -> None:
        for item in (odd, {"a": {"b": [0, odd]}}, [[odd]]):
            writer = results.writer(TENANT, listed=True)
            await writer.add(["fine"] * 3)
            with pytest.raises(ResultUnavailable, match=rf"(?s)item 4 of the list.*{word}"):
                await writer.add(["fine", item])
            await writer.abandon()
        assert await everything(results) == []

    async def test_the_place_is_named(self, results: Results) -> None:
        writer = results.writer(TENANT, listed=True)
        with pytest.raises(ResultUnavailable, match=r"item 0 of the list at a\.b\[1\] is a set"):
            await writer.add([{"a": {"b": [0, {1}]}}])
        await writer.abandon()

    async def test_a_key_that_is_no_text_is_refused(self, results: Results) -> None:
        writer = results.writer(TENANT, listed=True)
        with pytest.raises(ResultUnavailable, match="has the key 1, a int and no text"):
            await writer.add([{1: "a"}])
        await writer.abandon()

    async def test_an_item_nested_too_deep_is_refused(self, results: Results) -> None:
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        writer = results.writer(TENANT, listed=True)
        with pytest.raises(ResultUnavailable, match="nested too deep"):
            await writer.add([deep])
        await writer.abandon()


# ── results ───────────────────────────────────────────────────────────────────────────────────────────────────────────

__all__ = ["MakeResults", "ResultsContract"]


class ResultsContract(StoringRules, ListRules):
    """All rules. A subclass gives the fixture `make_results`."""
