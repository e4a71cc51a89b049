"""Filters of dates and moments. A moment is ISO 8601 text, with its offset (default UTC), or seconds since 1970.

None of them reads the clock: use `run.started_at` or `event.timestamp`. Names of days and months are English.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any

from arclog.expr.budget import Budget, Failure
from arclog.expr.convert import text
from arclog.expr.values import NUMBERS, kind_of

_MAX_FORMAT = 200
_LONGEST = 40
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_UNITS = {"weeks": 604_800, "days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def moment(value: Any) -> datetime:
    """Parse a moment."""
    if type(value) in NUMBERS and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            raise Failure(f"{str(value)[:40]} is not a time in seconds since 1970") from None
    if not isinstance(value, str):
        raise Failure(f"a {kind_of(value)} is not a date or time")
    try:
        parsed = datetime.fromisoformat(value.strip() if len(value) <= _LONGEST else "")
    except ValueError:
        raise Failure(f"{value[:40]!r} is not a date or time; write it like 2027-01-31T09:00:00Z") from None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def written(value: datetime) -> str:
    """Format a moment as text; UTC is Z."""
    return value.isoformat().replace("+00:00", "Z")


def to_moment(_: Budget, value: Any) -> str:
    return written(moment(value))


def to_date(_: Budget, value: Any) -> str:
    return moment(value).date().isoformat()


def epoch(_: Budget, value: Any) -> float:
    seconds = moment(value).timestamp()
    return int(seconds) if seconds.is_integer() else seconds


def date_format(budget: Budget, value: Any, pattern: Any = "%Y-%m-%d") -> str:
    wanted, when = text(budget, pattern), moment(value)
    if len(wanted) > _MAX_FORMAT:
        raise Failure(f"a format of a date has at most {_MAX_FORMAT} characters")
    budget.room(12 * len(wanted))
    letters = iter(wanted)
    return "".join([_directive(when, next(letters, "")) if letter == "%" else letter for letter in letters])


def _directive(when: datetime, letter: str) -> str:
    hour = when.hour % 12 or 12
    offset = when.strftime("%z")
    table = {
        "Y": f"{when.year:04}", "y": f"{when.year % 100:02}", "m": f"{when.month:02}", "d": f"{when.day:02}",
        "H": f"{when.hour:02}", "I": f"{hour:02}", "M": f"{when.minute:02}", "S": f"{when.second:02}",
        "f": f"{when.microsecond:06}", "j": f"{when.timetuple().tm_yday:03}", "p": "AM" if when.hour < 12 else "PM",
        "a": _DAYS[when.weekday()][:3], "A": _DAYS[when.weekday()], "b": _MONTHS[when.month - 1][:3],
        "B": _MONTHS[when.month - 1], "u": str(when.isoweekday()), "V": f"{when.isocalendar().week:02}",
        "G": f"{when.isocalendar().year:04}", "z": offset, "s": str(int(when.timestamp())), "%": "%",
    }  # fmt: skip
    if letter not in table:
        raise Failure(
            f"the format has no directive %{letter}; there are {' '.join(f'%{directive}' for directive in table)}"
        )
    return table[letter]


def date_add(
    _: Budget,
    value: Any,
    days: Any = 0,
    hours: Any = 0,
    minutes: Any = 0,
    seconds: Any = 0,
    weeks: Any = 0,
    months: Any = 0,
) -> str:
    when = moment(value)
    parts = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
    for name, count in {**parts, "months": months}.items():
        if type(count) not in NUMBERS or isinstance(count, bool):
            raise Failure(f"date_add: {name} must be a number, not a {kind_of(count)}")
    try:
        moved = _months_on(when, months) + timedelta(**parts)
    except (ValueError, OverflowError):
        raise Failure("date_add: the result is before year 1 or after year 9999") from None
    is_day = isinstance(value, str) and len(value.strip()) == 10 and moved.time() == datetime.min.time()
    return moved.date().isoformat() if is_day else written(moved)


def _months_on(when: datetime, months: Any) -> datetime:
    if not isinstance(months, int):
        raise Failure("date_add: months must be a whole number")
    if not months:
        return when
    year, month = divmod(when.year * 12 + when.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise OverflowError
    first = date(year, month + 1, 1)
    following = date(year + (month == 11), (month + 1) % 12 + 1, 1) if year < 9999 or month < 11 else None
    last = 31 if following is None else (following - first).days
    return when.replace(year=year, month=month + 1, day=min(when.day, last))


def date_diff(_: Budget, value: Any, other: Any, unit: Any = "seconds") -> float:
    if unit not in _UNITS:
        raise Failure(f"date_diff: the unit is one of {', '.join(_UNITS)}")
    difference = (moment(value) - moment(other)).total_seconds() / _UNITS[unit]
    return int(difference) if difference.is_integer() else difference


def to_zone(budget: Budget, value: Any, zone: Any) -> str:
    return written(moment(value).astimezone(_zone(text(budget, zone))))


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # rarely used

    try:
        return UTC if name == "UTC" else ZoneInfo(name[:100])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Failure(f"there is no time zone {name[:60]!r}; write it like Europe/Vienna") from None
