"""Snapshots of executions, by which their states are built without the whole log."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from arclog.model.ids import MAX_ID
from arclog.stores.sql.part import SqlPart


class Snapshots(SqlPart):
    async def put_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int] | None = None
    ) -> None:
        if drop is None:
            await self._write("put_snapshot", execution_id, seq, code, body)
        else:
            await self._put_next_snapshot(execution_id, seq, code, body, drop)

    @abstractmethod
    async def _put_next_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int]
    ) -> None:
        """Keep the snapshot before, too, and drop some of those before that."""

    async def past_snapshots(self, execution_id: int, code: str) -> list[int]:
        return [seq for (seq,) in await self._read("past_snapshots", execution_id, code)]

    async def snapshot(self, execution_id: int, code: str, last: int = MAX_ID) -> tuple[int, bytes] | None:
        for statement in ("snapshot", "past_snapshot"):
            rows = await self._look_up(statement, execution_id, code, last)
            if rows:
                return (rows[0][0], rows[0][1])
        return None
