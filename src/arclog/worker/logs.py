"""Task logs: buffered, limited per attempt, and written to the store in batches."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Any

from msgspec.json import encode

from arclog.core.flow.pipeline import Frame, Run
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError
from arclog.ports.clock import Clock
from arclog.ports.control import Control
from arclog.ports.storage.task_logs import LogLine

log = logging.getLogger("arclog.worker")

#: Maximum delay of a line, so that logs can be followed live.
_WAIT_S = 0.1
_LINES_PER_WRITE = 1000


class LogSink:
    """Collects the log lines of all tasks of one worker."""

    def __init__(self, control: Control, clock: Clock, settings: Settings) -> None:
        self._control = control
        self._clock = clock
        self._max_bytes = settings.integer("logs.max_task_bytes")
        self._progress_s = settings.number("logs.progress_ms") / 1000
        self._lines: list[LogLine] = []
        #: attempts with progress that is not yet due to be written
        self._reporting: set[AttemptProgress] = set()
        self._writing: asyncio.Task[None] | None = None

    @property
    def has_lines(self) -> bool:
        return bool(self._lines)

    def of_attempt(self, frame: Frame, move: Run) -> tuple[Callable[[str, str], None], AttemptProgress]:
        """Return the log writer and the progress reporter of one attempt. The reporter must be ended with the attempt."""
        write = self._writer(frame, move)
        progress = AttemptProgress(write, self._clock.monotonic, self._progress_s, self._wait_for)
        return self._limited(write), progress

    def _limited(self, write: Callable[[str, str], None]) -> Callable[[str, str], None]:
        """Return a writer that, after the limit of an attempt, writes one line about it and drops the rest."""
        used = 0

        def take(stream: str, text: str) -> None:
            nonlocal used
            if used > self._max_bytes:
                return
            used += len(text.encode("utf-8", "replace")) + 1
            if used > self._max_bytes:
                stream, text = "log", f"log cut here: an attempt keeps {self._max_bytes} bytes (logs.max_task_bytes)"
            write(stream, text)

        return take

    def _wait_for(self, progress: AttemptProgress) -> None:
        self._reporting.add(progress)
        self._write_soon()

    def _writer(self, frame: Frame, move: Run) -> Callable[[str, str], None]:
        """Return the function that adds lines of one attempt."""

        def write(stream: str, text: str) -> None:
            self._add(
                LogLine(
                    execution_id=int(frame.execution_id),
                    at=self._clock.now(),
                    step=frame.step,
                    run=frame.run,
                    task=move.task.plan.name,
                    task_run=move.task_run,
                    attempt=move.attempt,
                    stream=stream,
                    text=text,
                    iteration=frame.iteration,
                )
            )

        return write

    def _add(self, line: LogLine) -> None:
        self._lines.append(line)
        self._write_soon()

    def _write_soon(self) -> None:
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_later())

    async def _write_later(self) -> None:
        await asyncio.sleep(_WAIT_S)
        while self._reporting:
            for progress in list(self._reporting):
                progress.write_due()
                if not progress.waits:
                    self._reporting.discard(progress)
            await self.flush()
            await asyncio.sleep(_WAIT_S)
        self._writing = None
        await self.flush()

    async def flush(self) -> None:
        """Write the buffered lines. A failed write never fails a task."""
        while self._lines:
            lines, self._lines = self._lines[:_LINES_PER_WRITE], self._lines[_LINES_PER_WRITE:]
            try:
                await self._control.write_logs(lines)
            except ArclogError as problem:
                log.warning("%d log lines could not be stored: %s", len(lines), problem)

    async def close(self) -> None:
        for progress in self._reporting:
            progress.end()
        self._reporting.clear()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        await self.flush()


# Progress of an attempt: validated, throttled, and written as log lines of the stream `progress`: at most one line per
# `logs.progress_ms`, and always the last one. The store keeps only the newest line of an attempt.


_UNIT_MAX = 32
_SHOWN = 60


class AttemptProgress:
    """Takes the progress reports of one attempt. Call `end` when the attempt is over."""

    __slots__ = ("_complained", "_later", "_next", "_now", "_pause_s", "_unwritten", "_write")

    def __init__(
        self,
        write: Callable[[str, str], None],
        now: Callable[[], float],
        pause_s: float,
        later: Callable[[AttemptProgress], None],
    ) -> None:
        """Create a reporter.

        `write` takes (stream, text) of a log line; `now` is a monotonic clock; `later` schedules a call of `write_due`.
        """
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
        progress = {"done": done, "total": total, "unit": " ".join(unit.split())[:_UNIT_MAX]}
        waited = self.waits
        self._unwritten = encode(progress).decode()
        self.write_due()
        if self._unwritten and not waited:
            self._later(self)

    @property
    def waits(self) -> bool:
        """Return whether there is progress that is not written yet."""
        return bool(self._unwritten)

    def write_due(self) -> None:
        """Write the latest progress, if it is due."""
        if self._unwritten and self._now() >= self._next:
            self._next = self._now() + self._pause_s
            self.end()

    def end(self) -> None:
        """Write the last progress."""
        if self._unwritten:
            text, self._unwritten = self._unwritten, ""
            self._write("progress", text)

    def _complain(self, problem: str) -> None:
        if not self._complained:
            self._complained = True
            self._write("log", f"progress is not shown: {problem}")


def _problem(name: str, value: Any) -> str:
    """Return why the value is invalid, or ''."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"{name} must be a number, not {_shown(value)}"
    if not 0 <= value < 2**63:  # also refuses nan
        return f"{name} must be a number from 0 on, not {_shown(value)}"
    return ""


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
