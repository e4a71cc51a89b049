"""The log of the PostgreSQL store: `appends` writes it; pages are read by execution and by position."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from arclog.model.ids import MAX_ID
from arclog.ports.storage.store import Append, Appended, StoredEvent
from arclog.ports.storage.task_logs import LOG_CUT, PROGRESS, PROGRESS_KEPT, LogLine, log_size
from arclog.stores.postgres.appends import Writer
from arclog.stores.postgres.connection.pipeline import columns
from arclog.stores.postgres.part import Lookups, PostgresPart
from arclog.stores.rows import bits_of
from arclog.stores.searching import Key
from arclog.stores.sql.log import Log as SqlLog
from arclog.stores.sql.log import attempt_columns, text_bytes
from arclog.stores.sql.part import Call

#: Number of first events that are read for several runs together.
FEW = 64
_ALL_TYPES = -1
#: maximum number of log rows in one request; a row may have few or many events, or be large
_ROWS = 200
#: Number of positions that one request reads in the search for a time.
_PROBES = 64
_LINE = "iiititiittbi"


class Log(SqlLog, PostgresPart):
    _writer: Writer
    _beginnings: Lookups[list[StoredEvent]]

    async def append(self, append: Append) -> Appended:
        derived = self._codec.derive(append)
        if not self._has_span(append):
            await self._spans.ensure(append.execution_id)
        return await self._writer.append(append, derived)

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        outcomes = await asyncio.gather(*map(self._handed_in, appends), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Exception):
                raise outcome
        return [outcome for outcome in outcomes if isinstance(outcome, Appended | Exception)]

    def _handed_in(self, append: Append) -> Awaitable[Appended]:
        """Pass an append to the writer at once, so that the appends of a group are sent together."""
        try:
            if self._has_span(append):
                return self._writer.append(append, self._codec.derive(append))
        except Exception as problem:  # noqa: BLE001 - it is raised where the append is awaited
            return _failed(problem)
        return self.append(append)

    def _has_span(self, append: Append) -> bool:
        """Return whether the partition of an execution exists. A new execution also triggers the creation of the next
        one.
        """
        if append.new is not None and self._spans.is_last(append.execution_id):
            self._spans.make_next(self._clock.now())
        return self._spans.has(append.execution_id)

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        wanted = frozenset(types)
        bits = bits_of(types) if types else _ALL_TYPES
        if not (wanted or after) and 0 < limit <= FEW:
            return (await self._beginnings.get(execution_id) or [])[:limit]
        if not wanted:
            return await self._page(execution_id, after, MAX_ID, bits, limit, None)
        return await self._page(execution_id, after, MAX_ID, bits, limit, lambda it: it.event.type in wanted)

    async def step_events(
        self, execution_id: int, step: str, run: int, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        bounds = await self._read("step_bounds", execution_id, step, run)
        if not bounds:
            return []
        first, until = bounds[0]
        return await self._page(
            execution_id,
            max(first - 1, after),
            MAX_ID if until is None else until,
            _ALL_TYPES,
            limit,
            lambda it: it.event.run == run and it.event.step == step,
        )

    async def _page(
        self,
        execution_id: int,
        after: int,
        last: int,
        bits: int,
        limit: int,
        wanted: Callable[[StoredEvent], bool] | None,
    ) -> list[StoredEvent]:
        page: list[StoredEvent] = []
        while len(page) < limit:
            most = min(limit - len(page), _ROWS)
            rows = await self._read("rows_of", execution_id, after + 1, last, bits, most)
            for seq0, base, ts, body in rows:
                events = self._codec.stored(execution_id, seq0, base, ts, body)
                if seq0 <= after:  # only the first row can begin before the page
                    events = events[after + 1 - seq0 :]
                if events:
                    after = events[-1].seq
                page += events if wanted is None else filter(wanted, events)
            if len(rows) < most:
                break
        return page[: max(limit, 0)]

    async def _read_beginnings(self, execution_ids: Sequence[int]) -> dict[int, list[StoredEvent]]:
        """Return the first events of these executions, at least `FEW` of each if there are as many."""
        beginnings: dict[int, list[StoredEvent]] = {}
        for owner, seq0, base, ts, body in await self._read("first_rows", self._ints(execution_ids), FEW):
            beginnings.setdefault(owner, []).extend(self._codec.stored(owner, seq0, base, ts, body))
        return beginnings

    async def position_before(self, ts: int) -> int:
        """Search with many probes per request. Positions are assigned in the order of time."""
        bounds = await self._read("position_bounds")
        low, high = int(bounds[0][0]), int(bounds[0][1])
        while True:
            probes = sorted({low + (high - low) * part // _PROBES for part in range(_PROBES + 1)})
            rows = await self._read("positions_from", self._ints(probes))
            later = next((int(probe) for probe, at in rows if at >= ts), None)
            if later is None:
                return high  # nothing was persisted since then
            low = max((int(probe) + 1 for probe, at in rows if at < ts), default=low)
            high = later
            if low >= high:
                return high - 1

    async def events_at(self, keys: Sequence[Key]) -> list[StoredEvent]:
        if not keys:
            return []
        owners, seqs = self._ints(key.execution_id for key in keys), self._ints(key.seq for key in keys)
        return [
            self._codec.stored(owner, seq0, base, ts, body)[seq - seq0]
            for owner, seq, seq0, base, ts, body in await self._read("events_at", owners, seqs)
        ]

    # -- logs of tasks ----------------------------------------------------------------------------------------------

    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        if not lines:
            return
        newest = {attempt_columns(line): n for n, line in enumerate(lines) if line.stream == PROGRESS}
        rows = []
        for n, line in enumerate(lines):
            if line.stream == PROGRESS and newest[attempt_columns(line)] != n:
                continue  # a later line of the same attempt replaces it
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


async def _failed(problem: Exception) -> Appended:
    raise problem
