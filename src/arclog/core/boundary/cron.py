"""The times of a cron expression in a time zone. No I/O: the time is an argument.

Daylight saving time: a fixed time that the clock skips occurs at the moment of the change, and a time that the clock
shows twice occurs once, at the first of the two. Expressions that repeat within the hour follow elapsed time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

from arclog.model.config.extras import required
from arclog.model.errors import RequestRejected

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


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
