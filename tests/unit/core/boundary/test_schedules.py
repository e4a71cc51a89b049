"""When schedules fire: missed times, overlap, pauses and backfill; times of cron expressions."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from arclog.core.boundary import schedules
from arclog.core.boundary.schedules import Tick, tick, times
from arclog.model.config.schedules import CATCH_UP, OVERLAP, Schedule
from arclog.model.errors import RequestRejected
from arclog.model.ids import micros, timestamp

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
NOON = micros("2026-03-02T12:00:00Z")


def made(**more: Any) -> Schedule:
    fields = {"cron": "0 * * * *", "zone": "UTC", "path": "flows/a", "next_due": NOON, **more}
    return Schedule(tenant="t", project="p", environment="e", name="nightly", created_at=0, **fields)


def look(schedule: Schedule, now: int, *, is_live: bool = False, most: int = 5) -> Tick:
    return tick(schedule, now, is_live=is_live, late=MINUTE, most=most)


@pytest.mark.parametrize(
    "changes",
    [
        {"cron": "99 * * * *"},
        {"cron": "* * *"},
        {"cron": ""},
        {"cron": "0 0 30 2 *"},
        {"cron": ",".join(["1"] * 200) + " * * * *"},
        {"zone": "Mars/Base"},
        {"zone": "../etc/passwd"},
        {"zone": ""},
        {"catch_up": "some"},
        {"overlap": "never"},
        {"path": ""},
        {"name": "a/b"},
        {"name": ""},
        {"name": "x" * 129},
    ],
)
def test_what_can_never_work_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RequestRejected):
        schedules.check(replace(made(), **changes))
    schedules.check(made())


# -- what a look leads to ---------------------------------------------------------------------------------------------


def test_nothing_fires_early() -> None:
    assert look(made(), NOON - 1) == Tick(made())


@pytest.mark.parametrize("catch_up", CATCH_UP)
@pytest.mark.parametrize("overlap", OVERLAP)
def test_on_time_it_fires_whatever_the_policies(catch_up: str, overlap: str) -> None:
    schedule = made(catch_up=catch_up, overlap=overlap)
    tick_result = look(schedule, NOON + 5)
    assert tick_result == Tick(replace(schedule, firing=NOON, next_due=NOON + HOUR))


def test_missed_times_by_policy() -> None:
    now = NOON + 3 * HOUR + 30 * MINUTE  # 12, 13, 14 and 15 o'clock went by
    none = look(made(catch_up="none"), now)
    assert (none.schedule.firing, none.schedule.queue, none.schedule.skipped) == (None, (), 4)
    assert none.schedule.next_due == NOON + 4 * HOUR
    assert "4 times skipped: missed (catch_up: none)" in none.notes[0]
    last = look(made(catch_up="last"), now)
    assert (last.schedule.firing, last.schedule.queue, last.schedule.skipped) == (NOON + 3 * HOUR, (), 3)
    every = look(made(catch_up="all"), now)
    assert every.schedule.firing == NOON
    assert every.schedule.queue == (NOON + HOUR, NOON + 2 * HOUR, NOON + 3 * HOUR)
    assert (every.schedule.skipped, every.notes) == (0, ())


def test_a_time_that_is_on_time_goes_before_the_last_that_was_missed() -> None:
    tick_result = look(made(catch_up="last"), NOON + 2 * HOUR)
    assert (tick_result.schedule.firing, tick_result.schedule.queue, tick_result.schedule.skipped) == (
        NOON + 2 * HOUR,
        (),
        2,
    )


def test_catching_up_is_bounded_and_says_so() -> None:
    tick_result = look(made(catch_up="all"), NOON + 9 * HOUR + 30 * MINUTE, is_live=True)
    assert tick_result.schedule.queue == tuple(NOON + hour * HOUR for hour in range(5, 10))
    assert tick_result.schedule.skipped == 5
    assert "schedules.max_catch_up" in tick_result.schedule.note
    assert tick_result.notes


def test_a_long_absence_is_looked_at_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "MOST_TIMES", 3)
    schedule, now = made(catch_up="last"), NOON + 7 * HOUR + 30 * MINUTE
    fired = []
    for _ in range(3):
        schedule = look(schedule, now).schedule
        fired.append(schedule.firing)
    assert fired == [None, None, NOON + 7 * HOUR]
    assert schedule.next_due == NOON + 8 * HOUR


def test_overlap_by_policy() -> None:
    skip = look(made(overlap="skip"), NOON, is_live=True)
    assert (skip.schedule.firing, skip.schedule.queue, skip.schedule.skipped) == (None, (), 1)
    assert "overlap: skip" in skip.schedule.note
    queue = look(made(overlap="queue"), NOON, is_live=True)
    assert (queue.schedule.firing, queue.schedule.queue, queue.schedule.skipped) == (None, (NOON,), 0)
    assert look(queue.schedule, NOON + 1, is_live=True) == Tick(queue.schedule)
    later = look(queue.schedule, NOON + 1)
    assert (later.schedule.firing, later.schedule.queue) == (NOON, ())
    cancel = look(made(overlap="cancel"), NOON, is_live=True)
    assert (cancel.schedule.firing, cancel.schedule.queue) == (NOON, ())


def test_what_is_being_started_comes_first() -> None:
    schedule = made(firing=NOON - HOUR, queue=(NOON - 2 * HOUR,))
    assert look(schedule, NOON + 5 * HOUR) == Tick(schedule)
    done = schedules.started(schedule, 77)
    assert (done.firing, done.last_due, done.last_execution) == (None, NOON - HOUR, 77)
    failed = schedules.not_started(schedule, "no such playbook")
    assert (failed.firing, failed.skipped, failed.last_execution) == (None, 1, 0)
    assert "no such playbook" in failed.note


def test_times_of_a_pause_are_not_missed() -> None:
    slept = schedules.paused(made(catch_up="all"))
    awake = schedules.resumed(slept, NOON + 9 * HOUR + MINUTE)
    assert awake.next_due == NOON + 10 * HOUR
    assert look(awake, NOON + 9 * HOUR + MINUTE) == Tick(awake)


def test_backfill_queues_times_once_in_order_and_within_the_limit() -> None:
    schedule = made(queue=(NOON + HOUR,))
    due = schedules.between(schedule, NOON, NOON + 2 * HOUR, 3)
    assert due == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert schedules.backfilled(schedule, due, 3).queue == tuple(due)
    with pytest.raises(RequestRejected, match="max_catch_up"):
        schedules.between(schedule, NOON, NOON + 3 * HOUR, 3)
    with pytest.raises(RequestRejected, match="max_catch_up"):
        schedules.backfilled(replace(schedule, queue=(1, 2)), due, 4)


@given(
    st.sampled_from(CATCH_UP),
    st.sampled_from(OVERLAP),
    st.lists(st.tuples(st.integers(0, 4 * DAY), st.booleans()), max_size=12),
)
def test_a_time_is_started_at_most_once_in_order_and_never_early(
    catch_up: str, overlap: str, looks: list[tuple[int, bool]]
) -> None:
    schedule, now, fired = made(catch_up=catch_up, overlap=overlap), NOON - HOUR, []
    for later, is_live in looks:
        now += later
        tick_result = look(schedule, now, is_live=is_live)
        schedule = tick_result.schedule
        if schedule.firing is not None:
            assert schedule.firing <= now
            assert not is_live or overlap == "cancel"
            fired.append(schedule.firing)
            schedule = schedules.started(schedule, len(fired))
        assert len(schedule.queue) <= 5
    assert len(fired) == len(set(fired))
    # With `cancel` what is due now goes before what waits; else nothing overtakes.
    assert overlap == "cancel" or fired == sorted(fired)
    assert all(datetime.fromtimestamp(due / 1e6, UTC).minute == 0 for due in fired)


# -- times of cron expressions: time zones and daylight saving time -----------------------------------------------------


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
