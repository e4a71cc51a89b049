"""Snapshots, task logs and node numbers of the memory store."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import itemgetter

import msgspec

from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MAX_NODE
from arclog.ports.store import LogLine
from arclog.stores.memory.tables import Tables
from arclog.stores.rows import decode, encode

_LINE = msgspec.json.Decoder(LogLine)


class Odds(Tables):
    """Caches and odds."""

    async def put_snapshot(self, execution_id: int, seq: int, code: str, body: bytes) -> None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        if kept is None or seq >= kept[0] or code != kept[1]:
            self._snapshots[execution_id] = (seq, code, body)

    async def snapshot(self, execution_id: int, code: str) -> tuple[int, bytes] | None:
        self._check_open()
        kept = self._snapshots.get(execution_id)
        return None if kept is None or kept[1] != code else (kept[0], kept[2])

    async def append_logs(self, lines: Sequence[LogLine]) -> None:
        self._check_open()
        encoded = [(line.execution_id, encode(line)) for line in lines]
        self._lines += [(len(self._lines) + i, owner, body) for i, (owner, body) in enumerate(encoded, 1)]

    async def logs(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[tuple[int, LogLine]]:
        self._check_open()
        start = bisect_right(self._lines, after, key=itemgetter(0))
        found = [(position, body) for position, owner, body in self._lines[start:] if owner == execution_id]
        return [(position, decode(body, _LINE)) for position, body in found[:limit]]

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
