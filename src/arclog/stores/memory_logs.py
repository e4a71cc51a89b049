"""Task logs in memory: every rule of `ports.store` on log lines, in plain Python."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter

from msgspec.structs import replace

from arclog.ports.store import LOG_CUT, PROGRESS, LogFilter, LogLine, log_size


class MemoryLogs:
    """The lines of all executions, in the order of their positions."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, LogLine]] = []
        self._position = 0
        #: bytes kept, and whether the log was cut
        self._sizes: dict[int, tuple[int, bool]] = {}

    def append(self, lines: Sequence[LogLine], max_bytes: int | None) -> None:
        for line in lines:
            self._append(line, max_bytes)

    def _append(self, line: LogLine, max_bytes: int | None) -> None:
        used, cut = self._sizes.get(line.execution_id, (0, False))
        replaced = [each for each in self._lines if _same_progress(each[1], line)] if line.stream == PROGRESS else []
        left = used - sum(log_size(each[1]) for each in replaced)
        if max_bytes is not None and not replaced and used + log_size(line) > max_bytes:
            if line.stream == PROGRESS or cut:
                return
            line, cut = replace(line, stream="log", text=LOG_CUT.format(max_bytes=max_bytes)), True
        for each in replaced:
            self._lines.remove(each)
        self._position += 1
        self._lines.append((self._position, line))
        self._sizes[line.execution_id] = (left + log_size(line), cut)

    def read(self, execution_id: int, after: int, limit: int, where: LogFilter) -> list[tuple[int, LogLine]]:
        start = bisect_right(self._lines, after, key=itemgetter(0))
        found = (each for each in self._lines[start:] if each[1].execution_id == execution_id)
        return list(islice((each for each in found if _fits(each[1], where)), limit))


def _same_progress(one: LogLine, other: LogLine) -> bool:
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
