"""Snapshots, task logs and node numbers of the memory store."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MAX_ID, MAX_NODE
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter, LogLine
from arclog.stores.memory.tables import Tables


class Odds(Tables):
    """Caches and odds."""

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

    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        self._check_open()
        self._logs.append(lines, max_bytes)

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        self._check_open()
        return self._logs.read(execution_id, after, limit, where)

    async def changed_elsewhere(self) -> bool:
        return False  # no other process can

    async def time(self) -> int:
        self._check_open()
        return self._clock.now()

    async def lease_node(self, owner: str, now: int, until: int) -> int:
        self._check_open()
        node = next((number for number, (holder, _) in self._nodes.items() if holder == owner), None)
        if node is None:
            taken = {number for number, (_, end) in self._nodes.items() if end > now}
            node = next((number for number in range(MAX_NODE + 1) if number not in taken), None)
            if node is None:
                raise StoreUnavailable(f"all {MAX_NODE + 1} node numbers are leased; wait for a lease to end")
        self._nodes[node] = (owner, until)
        return node
