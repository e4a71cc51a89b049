"""Removing what ended long ago."""

from __future__ import annotations

from arclog.stores.memory.tables import Tables


class Retention(Tables):
    async def reclaim(self) -> int:
        self._check_open()
        return 0

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        self._check_open()
        found = {execution_id for execution_id in self._executions if self._may_go(execution_id, before)}
        if dry_run:
            return len(found)
        for execution_id in found:
            new = self._executions.pop(execution_id).record.new  # its log rows are passed over from now on
            self._keys.pop((new.scope, new.idempotency_key), None)
            self._snapshots.pop(execution_id, None)
            self._past_snapshots.pop(execution_id, None)
            self._log_sizes.pop(execution_id, None)
        self._lines = [each for each in self._lines if each[1].execution_id not in found]
        self._marks = [mark for mark in self._marks if mark.execution_id not in found]
        self._outbox = {key: each for key, each in self._outbox.items() if key[0] not in found}
        self._results = {
            key: each for key, each in self._results.items() if key[0] not in found or each.removed_at is None
        }
        return len(found)

    def _may_go(self, execution_id: int, before: int) -> bool:
        execution = self._executions[execution_id]
        record = execution.record
        ended_at = record.new.created_at if record.now.ended_at is None else record.now.ended_at
        caller = self._executions.get(record.new.parent_execution_id)
        return (
            execution.over
            and ended_at < before
            and (caller is None or caller.over)
            and not any(
                key[0] == execution_id and each.removed_at is None and each.scope != "permanent"
                for key, each in self._results.items()
            )
            and (execution_id in self._settled or not any(key[0] == execution_id for key in self._outbox))
        )
