"""Rules of lists: items come back as they were, by index, and as lines of JSON; what is not JSON is refused."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arclog.model.errors import ResultUnavailable
from arclog.ports.results import Results
from arclog.testing.conformance.results.base import TENANT, Rules, everything, listed, read, sha256_of, stored

SHARED = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)
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
    async def test_what_is_not_json_is_refused_with_its_place(self, results: Results, odd: Any, word: str) -> None:
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
