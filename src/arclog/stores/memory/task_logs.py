"""Lines of task logs, in the order of their positions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from operator import itemgetter

from msgspec.structs import replace

from arclog.ports.storage.task_logs import ANY_LINE, LOG_CUT, PROGRESS, PROGRESS_KEPT, LogFilter, LogLine, log_size
from arclog.stores.memory.tables import Tables


class TaskLogs(Tables):
    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        self._check_open()
        for line in lines:
            if line.stream == PROGRESS:
                self._put_progress(line)
            else:
                self._add_line(line, max_bytes)

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        self._check_open()
        start = bisect_right(self._lines, after, key=itemgetter(0))
        own = (each for each in self._lines[start:] if each[1].execution_id == execution_id)
        return list(islice((each for each in own if _fits(each[1], where)), limit))

    def _put_progress(self, line: LogLine) -> None:
        known = [
            each for each in self._lines if each[1].stream == PROGRESS and each[1].execution_id == line.execution_id
        ]
        before = [each for each in known if _same_attempt(each[1], line)]
        oldest = known[: max(0, len(known) + 1 - PROGRESS_KEPT)]
        for each in before or oldest:
            self._lines.remove(each)
        self._keep_line(line)

    def _add_line(self, line: LogLine, max_bytes: int | None) -> None:
        used, cut = self._log_sizes.get(line.execution_id, (0, False))
        if max_bytes is not None and used + log_size(line) > max_bytes:
            if cut:
                return
            line, cut = replace(line, stream="log", text=LOG_CUT.format(max_bytes=max_bytes)), True
        self._keep_line(line)
        self._log_sizes[line.execution_id] = (used + log_size(line), cut)

    def _keep_line(self, line: LogLine) -> None:
        self._line_position += 1
        self._lines.append((self._line_position, line))


def _same_attempt(line: LogLine, other: LogLine) -> bool:
    return line == replace(other, at=line.at, text=line.text)


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
