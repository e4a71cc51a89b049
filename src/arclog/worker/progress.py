"""How far one attempt is: checked, thinned out, and written as log lines of the stream `progress`.

At most one line in `logs.progress_ms`, and always the last; the store keeps the newest of an attempt only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec.json import encode

_UNIT_MAX = 32
_SHOWN = 60


class AttemptProgress:
    """Takes what one attempt says of itself; `end` when it is over."""

    __slots__ = ("_complained", "_later", "_next", "_now", "_pause_s", "_unwritten", "_write")

    def __init__(
        self,
        write: Callable[[str, str], None],
        now: Callable[[], float],
        pause_s: float,
        later: Callable[[AttemptProgress], None],
    ) -> None:
        """`write` takes (stream, text) of a log line; `now` is a monotonic clock; `later` calls `write_due` in a while."""
        self._later = later
        self._write = write
        self._now = now
        self._pause_s = pause_s
        self._next = -math.inf
        self._unwritten = ""
        self._complained = False

    def __call__(self, done: Any, total: Any = None, unit: Any = "") -> None:
        problem = _problem("done", done) or ("" if total is None else _problem("total", total))
        if problem or not isinstance(unit, str):
            self._complain(problem or f"unit must be a text, not {_shown(unit)}")
            return
        said = {"done": done, "total": total, "unit": " ".join(unit.split())[:_UNIT_MAX]}
        waited = self.waits
        self._unwritten = encode(said).decode()
        self.write_due()
        if self._unwritten and not waited:
            self._later(self)

    @property
    def waits(self) -> bool:
        """Whether something was said that is not written yet."""
        return bool(self._unwritten)

    def write_due(self) -> None:
        """Write what was said, if it is time."""
        if self._unwritten and self._now() >= self._next:
            self._next = self._now() + self._pause_s
            self.end()

    def end(self) -> None:
        """Write what was said last."""
        if self._unwritten:
            text, self._unwritten = self._unwritten, ""
            self._write("progress", text)

    def _complain(self, problem: str) -> None:
        if not self._complained:
            self._complained = True
            self._write("log", f"progress is not shown: {problem}")


def _problem(name: str, value: Any) -> str:
    """Why the value cannot be shown; '' when it can."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name} must be a number, not {_shown(value)}"
    if not 0 <= value < 2**63:  # refuses nan, too
        return f"{name} must be a number from 0 on, not {_shown(value)}"
    return ""


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
