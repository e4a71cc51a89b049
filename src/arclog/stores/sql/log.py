"""The log: reads by execution, by position and by type."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from arclog.model.events import REGISTRY
from arclog.ports.storage.event_search import EventQuery, FoundEvents
from arclog.ports.storage.store import Ingested, LogBatch, Mark, StoredEvent
from arclog.stores.searching import Key, MarkRow, ScannedRow, search
from arclog.stores.sql.part import SqlPart


class Log(SqlPart):
    _search_rows: int

    async def tail(self, *, after: int = 0, limit: int = 100) -> list[LogBatch]:
        return [
            LogBatch(pos, owner, self._codec.stored(owner, seq0, base, ts, body))
            for pos, owner, seq0, base, ts, body in await self._read("tail", after, limit)
        ]

    async def marks(self, event_type: str, *, since: int = 0, limit: int = 1000) -> list[Mark]:
        row = REGISTRY.get(event_type)
        if row is None:
            return []
        return [Mark(event_type, *mark) for mark in await self._read("marks", row.bit, since, limit)]

    async def ingested(self, execution_id: int, event_ids: Sequence[int]) -> list[Ingested]:
        rows = await self._look_up("ingested", execution_id, self._ints(event_ids))
        return [Ingested(event_id, digest.hex(), seq) for event_id, digest, seq in rows]

    # -- searching: see `stores.searching` ----------------------------------------------------------------------------

    async def search(self, query: EventQuery, *, cursor: str = "", limit: int = 100) -> FoundEvents:
        return await search(self, query, cursor, limit, self._search_rows)

    async def mark_page(self, bit: int, after: Key, query: EventQuery, limit: int) -> list[MarkRow]:
        where = (query.tenant, query.project, query.environment)
        rows = await self._read("mark_page", bit, *after, *where, query.until, limit)
        return [MarkRow(ts, execution_id, seq, bool(is_within)) for ts, execution_id, seq, is_within in rows]

    async def scanned_page(self, after: int, bits: int, query: EventQuery, limit: int) -> list[ScannedRow]:
        rows = await self._read("scanned_page", after, bits, query.tenant, query.project, query.environment, limit)
        return [
            ScannedRow(pos, ts, () if body is None else self._codec.stored(owner, seq0, base, ts, body))
            for pos, ts, owner, seq0, base, body in rows
        ]

    @abstractmethod
    async def position_before(self, ts: int) -> int:
        """See `stores.searching.SearchPages`."""

    @abstractmethod
    async def events_at(self, keys: Sequence[Key]) -> list[StoredEvent]:
        """See `stores.searching.SearchPages`."""
