"""The shared derivations: how a transaction is cut into rows, and how a row's body is written."""

import pytest

from arclog.model.config.settings import Settings
from arclog.model.events import BITS, Event
from arclog.stores.rows import Codec, bits_of
from tests.unit.stores.support import change

SMALL = Settings({"store.max_row_events": 3, "store.max_row_bytes": 200, "store.compress_min_bytes": 100_000})


def event(size: int = 0) -> Event:
    return Event("task.done", 1, payload={"x": "y" * size})


def cuts(*events: Event) -> list[tuple[int, int]]:
    return [(row.seq0, row.seq1) for row in Codec(SMALL).derive(change(1, 10, *events)).rows]


@pytest.mark.parametrize(
    ("events", "rows"),
    [
        ([event()] * 3, [(11, 13)]),
        ([event()] * 4, [(11, 13), (14, 14)]),
        ([event()] * 7, [(11, 13), (14, 16), (17, 17)]),
        ([event(500)], [(11, 11)]),
        ([event(), event(500), event()], [(11, 11), (12, 12), (13, 13)]),
        ([event(80), event(80), event(80)], [(11, 11), (12, 12), (13, 13)]),
        ([event(50), event(50), event(50)], [(11, 12), (13, 13)]),
    ],
)
def test_rows_hold_as_much_as_they_may(events, rows):
    assert cuts(*events) == rows


def test_each_row_knows_its_own_types_and_base():
    events = [Event("task.started", 1)] * 3 + [Event("task.done", 1)]
    first, second = Codec(SMALL).derive(change(1, 10, *events)).rows
    assert (first.types, second.types) == (BITS["task.started"], BITS["task.done"])
    assert second.base == first.base + 3


def test_large_bodies_are_compressed_and_small_ones_are_not():
    codec = Codec(Settings())
    (small,) = codec.derive(change(1, 1, event(100))).rows
    (large,) = codec.derive(change(1, 1, event(5000))).rows
    assert small.body.startswith(b'[{"t":"task.done"')
    assert large.body.startswith(b"\x28\xb5\x2f\xfd")
    assert len(large.body) < 200
    assert codec.events(large.body) == [event(5000)]


def test_a_lone_surrogate_is_escaped():
    codec = Codec(Settings())
    odd = Event("task.done", 1, iteration=(1, 2), payload={"x": "\ud800", "n": 2**70})
    (row,) = codec.derive(change(1, 1, odd)).rows
    assert row.body.startswith(b" [")
    assert codec.events(row.body) == [odd]


def test_unknown_types_have_no_bit():
    assert bits_of(["task.done", "step.exploded"]) == BITS["task.done"]
    assert bits_of([]) == 0
