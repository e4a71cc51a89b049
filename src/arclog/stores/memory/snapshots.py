"""Snapshots of executions, by which their states are built without the whole log."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.model.ids import MAX_ID
from arclog.stores.memory.tables import Tables


class Snapshots(Tables):
    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        if drop is not None:
            past = self._past_snapshots.get(execution_id, {})
            past = {at: each for at, each in past.items() if each[0] == code and at not in drop}
            if kept is not None and kept[0] < seq and kept[1] == code:
                past[kept[0]] = kept[1:]
            self._past_snapshots[execution_id] = past
        if kept is None or seq >= kept[0] or code != kept[1]:
            self._snapshots[execution_id] = (seq, code, body)

    async def past_snapshots(self, execution_id: int, code: str) -> list[int]:
        self._check_open()
        return sorted(seq for seq, each in self._past_snapshots.get(execution_id, {}).items() if each[0] == code)

    async def snapshot(self, execution_id: int, code: str, last: int = MAX_ID) -> tuple[int, bytes] | None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        if kept is not None and kept[1] == code and kept[0] <= last:
            return (kept[0], kept[2])
        past = self._past_snapshots.get(execution_id, {})
        seq = max((seq for seq, each in past.items() if each[0] == code and seq <= last), default=0)
        return (seq, past[seq][1]) if seq else None
