"""Depth of data, counted without a stack."""

from __future__ import annotations

import pytest

from arclog.model.data.json_data import nested_deeper


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
