"""Options of several commands: times as people type them, and the changes of commands that continue from a recorded
run.
"""

from __future__ import annotations

import re
from argparse import ArgumentTypeError, Namespace
from typing import TYPE_CHECKING

from arclog.cli.exits import Usage

if TYPE_CHECKING:
    from arclog.cli.args import Parser

# ── times ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Times on the command line: how long ago, or when.

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
        # A time without a zone is local time.
        return max(0, round(datetime.fromisoformat(text).astimezone().timestamp() * 1_000_000))
    except (ValueError, OverflowError, OSError):
        message = f"{text!r} is not a time; write how long ago (30s, 10m, 2h, 1d) or a date (2026-01-31T12:00)"
        raise ArgumentTypeError(message) from None


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Options of commands that continue from a recorded run with something changed: its playbook, its workload, names of steps.


def change_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--playbook", metavar="FILE", default="", help="continue with this playbook instead of the run's own"
    )
    parser.add_set("change a value of the run's workload")
    parser.add_map("a step has another name in the new playbook")


def mapping_of(options: Namespace) -> dict[str, str]:
    """The names of --map: from the old name of a step to its new one."""
    names: dict[str, str] = {}
    for text in options.mapped:
        old, equals, new = text.partition("=")
        if not (old and equals and new):
            raise Usage(f"--map {text!r} is not of the form OLD=NEW (two step names)")
        names[old] = new
    if names and not options.playbook:
        raise Usage("--map names steps of a new playbook; give it with --playbook FILE")
    return names
