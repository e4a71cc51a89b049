"""Times as people type them: how long ago, or when."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

_UNITS = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_AGO = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d|w)", re.ASCII)


def since(text: str) -> int:
    """Microseconds since 1970 of `30s`, `10m`, `2h`, `1d`, `1w` ago, or of an ISO 8601 date or time."""
    import time
    from datetime import datetime

    ago = _AGO.fullmatch(text)
    if ago:
        return max(0, time.time_ns() // 1000 - round(float(ago[1]) * _UNITS[ago[2]]))
    try:
        # A time without a zone is meant as the clock on the wall shows it.
        return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1_000_000))
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is not a time; write how long ago (30s, 10m, 2h, 1d) or a date (2026-01-31T12:00)"
        raise ArgumentTypeError(message) from None
