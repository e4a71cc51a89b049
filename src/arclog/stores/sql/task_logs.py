"""Lines of task logs: a table beside the event log.

A line's text is bytes, so that it is searched byte by byte and may hold whatever a task printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arclog.ports.storage.task_logs import ANY_LINE, LogFilter, LogLine
from arclog.stores.sql.part import SqlPart


class TaskLogs(SqlPart):
    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        streams = self._texts(where.streams)
        narrowed = (where.step, where.task, _path(where.iteration), streams, text_bytes(where.text), where.since)
        return [_line(execution_id, row) for row in await self._list("logs", execution_id, after, limit, *narrowed)]


def attempt_columns(line: LogLine) -> tuple[int, str, int, str, int, int, str]:
    """The attempt that a line belongs to, in the order of the columns."""
    return (line.execution_id, line.step, line.run, line.task, line.task_run, line.attempt, _path(line.iteration))


def text_bytes(text: str) -> bytes:
    """UTF-8, in which lone surrogates stand as they are."""
    return text.encode("utf-8", "surrogatepass")


def _path(iteration: tuple[int, ...] | None) -> str:
    """Every index with a dot behind it, so that the beginning of a path is the beginning of its text."""
    return "".join(f"{index}." for index in iteration or ())


def _line(execution_id: int, row: Sequence[Any]) -> tuple[int, LogLine]:
    """A line with its position, from the columns that `logs` reads."""
    pos, at, step, run, task, task_run, attempt, path, stream, body = row
    line = LogLine(
        execution_id=execution_id,
        at=at,
        step=step,
        run=run,
        task=task,
        task_run=task_run,
        attempt=attempt,
        stream=stream,
        text=body.decode("utf-8", "surrogatepass"),
        iteration=tuple(map(int, path.split(".")[:-1])) if path else None,
    )
    return pos, line
