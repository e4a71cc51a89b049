"""Task logs: a table beside the event log.

A line's text is a bytea, so that it is searched byte by byte and may hold whatever a task printed.
"""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.task_logs import ANY_LINE, LOG_CUT, PROGRESS, PROGRESS_KEPT, LogFilter, LogLine, log_size
from arclog.stores.postgres.connection.pipeline import Call
from arclog.stores.postgres.connection.values import columns, ints, texts
from arclog.stores.postgres.part import Part
from arclog.stores.task_lines import attempt_of, line_of, path_of, text_of

_LINE = "iiititiittbi"


class TaskLogs(Part):
    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        if not lines:
            return
        newest = {attempt_of(line): n for n, line in enumerate(lines) if line.stream == PROGRESS}
        rows = []
        for n, line in enumerate(lines):
            if line.stream == PROGRESS and newest[attempt_of(line)] != n:
                continue  # the same attempt says more further down
            execution_id, *attempt = attempt_of(line)
            size = 0 if line.stream == PROGRESS else log_size(line)
            rows.append((n, execution_id, line.at, *attempt, line.stream, text_of(line.text), size))
        owners = sorted({line.execution_id for line in lines})
        for owner in owners:
            if not self._spans.has(owner):
                await self._spans.ensure(owner)
        cut = text_of("" if max_bytes is None else LOG_CUT.format(max_bytes=max_bytes))
        calls: list[Call] = [
            (self._sql["lock_logs"], [ints(owners)]),
            (self._sql["add_logs"], [*columns(_LINE, rows), max_bytes, cut, len(cut) + 1]),
        ]
        if newest:
            calls.append((self._sql["forget_progress"], [ints({key[0] for key in newest}), PROGRESS_KEPT]))
        await self._pool.run(calls)

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        narrowed = (where.step, where.task, path_of(where.iteration), texts(where.streams), text_of(where.text))
        rows = await self._pool.read(self._sql["logs"], execution_id, after, limit, *narrowed, where.since)
        return [line_of(execution_id, row) for row in rows]
