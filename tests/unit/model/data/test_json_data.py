"""Depth of data, counted without a stack."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.model.data.json_data import ValueCount, decoded_size, nested_deeper, value_count


def wrapped(levels: int) -> object:
    value: object = 1
    for number in range(levels):
        value = [0, value] if number % 2 else {"a": value, "b": "text"}
    return value


@pytest.mark.parametrize("levels", [0, 1, 2, 5, 100_000])
def test_levels_are_lists_and_maps(levels):
    assert not nested_deeper(wrapped(levels), levels)
    assert not nested_deeper(wrapped(levels), levels + 1)
    if levels:
        assert nested_deeper(wrapped(levels), levels - 1)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def counted(value: Any) -> int:
    """Commas and opening brackets that are no part of a text."""
    if isinstance(value, dict):
        return 1 + max(len(value) - 1, 0) + sum(map(counted, value.values()))
    return 1 + max(len(value) - 1, 0) + sum(map(counted, value)) if isinstance(value, list) else 0


@given(_JSON, st.integers(1, 7))
def test_values_are_counted_in_any_pieces(value: Any, size: int) -> None:
    text = msgspec.json.encode(value)
    count = ValueCount()
    for start in range(0, len(text), size):
        count.add(text[start : start + size])
    assert count.values == value_count(text, size) == value_count(text) == counted(value)


@pytest.mark.parametrize("text", [r'"a,[\""', r'"\\"', '"[{,"', r'["\\\"", ","]'])
def test_what_stands_in_texts_is_no_value(text: str) -> None:
    assert value_count(text.encode()) == counted(msgspec.json.decode(text))


def test_many_small_values_take_more_than_their_text() -> None:
    assert decoded_size(b"[" + b"[]," * 1000 + b"1]") > 64_000
