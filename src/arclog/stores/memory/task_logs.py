"""Task logs in memory: every rule of `ports.storage.store` on log lines, in plain Python."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter

from msgspec.structs import replace

from arclog.ports.storage.task_logs import LOG_CUT, PROGRESS, PROGRESS_KEPT, LogFilter, LogLine, log_size


class MemoryLogs:
    """The lines of all executions, in the order of their positions."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, LogLine]] = []
        self._position = 0
        #: bytes kept, and whether the log was cut
        self._sizes: dict[int, tuple[int, bool]] = {}

    def append(self, lines: Sequence[LogLine], max_bytes: int | None) -> None:
        for line in lines:
            if line.stream == PROGRESS:
                self._put_progress(line)
            else:
                self._append(line, max_bytes)

    def _put_progress(self, line: LogLine) -> None:
        told = [
            each for each in self._lines if each[1].stream == PROGRESS and each[1].execution_id == line.execution_id
        ]
        before = [each for each in told if _same_attempt(each[1], line)]
        oldest = told[: max(0, len(told) + 1 - PROGRESS_KEPT)]
        for each in before or oldest:
            self._lines.remove(each)
        self._keep(line)

    def _append(self, line: LogLine, max_bytes: int | None) -> None:
        used, cut = self._sizes.get(line.execution_id, (0, False))
        if max_bytes is not None and used + log_size(line) > max_bytes:
            if cut:
                return
            line, cut = replace(line, stream="log", text=LOG_CUT.format(max_bytes=max_bytes)), True
        self._keep(line)
        self._sizes[line.execution_id] = (used + log_size(line), cut)

    def _keep(self, line: LogLine) -> None:
        self._position += 1
        self._lines.append((self._position, line))

    def forget(self, execution_id: int) -> None:
        self._lines = [each for each in self._lines if each[1].execution_id != execution_id]
        self._sizes.pop(execution_id, None)

    def read(self, execution_id: int, after: int, limit: int, where: LogFilter) -> list[tuple[int, LogLine]]:
        start = bisect_right(self._lines, after, key=itemgetter(0))
        found = (each for each in self._lines[start:] if each[1].execution_id == execution_id)
        return list(islice((each for each in found if _fits(each[1], where)), limit))


def _same_attempt(one: LogLine, other: LogLine) -> bool:
    return one == replace(other, at=one.at, text=one.text)


def _fits(line: LogLine, where: LogFilter) -> bool:
    path = where.iteration
    return (
        (not where.step or line.step == where.step)
        and (not where.task or line.task == where.task)
        and (path is None or (line.iteration or ())[: len(path)] == path)
        and (line.stream in where.streams if where.streams else line.stream != PROGRESS)
        and where.text in line.text
        and line.at >= where.since
    )
