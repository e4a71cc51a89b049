"""Decides when a schedule fires and how missed times are handled. No I/O: the time is an argument.

A time is decided once, never before it is due: it is started, queued, or skipped with a note.

Daylight saving time: a fixed time that the clock skips occurs at the moment of the change, and a time that the clock
shows twice occurs once, at the first of the two. Expressions that repeat within the hour follow elapsed time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from arclog.model.config.extras import required
from arclog.model.config.schedules import CATCH_UP, OVERLAP, Schedule
from arclog.model.errors import RequestRejected
from arclog.model.ids import timestamp

#: Maximum number of times per decision; the next decision handles the rest.
MOST_TIMES = 20_000
LONGEST_CRON = 200
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Tick(Struct, frozen=True):
    """The decision about a schedule."""

    #: the changed schedule; `firing` is the time to start now, if any
    schedule: Schedule
    #: skipped times, for the operator's log
    notes: tuple[str, ...] = ()


def check(schedule: Schedule) -> None:
    """Raise RequestRejected if a schedule is invalid."""
    if not NAME.fullmatch(schedule.name):
        raise RequestRejected(
            f"a schedule cannot be called {schedule.name[:200]!r}: letters, digits, '.', '_' and '-', at most 128 of them"
        )
    if len(schedule.cron) > LONGEST_CRON:
        raise RequestRejected(f"a cron expression has at most {LONGEST_CRON} characters, not {len(schedule.cron)}")
    if schedule.catch_up not in CATCH_UP:
        raise RequestRejected(f"catch_up {schedule.catch_up!r} is none of {', '.join(CATCH_UP)}")
    if schedule.overlap not in OVERLAP:
        raise RequestRejected(f"overlap {schedule.overlap!r} is none of {', '.join(OVERLAP)}")
    if not schedule.path:
        raise RequestRejected("a schedule needs the path of a playbook in the catalog")
    if next_time(schedule.cron, schedule.zone, schedule.created_at) is None:
        raise RequestRejected(f"cron {schedule.cron!r} never matches any date; check the day and month fields")


def between(schedule: Schedule, first: int, last: int, most: int) -> list[int]:
    """Return the times from `first` to `last`, inclusive. Raises RequestRejected if there are more than `most`."""
    dues: list[int] = []
    for due in times(schedule.cron, schedule.zone, first - 1):
        if due > last:
            break
        dues.append(due)
        if len(dues) > most:
            raise RequestRejected(
                f"schedule {schedule.name} has more than {most} times from {timestamp(first)} to {timestamp(last)} "
                "(schedules.max_catch_up); ask for a shorter time"
            )
    return dues


def tick(schedule: Schedule, now: int, *, is_live: bool, late: int, most: int) -> Tick:
    """Decide about the times that are due.

    Args:
        schedule: The stored schedule.
        now: The current time.
        is_live: Whether the last run has not ended.
        late: A time that is overdue by more than this many microseconds counts as missed.
        most: The maximum length of the queue.

    """
    if schedule.firing is not None:
        return Tick(schedule)  # the start in progress comes first
    due, following = _due_times(schedule, now)
    whole = following is None or following > now
    on_time = due.pop() if due and whole and now - due[-1] <= late else None
    queued = {"none": [], "all": due, "last": due[-1:] if whole and on_time is None else []}[schedule.catch_up]
    queue = [*schedule.queue, *queued]
    skipped: list[tuple[int, str]] = []
    if len(due) > len(queued):
        skipped.append((len(due) - len(queued), f"missed (catch_up: {schedule.catch_up})"))
    firing = None
    if on_time is not None:
        busy = is_live or bool(queue)
        if not busy or schedule.overlap == "cancel":
            firing = on_time  # with `cancel`, the last run is cancelled before the start
        elif schedule.overlap == "queue":
            queue.append(on_time)
        else:
            skipped.append((1, "the last run has not ended (overlap: skip)"))
    if len(queue) > most:
        skipped.append(
            (len(queue) - most, f"more than {most} times wait (schedules.max_catch_up); the oldest are dropped")
        )
        queue = queue[-most:]
    if firing is None and queue and not is_live:
        firing = queue.pop(0)
    changes: dict[str, Any] = {"next_due": following, "queue": tuple(queue), "firing": firing}
    if skipped:
        changes["skipped"] = schedule.skipped + sum(count for count, _ in skipped)
        changes["note"] = _note(skipped[-1], now)
    notes = tuple(_note(entry, now) for entry in skipped)
    return Tick(replace(schedule, **changes), notes)


def started(schedule: Schedule, execution_id: int) -> Schedule:
    """Record the run of the firing time."""
    return replace(
        schedule, firing=None, last_due=schedule.firing or schedule.last_due, last_execution=execution_id, note=""
    )


def not_started(schedule: Schedule, problem: str) -> Schedule:
    """Skip the firing time: its run cannot be started."""
    due = timestamp(schedule.firing or 0)
    return replace(
        schedule, firing=None, skipped=schedule.skipped + 1, note=f"the run of {due} did not start: {problem}"
    )


def paused(schedule: Schedule) -> Schedule:
    return replace(schedule, paused=True)


def resumed(schedule: Schedule, now: int) -> Schedule:
    """Resume from now. Times during the pause do not count as missed."""
    return replace(schedule, paused=False, next_due=next_time(schedule.cron, schedule.zone, now))


def backfilled(schedule: Schedule, due: list[int], most: int) -> Schedule:
    """Add these times to the queue, oldest first."""
    queue = tuple(sorted({*schedule.queue, *due}))
    if len(queue) > most:
        raise RequestRejected(
            f"schedule {schedule.name} has {len(schedule.queue)} times waiting; with these there would be more than "
            f"{most} (schedules.max_catch_up)"
        )
    return replace(schedule, queue=queue)


def _due_times(schedule: Schedule, now: int) -> tuple[list[int], int | None]:
    """Return the due times, at most MOST_TIMES, and the time that follows them."""
    first = schedule.next_due
    if first is None or first > now:
        return [], first
    due = [first]
    following = next_time(schedule.cron, schedule.zone, first)
    if following is None or following > now:
        return due, following
    for following in times(schedule.cron, schedule.zone, first):
        if following > now or len(due) >= MOST_TIMES:
            return due, following
        due.append(following)
    return due, None


def _note(skipped: tuple[int, str], now: int) -> str:
    count, why = skipped
    return f"{timestamp(now)}: {count} {'time' if count == 1 else 'times'} skipped: {why}"


# -- the times of a cron expression -------------------------------------------------------------------------------------


def times(cron: str, zone: str, after: int) -> Iterator[int]:
    """Iterate over the times of a cron expression after a moment, in ascending order.

    Times are microseconds since 1970, as `after` is. Raises RequestRejected for an invalid expression or time zone.
    """
    with required("server", "a schedule"):
        from cronsim import CronSim, CronSimError  # imported late: runs do not need it
    tz = zone_of(zone)
    try:
        moments = CronSim(cron, (_EPOCH + timedelta(microseconds=after)).astimezone(tz))
    except OverflowError:
        raise RequestRejected("the time is outside the range of the calendar") from None
    except (CronSimError, ValueError, AssertionError) as problem:
        raise RequestRejected(
            f"cron {cron[:200]!r}: {problem}; five fields are needed (minute hour day month weekday), as '0 6 * * *'"
        ) from None
    last = after
    try:
        for moment in moments:
            due = (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND
            # When the clock goes back, CronSim can return an earlier time again.
            if due > last:
                last = due
                yield due
    except OverflowError:
        return


@lru_cache(maxsize=1024)
def next_time(cron: str, zone: str, after: int) -> int | None:
    """Return the first time after a moment. Cached, since schedules that are due together often share an expression."""
    return next(times(cron, zone, after), None)


def zone_of(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RequestRejected(
            f"there is no time zone {name!r}; use a name of the IANA database such as Europe/Berlin, or UTC"
        ) from None
