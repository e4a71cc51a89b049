"""Forgetting what ended long ago, some executions in a transaction."""

from __future__ import annotations

from arclog.stores.sqlite.lanes import Execute, Tx
from arclog.stores.sqlite.queries import SQL

#: executions of one transaction: others wait for it
_MOST = 200
_TABLES = ("log", "mark", "step_runs", "ingested", "snapshots", "task_logs", "task_log_sizes", "outbox", "executions")


def retire(tx: Tx, before: int) -> int:
    found = tx.execute(SQL["retirable"], (before, _MOST)).fetchall()
    for owner in found:
        for table in _TABLES:
            tx.execute(f"DELETE FROM {table} WHERE execution_id = ?", owner)  # noqa: S608 - names of our own
        tx.execute("DELETE FROM results WHERE execution_id = ? AND removed_at IS NOT NULL", owner)
    return len(found)


def count(execute: Execute, before: int) -> int:
    return len(execute(SQL["retirable"], (before, -1)).fetchall())
