"""What a search reads: pages of marks and of rows; see `stores.searching`."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.ports.storage.event_search import EventQuery, FoundEvents, StoredEvent
from arclog.stores.postgres.connection.values import ints
from arclog.stores.postgres.part import Part
from arclog.stores.searching import Key, MarkRow, ScannedRow, search

#: Positions that are looked at in one request while a moment is searched for.
_PROBES = 64


class Searches(Part):
    _search_rows: int

    async def search(self, query: EventQuery, *, cursor: str = "", limit: int = 100) -> FoundEvents:
        return await search(self, query, cursor, limit, self._search_rows)

    async def mark_page(self, bit: int, after: Key, query: EventQuery, limit: int) -> list[MarkRow]:
        where = (query.tenant, query.project, query.environment)
        rows = await self._pool.read(self._sql["mark_page"], bit, *after, *where, query.until, limit)
        return [MarkRow(*row) for row in rows]

    async def scanned_page(self, after: int, bits: int, query: EventQuery, limit: int) -> list[ScannedRow]:
        where = (query.tenant, query.project, query.environment)
        rows = await self._pool.read(self._sql["scanned_page"], after, bits, *where, limit)
        return [
            ScannedRow(pos, ts, () if body is None else self._codec.stored(owner, seq0, base, ts, body))
            for pos, ts, owner, seq0, base, body in rows
        ]

    async def position_before(self, ts: int) -> int:
        """By division into many parts: positions are given in the order of time."""
        bounds = await self._pool.read(self._sql["position_bounds"])
        low, high = int(bounds[0][0]), int(bounds[0][1])
        while True:
            probes = sorted({low + (high - low) * part // _PROBES for part in range(_PROBES + 1)})
            rows = await self._pool.read(self._sql["positions_from"], ints(probes))
            later = next((int(probe) for probe, at in rows if at >= ts), None)
            if later is None:
                return high  # nothing was persisted since
            low = max((int(probe) + 1 for probe, at in rows if at < ts), default=low)
            high = later
            if low >= high:
                return high - 1

    async def events_at(self, keys: Sequence[Key]) -> list[StoredEvent]:
        if not keys:
            return []
        owners, seqs = ints(key.execution_id for key in keys), ints(key.seq for key in keys)
        return [
            self._codec.stored(owner, seq0, base, ts, body)[seq - seq0]
            for owner, seq, seq0, base, ts, body in await self._pool.read(self._sql["events_at"], owners, seqs)
        ]
