"""Ids rise, never cross into another node's, and run ids are UUIDs of version 4."""

from __future__ import annotations

import uuid

from arclog.engine.commits.ids import LONGEST_RUN, Minter, new_uuid
from arclog.model.ids import MAX_SEQUENCE, NODE_BITS, SEQUENCE_BITS, minted_at_ms, moved
from arclog.testing.virtual import FakeClock


def _node(snowflake: int) -> int:
    return snowflake >> SEQUENCE_BITS & ((1 << NODE_BITS) - 1)


def test_run_ids_are_random_uuids() -> None:
    ids = {new_uuid() for _ in range(100)}
    assert len(ids) == 100
    for text in ids:
        parsed = uuid.UUID(text)
        assert (parsed.version, parsed.variant, str(parsed)) == (4, uuid.RFC_4122, text)


def test_ids_rise_also_when_the_clock_goes_back() -> None:
    clock = FakeClock()
    minter = Minter(clock, 5)
    ids = []
    for step in (0, 1_000, -3_600_000_000, 7, 3_600_000_000):
        clock.jump(step / 1_000_000)
        ids += [minter.next_id() for _ in range(3)]
    assert ids == sorted(set(ids))
    assert {_node(event_id) for event_id in ids} == {5}


def test_a_run_of_ids_stays_on_its_node() -> None:
    minter = Minter(FakeClock(), 1023)
    last = 0
    for count in (1, MAX_SEQUENCE - LONGEST_RUN, LONGEST_RUN, 10, LONGEST_RUN, LONGEST_RUN):
        base = minter.peek()
        minter.take(count)
        assert base > last
        assert _node(base) == _node(base + count - 1) == 1023
        last = base + count - 1
    assert minted_at_ms(last) > 0


def test_a_run_that_is_longer_than_a_millisecond_stays_on_its_node_and_below_what_comes_after_it() -> None:
    minter = Minter(FakeClock(), 1023)
    last = 0
    for count in (300, 20_000, 1, MAX_SEQUENCE + 1, LONGEST_RUN, 9_999):
        base = minter.peek()
        minter.take(count)
        assert base > last
        last = moved(base, count - 1)
        assert _node(last) == 1023
    assert minter.peek() > last
