"""Rows are fetched in batches of bounded size."""

from __future__ import annotations

import pytest

from arclog.tools.sql.run import BATCH, BATCH_BYTES, batch_of


@pytest.mark.parametrize(
    ("row", "size"),
    [
        ((1, None), BATCH),
        (("x" * 100, b"y"), BATCH),
        (("x" * (BATCH_BYTES + 1),), 1),
        ((1, b"x" * (BATCH_BYTES // 4), 2), 5),
    ],
)
def test_a_batch_has_fewer_rows_if_they_are_large(row: tuple[object, ...], size: int) -> None:
    rows = iter([row] * 1500)
    assert batch_of(rows) == [row] * size
    assert len(list(rows)) == 1500 - size


def test_the_last_batch_is_empty() -> None:
    rows = iter([(1,), (2,)])
    assert [batch_of(rows, 1), batch_of(rows, 5), batch_of(rows)] == [[(1,)], [(2,)], []]
