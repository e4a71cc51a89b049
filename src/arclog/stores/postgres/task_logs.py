"""Adding lines to task logs in the PostgreSQL store: one request, however many lines."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.task_logs import LOG_CUT, PROGRESS, PROGRESS_KEPT, LogLine, log_size
from arclog.stores.postgres.connection.values import columns
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.part import Call
from arclog.stores.sql.task_logs import TaskLogs as SqlTaskLogs
from arclog.stores.sql.task_logs import attempt_columns, text_bytes

_LINE = "iiititiittbi"


class TaskLogs(SqlTaskLogs, PostgresPart):
    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        if not lines:
            return
        newest = {attempt_columns(line): n for n, line in enumerate(lines) if line.stream == PROGRESS}
        rows = []
        for n, line in enumerate(lines):
            if line.stream == PROGRESS and newest[attempt_columns(line)] != n:
                continue  # the same attempt says more further down
            execution_id, *attempt = attempt_columns(line)
            size = 0 if line.stream == PROGRESS else log_size(line)
            rows.append((n, execution_id, line.at, *attempt, line.stream, text_bytes(line.text), size))
        owners = sorted({line.execution_id for line in lines})
        for owner in owners:
            if not self._spans.has(owner):
                await self._spans.ensure(owner)
        cut = text_bytes("" if max_bytes is None else LOG_CUT.format(max_bytes=max_bytes))
        calls: list[Call] = [
            ("lock_logs", [self._ints(owners)]),
            ("add_logs", [*columns(_LINE, rows), max_bytes, cut, len(cut) + 1]),
        ]
        if newest:
            calls.append(("forget_progress", [self._ints({key[0] for key in newest}), PROGRESS_KEPT]))
        await self._run(calls)
