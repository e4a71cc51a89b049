"""The log: reads by execution, by position and by type. The logs of tasks: a separate table.

The text of a line is stored as bytes, so that it can contain anything that a task printed. It is searched byte by byte.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from arclog.model.events import REGISTRY
from arclog.ports.storage.marks import Marks
from arclog.ports.storage.store import EventMatches, EventQuery, Ingested, LogBatch, Mark, StoredEvent
from arclog.ports.storage.task_logs import ANY_LINE, LogFilter, LogLine
from arclog.stores.sql.part import SqlPart

if TYPE_CHECKING:
    from arclog.stores.searching import Key, MarkRow, ScannedRow


class Log(SqlPart):
    _search_rows: int

    async def keep_marks(self, marks: Marks) -> None:
        self._codec.marks = marks

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

    async def search(self, query: EventQuery, *, cursor: str = "", limit: int = 100) -> EventMatches:
        from arclog.stores.searching import search  # only searches need it

        return await search(self, query, cursor, limit, self._search_rows)

    async def mark_page(self, bit: int, after: Key, query: EventQuery, limit: int) -> list[MarkRow]:
        from arclog.stores.searching import MarkRow

        where = (query.tenant, query.project, query.environment)
        rows = await self._read("mark_page", bit, *after, *where, query.until, limit)
        return [MarkRow(ts, execution_id, seq, bool(is_within)) for ts, execution_id, seq, is_within in rows]

    async def scanned_page(self, after: int, bits: int, query: EventQuery, limit: int) -> list[ScannedRow]:
        from arclog.stores.searching import ScannedRow

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

    # -- logs of tasks ----------------------------------------------------------------------------------------------

    async def logs(
        self, execution_id: int, *, after: int = 0, limit: int = 1000, where: LogFilter = ANY_LINE
    ) -> list[tuple[int, LogLine]]:
        streams = self._texts(where.streams)
        narrowed = (where.step, where.task, _path(where.iteration), streams, text_bytes(where.text), where.since)
        return [_line(execution_id, row) for row in await self._list("logs", execution_id, after, limit, *narrowed)]


def attempt_columns(line: LogLine) -> tuple[int, str, int, str, int, int, str]:
    """Return the columns of the attempt that a line belongs to."""
    return (line.execution_id, line.step, line.run, line.task, line.task_run, line.attempt, _path(line.iteration))


def text_bytes(text: str) -> bytes:
    """Encode text as UTF-8 that may contain lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _path(iteration: tuple[int, ...] | None) -> str:
    """Return a path with every index followed by a dot, so that a prefix of a path is a prefix of its text."""
    return "".join(f"{index}." for index in iteration or ())


def _line(execution_id: int, row: Sequence[Any]) -> tuple[int, LogLine]:
    """Return a line and its position, from the columns that `logs` reads."""
    pos, at, step, run, task, task_run, attempt, path, stream, body = row
    line = LogLine(
        execution_id=execution_id,
        at=at,
        step=step,
        run=run,
        task=task,
        task_run=task_run,
        attempt=attempt,
        stream=stream,
        text=body.decode("utf-8", "surrogatepass"),
        iteration=tuple(map(int, path.split(".")[:-1])) if path else None,
    )
    return pos, line
