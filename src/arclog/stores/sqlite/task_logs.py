"""Adding lines to task logs in the SQLite store."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.ports.storage.task_logs import LOG_CUT, PROGRESS, PROGRESS_KEPT, LogLine, log_size
from arclog.stores.sql.task_logs import TaskLogs as SqlTaskLogs
from arclog.stores.sql.task_logs import attempt_columns, text_bytes
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL


class TaskLogs(SqlTaskLogs, SqlitePart):
    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        if lines:
            await self._writer.do(lambda tx: _append(tx, lines, max_bytes))


def _append(tx: Tx, lines: Sequence[LogLine], max_bytes: int | None) -> None:
    sizes: dict[int, tuple[int, bool]] = {}
    for line in lines:
        if line.stream == PROGRESS:
            _put_progress(tx, line)
            continue
        if line.execution_id not in sizes:
            row = tx.execute(SQL["log_size"], (line.execution_id,)).fetchone()
            sizes[line.execution_id] = (row[0], bool(row[1])) if row else (0, False)
        used, cut = sizes[line.execution_id]
        if max_bytes is not None and used + log_size(line) > max_bytes:
            if cut:
                continue
            line, cut = replace(line, stream="log", text=LOG_CUT.format(max_bytes=max_bytes)), True  # noqa: PLW2901 - in its place
        _insert(tx, line)
        sizes[line.execution_id] = (used + log_size(line), cut)
    for execution_id, (used, cut) in sizes.items():
        tx.execute(SQL["put_log_size"], (execution_id, used, int(cut)))


def _put_progress(tx: Tx, line: LogLine) -> None:
    before = tx.execute(SQL["progress_of"], attempt_columns(line)).fetchall()
    _insert(tx, line)
    for row in before:  # after the new one is there, so that no position is given twice
        tx.execute(SQL["drop_log"], row)
    if not before:
        tx.execute(SQL["forget_progress"], (line.execution_id, PROGRESS_KEPT))


def _insert(tx: Tx, line: LogLine) -> None:
    execution_id, *attempt = attempt_columns(line)
    tx.execute(SQL["add_log"], (execution_id, line.at, *attempt, line.stream, text_bytes(line.text)))
