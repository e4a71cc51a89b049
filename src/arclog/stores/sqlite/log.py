"""The log of the SQLite store: `appends` writes it; readers page through its rows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import apsw
from msgspec.structs import replace

from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MAX_ID
from arclog.ports.storage.marks import MARKS_PER_SLOT, WRITE_SLOT
from arclog.ports.storage.store import Append, Appended, StoredEvent
from arclog.ports.storage.task_logs import LOG_CUT, PROGRESS, PROGRESS_KEPT, LogLine, log_size
from arclog.stores.rows import Codec, bits_of
from arclog.stores.sql.log import Log as SqlLog
from arclog.stores.sql.log import attempt_columns, text_bytes
from arclog.stores.sqlite.appends import append as write_append
from arclog.stores.sqlite.appends import append_all as write_group
from arclog.stores.sqlite.connection.readers import Execute
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.part import GROUPED, SqlitePart
from arclog.stores.sqlite.queries import SQL

if TYPE_CHECKING:
    from arclog.stores.searching import Key

log = logging.getLogger("arclog.store")

R = TypeVar("R")

_ALL_TYPES = -1
#: Maximum number of events that are read without a thread, since a thread switch would take longer than the read.
_FEW = 64


class Log(SqlLog, SqlitePart):
    async def append(self, append: Append) -> Appended:
        derived = self._codec.derive(append)
        return await self._writer.do(self._marked(append.marks, lambda tx: write_append(tx, append, derived)))

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        outcomes: list[Appended | Exception] = []
        for first in range(0, len(appends), MARKS_PER_SLOT):
            outcomes += await self._append_group(appends[first : first + MARKS_PER_SLOT])
        return outcomes

    async def _append_group(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        if len(appends) < GROUPED:
            return await asyncio.gather(*map(self._outcome, appends))
        try:
            items = [(append, self._codec.derive(append)) for append in appends]
            marks = [mark for append in appends for mark in append.marks[:1]]  # a run has one input here
            return list(await self._writer.do(self._marked(marks, lambda tx: write_group(tx, items)), aside=True))
        except StoreUnavailable as problem:
            return [type(problem)(*problem.args) for _ in appends]  # each caller gets its own exception object
        except Exception as problem:  # noqa: BLE001 - one of them cannot be stored, and nothing was written
            log.info("%d appends cannot be stored together: %s; each is stored by itself", len(appends), problem)
            return await asyncio.gather(*map(self._outcome, appends))

    def _marked(self, marked: Sequence[tuple[int, int]], write: Callable[[Tx], R]) -> Callable[[Tx], R]:
        """Return what writes appends with their marks."""
        marks = self._codec.marks
        if marks is None or not marked:
            return write

        def write_marked(tx: Tx) -> R:
            marks.begin(WRITE_SLOT, *marked)
            try:
                return write(tx)
            finally:
                marks.end(WRITE_SLOT)

        return write_marked

    async def _outcome(self, append: Append) -> Appended | Exception:
        try:
            return await self.append(append)
        except Exception as problem:  # noqa: BLE001 - it is the answer of this one
            return problem

    async def events(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> list[StoredEvent]:
        def work(execute: Execute) -> list[StoredEvent]:
            if not (types or after):
                return _page(execute(SQL["first_rows"], (execution_id,)), self._codec, execution_id, limit, 0)
            wanted = frozenset(types)
            rows = execute(SQL["rows_of"], (execution_id, after + 1, MAX_ID, bits_of(types) if types else _ALL_TYPES))
            is_wanted = (lambda it: it.event.type in wanted) if wanted else None
            return _page(rows, self._codec, execution_id, limit, after, is_wanted)

        return await (self._quickly(work) if limit <= _FEW and not types else self._reader.do(work))

    async def step_events(
        self, execution_id: int, step: str, run: int, *, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        def work(execute: Execute) -> list[StoredEvent]:
            bounds = execute(SQL["step_bounds"], (execution_id, step, run)).fetchone()
            if bounds is None:
                return []
            first = max(bounds[0], after + 1)
            last = MAX_ID if bounds[1] is None else bounds[1]
            rows = execute(SQL["rows_of"], (execution_id, first, last, _ALL_TYPES))
            return _page(
                rows,
                self._codec,
                execution_id,
                limit,
                first - 1,
                lambda it: it.event.run == run and it.event.step == step,
            )

        return await self._reader.do(work)

    async def position_before(self, ts: int) -> int:
        """Use binary search. Positions are assigned in the order of time."""

        def work(execute: Execute) -> int:
            low, high = map(int, execute(SQL["position_bounds"]).fetchone())
            newest = execute(SQL["first_from"], (high,)).fetchone()
            if newest is None or newest[1] < ts:
                return high  # nothing was persisted since then
            while low < high:
                middle = (low + high) // 2
                position, at = execute(SQL["first_from"], (middle,)).fetchone()
                if at >= ts:
                    high = middle
                else:
                    low = position + 1
            return high - 1

        return await self._reader.do(work)

    async def events_at(self, keys: Sequence[Key]) -> list[StoredEvent]:
        def work(execute: Execute) -> list[StoredEvent]:
            events: list[StoredEvent] = []
            for key in keys:
                row = execute(SQL["row_at"], (key.execution_id, key.seq)).fetchone()
                if row is not None:  # otherwise it was removed meanwhile
                    events.append(self._codec.stored(key.execution_id, *row)[key.seq - row[0]])
            return events

        return await self._reader.do(work)

    # -- logs of tasks ----------------------------------------------------------------------------------------------

    async def append_logs(self, lines: Sequence[LogLine], max_bytes: int | None = None) -> None:
        if lines:
            await self._writer.do(lambda tx: _append(tx, lines, max_bytes))


def _page(
    rows: apsw.Cursor,
    codec: Codec,
    execution_id: int,
    limit: int,
    after: int,
    wanted: Callable[[StoredEvent], bool] | None = None,
) -> list[StoredEvent]:
    page: list[StoredEvent] = []
    try:
        for seq0, base, ts, body in rows:
            if len(page) >= limit:
                break
            events = codec.stored(execution_id, seq0, base, ts, body)
            if seq0 <= after:  # only the first row can begin before the page
                events = events[after + 1 - seq0 :]
            page += events if wanted is None else filter(wanted, events)
    finally:
        rows.close()  # an unfinished cursor would keep this snapshot of the file alive
    return page[: max(limit, 0)]


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
    for row in before:  # after the new row exists, so that no position is assigned twice
        tx.execute(SQL["drop_log"], row)
    if not before:
        tx.execute(SQL["forget_progress"], (line.execution_id, PROGRESS_KEPT))


def _insert(tx: Tx, line: LogLine) -> None:
    execution_id, *attempt = attempt_columns(line)
    tx.execute(SQL["add_log"], (execution_id, line.at, *attempt, line.stream, text_bytes(line.text)))
