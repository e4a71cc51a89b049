"""Times of cron expressions: time zones and daylight saving time."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from arclog.core.boundary.cron import times
from arclog.model.ids import micros, timestamp


def first(count: int, cron: str, zone: str, after: str) -> list[str]:
    return [timestamp(due)[:16] for due in islice(times(cron, zone, micros(after)), count)]


def test_times_are_read_in_their_zone() -> None:
    assert first(2, "0 6 * * *", "Europe/Berlin", "2026-01-10T05:00:00Z") == ["2026-01-11T05:00", "2026-01-12T05:00"]
    assert first(1, "0 6 * * *", "Europe/Berlin", "2026-07-10T00:00:00Z") == ["2026-07-10T04:00"]
    assert first(1, "0 6 * * *", "UTC", "2026-07-10T05:59:59.999999Z") == ["2026-07-10T06:00"]


def test_a_time_that_the_clock_leaves_out_fires_once_at_the_change() -> None:
    # Berlin, 29 March 2026: 02:00 becomes 03:00 (01:00 UTC).
    assert first(3, "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z") == [
        "2026-03-28T01:30",
        "2026-03-29T01:00",
        "2026-03-30T00:30",
    ]


def test_a_time_that_the_clock_shows_twice_fires_once() -> None:
    # Berlin, 25 October 2026: 03:00 becomes 02:00 (01:00 UTC).
    assert first(3, "30 2 * * *", "Europe/Berlin", "2026-10-24T01:00:00Z") == [
        "2026-10-25T00:30",
        "2026-10-26T01:30",
        "2026-10-27T01:30",
    ]
    # Asked in the second of the two hours, the first does not come back.
    assert first(1, "45 2 * * *", "Europe/Berlin", "2026-10-25T01:30:00Z") == ["2026-10-26T01:45"]


def test_expressions_that_repeat_within_the_hour_follow_elapsed_time() -> None:
    gap = first(3, "*/30 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z")
    assert gap == ["2026-03-29T01:00", "2026-03-29T01:30", "2026-03-29T02:00"]
    fold = first(4, "*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z")
    assert fold == ["2026-10-25T00:30", "2026-10-25T01:00", "2026-10-25T01:30", "2026-10-25T02:00"]


@given(
    st.sampled_from(("0 2 * * *", "30 2 * * *", "*/7 * * * *", "15 */2 * * *", "0 0 1 * *", "59 23 * * 0")),
    st.sampled_from(
        ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca")
    ),
    st.integers(micros("2024-01-01T00:00:00Z"), micros("2030-01-01T00:00:00Z")),
)
def test_times_ascend_come_after_the_moment_and_continue_from_any_of_them(cron: str, zone: str, after: int) -> None:
    dues = list(islice(times(cron, zone, after), 5))
    assert dues == sorted(set(dues))
    assert dues[0] > after
    assert list(islice(times(cron, zone, dues[0]), 4)) == dues[1:]
