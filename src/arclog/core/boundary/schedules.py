"""When a schedule fires, and what happens to times that it misses. Pure: the time is an argument.

A time is never in the future, is decided once, and is either started, queued, or skipped with a note. Daylight saving: a
fixed time that the clock skips fires at the moment of the change, and a time that it shows twice fires at the first; schedules
that repeat within the hour follow elapsed time.
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

#: Times that one decision looks at; what is left is for the next.
MOST_TIMES = 20_000
LONGEST_CRON = 200
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Tick(Struct, frozen=True):
    """The decision about a schedule."""

    #: with the time to start in `firing`, if there is one
    schedule: Schedule
    #: skipped times, for the operator's log
    notes: tuple[str, ...] = ()


def zone_of(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RequestRejected(
            f"there is no time zone {name!r}; name one of the IANA database, as Europe/Berlin, or UTC"
        ) from None


def check(schedule: Schedule) -> None:
    """Refuse an invalid schedule."""
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
        raise RequestRejected(f"cron {schedule.cron!r} never comes; which day was meant?")


def times(cron: str, zone: str, after: int) -> Iterator[int]:
    """The times of an expression behind a moment, rising."""
    with required("server", "a schedule"):
        from cronsim import CronSim, CronSimError  # no run needs it
    place = zone_of(zone)
    try:
        coming = CronSim(cron, (_EPOCH + timedelta(microseconds=after)).astimezone(place))
    except OverflowError:
        raise RequestRejected("that is before the calendar begins, or after it ends") from None
    except (CronSimError, ValueError, AssertionError) as problem:
        raise RequestRejected(
            f"cron {cron[:200]!r}: {problem}; five fields are needed (minute hour day month weekday), as '0 6 * * *'"
        ) from None
    last = after
    try:
        for moment in coming:
            due = (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND
            # An hour that a clock shows twice can bring back a time that has been.
            if due > last:
                last = due
                yield due
    except OverflowError:
        return


@lru_cache(maxsize=1024)
def next_time(cron: str, zone: str, after: int) -> int | None:
    """The first time behind a moment. Kept, since schedules that are due together often have the same expression."""
    return next(times(cron, zone, after), None)


def between(schedule: Schedule, first: int, last: int, most: int) -> list[int]:
    """The times from `first` to `last`, both included; RequestRejected when there are more than `most`."""
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
    """Decide about the times that have come. `is_live`: the last run has not ended. A time that is `late` (microseconds)
    counts as missed; `most` may wait in the queue.
    """
    if schedule.firing is not None:
        return Tick(schedule)  # started work first
    come, following = _come(schedule, now)
    whole = following is None or following > now
    on_time = come.pop() if come and whole and now - come[-1] <= late else None
    kept = {"none": [], "all": come, "last": come[-1:] if whole and on_time is None else []}[schedule.catch_up]
    queue = [*schedule.queue, *kept]
    passed: list[tuple[int, str]] = []
    if len(come) > len(kept):
        passed.append((len(come) - len(kept), f"missed (catch_up: {schedule.catch_up})"))
    firing = None
    if on_time is not None:
        busy = is_live or bool(queue)
        if not busy or schedule.overlap == "cancel":
            firing = on_time  # with `cancel`, the last run is cancelled before the start
        elif schedule.overlap == "queue":
            queue.append(on_time)
        else:
            passed.append((1, "the last run has not ended (overlap: skip)"))
    if len(queue) > most:
        passed.append(
            (len(queue) - most, f"more than {most} times wait (schedules.max_catch_up); the oldest are let go")
        )
        queue = queue[-most:]
    if firing is None and queue and not is_live:
        firing = queue.pop(0)
    changes: dict[str, Any] = {"next_due": following, "queue": tuple(queue), "firing": firing}
    if passed:
        changes["skipped"] = schedule.skipped + sum(count for count, _ in passed)
        changes["note"] = _note(passed[-1], now)
    notes = tuple(_note(instant, now) for instant in passed)
    return Tick(replace(schedule, **changes), notes)


def started(schedule: Schedule, execution_id: int) -> Schedule:
    """The time that was firing has its run."""
    return replace(
        schedule, firing=None, last_due=schedule.firing or schedule.last_due, last_execution=execution_id, note=""
    )


def not_started(schedule: Schedule, problem: str) -> Schedule:
    """The run of the time that was firing can never be started."""
    due = timestamp(schedule.firing or 0)
    return replace(
        schedule, firing=None, skipped=schedule.skipped + 1, note=f"the run of {due} did not start: {problem}"
    )


def paused(schedule: Schedule) -> Schedule:
    return replace(schedule, paused=True)


def resumed(schedule: Schedule, now: int) -> Schedule:
    """Continue from now: times that passed during a pause do not count as missed."""
    return replace(schedule, paused=False, next_due=next_time(schedule.cron, schedule.zone, now))


def backfilled(schedule: Schedule, due: list[int], most: int) -> Schedule:
    """The schedule with these times in its queue, too, oldest first."""
    queue = tuple(sorted({*schedule.queue, *due}))
    if len(queue) > most:
        raise RequestRejected(
            f"schedule {schedule.name} has {len(schedule.queue)} times waiting; with these there would be more than "
            f"{most} (schedules.max_catch_up)"
        )
    return replace(schedule, queue=queue)


def _come(schedule: Schedule, now: int) -> tuple[list[int], int | None]:
    """The times that have come since the last look, at most MOST_TIMES, and the one behind them."""
    due = schedule.next_due
    if due is None or due > now:
        return [], due
    come = [due]
    following = next_time(schedule.cron, schedule.zone, due)
    if following is None or following > now:
        return come, following
    for following in times(schedule.cron, schedule.zone, due):
        if following > now or len(come) >= MOST_TIMES:
            return come, following
        come.append(following)
    return come, None


def _note(passed: tuple[int, str], now: int) -> str:
    count, why = passed
    return f"{timestamp(now)}: {count} {'time' if count == 1 else 'times'} passed over: {why}"
