"""The search of `ports.storage.store`, shared by all stores: it pages through the marks of types that have them, and
through the rows of the log for all others. A store provides both kinds of pages (`SearchPages`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from arclog.model.data.lazy import pattern
from arclog.model.errors import RequestRejected
from arclog.model.events import MARKED, MARKED_WITH, REGISTRY
from arclog.model.ids import MAX_ID
from arclog.ports.storage.store import EventMatches, EventQuery, StoredEvent
from arclog.stores.rows import bits_of

_ALL_TYPES = -1
_CURSOR = pattern(r"(?P<kind>[mr])(?P<numbers>\d{1,19}(?:-\d{1,19}){1,2})")
_MARKS, _ROWS = "m", "r"
#: Number of rows that are read first; a page is often full after a few.
_FIRST_ROWS = 8
#: The next number of rows is an estimate of how many fill the page, but at most this many times the previous number.
_GROWTH = 8


class Key(NamedTuple):
    """The position of a marked event among all of them."""

    ts: int
    execution_id: int
    seq: int


class MarkRow(NamedTuple):
    """A mark, and whether its execution is part of the search."""

    ts: int
    execution_id: int
    seq: int
    is_within: bool


class ScannedRow(NamedTuple):
    """A row of the log, with its events only if some of them may match."""

    position: int
    ts: int
    events: Sequence[StoredEvent] = ()


class SearchPages(Protocol):
    """The pages that a store provides for searches."""

    async def mark_page(self, bit: int, after: Key, query: EventQuery, limit: int) -> list[MarkRow]:
        """Return the marks of a type after a key and before the query's end, in order of their keys."""

    async def scanned_page(self, after: int, bits: int, query: EventQuery, limit: int) -> list[ScannedRow]:
        """Return the rows of the log after a position. A row has its events if it contains a type of the bit set and
        its execution is part of the search.
        """

    async def position_before(self, ts: int) -> int:
        """Return a position such that everything persisted from that time on comes after it."""

    async def events_at(self, keys: Sequence[Key]) -> list[StoredEvent]:
        """Return the events of these marks, in their order."""


async def search(pages: SearchPages, query: EventQuery, cursor: str, limit: int, most: int) -> EventMatches:
    """Return one page. At most `most` marks of each type, or `most` rows of the log, are examined."""
    kind, numbers = _parsed(cursor)
    if _is_marked(query):
        _check(kind, _MARKS, len(numbers) == 3)
        after = Key(*numbers) if numbers else Key(query.since, 0, 0)
        return await _by_marks(pages, query, after, limit, most)
    _check(kind, _ROWS, len(numbers) == 2)
    if not numbers:
        numbers = (await pages.position_before(query.since) if query.since else 0, MAX_ID)
    position, seq = numbers
    return await _by_rows(pages, query, (position, seq), limit, most)


def _is_marked(query: EventQuery) -> bool:
    """Return whether the marks alone locate all matching events."""
    return (
        bool(query.types)
        and not query.informative
        and all(name in MARKED and name not in MARKED_WITH for name in query.types)
    )


async def _by_marks(pages: SearchPages, query: EventQuery, after: Key, limit: int, most: int) -> EventMatches:
    mark_pages = [await pages.mark_page(REGISTRY[name].bit, after, query, most) for name in dict.fromkeys(query.types)]
    # After the last mark of a full page of one type, marks of other types are not in order yet.
    horizon = min((Key(*page[-1][:3]) for page in mark_pages if len(page) == most), default=None)
    marks = sorted(mark for page in mark_pages for mark in page if horizon is None or Key(*mark[:3]) <= horizon)
    keys: list[Key] = []
    for index, mark in enumerate(marks):
        if len(keys) == limit:
            return EventMatches(await pages.events_at(keys), _text(_MARKS, *after), more=index < len(marks))
        after = Key(*mark[:3])
        if mark.is_within:
            keys.append(after)
    return EventMatches(await pages.events_at(keys), _text(_MARKS, *after), more=horizon is not None)


async def _by_rows(
    pages: SearchPages, query: EventQuery, after: tuple[int, int], limit: int, most: int
) -> EventMatches:
    position, seq = after
    wanted = frozenset(query.types)
    bits = bits_of(query.types) if query.types else _ALL_TYPES
    events: list[StoredEvent] = []
    # A cursor inside a row continues there.
    at = position if seq == MAX_ID else position - 1
    looked, size = 0, _FIRST_ROWS
    while looked < most:
        size = min(size, most - looked)
        rows = await pages.scanned_page(at, bits, query, size)
        for row in rows:
            if row.ts >= query.until:
                return EventMatches(events, _text(_ROWS, position, seq), more=False)
            for event in row.events if row.ts >= query.since else ():
                if row.position == position and event.seq <= seq:
                    continue
                if (wanted and event.event.type not in wanted) or (event.event.informative and not query.informative):
                    continue
                if len(events) == limit:
                    return EventMatches(events, _text(_ROWS, position, seq), more=True)
                events.append(event)
                if len(events) == limit:
                    position, seq = row.position, event.seq
            if len(events) < limit:
                position, seq = row.position, MAX_ID
        if len(rows) < size:
            return EventMatches(events, _text(_ROWS, position, seq), more=False)
        looked, at = looked + size, rows[-1].position
        expected = looked * (limit - len(events)) // len(events) + 1 if events else size * _GROWTH
        size = max(_FIRST_ROWS, min(expected, size * _GROWTH))
    return EventMatches(events, _text(_ROWS, position, seq), more=True)


def _parsed(cursor: str) -> tuple[str, tuple[int, ...]]:
    if not cursor:
        return "", ()
    parts = _CURSOR.fullmatch(cursor)
    numbers = () if parts is None else tuple(int(number) for number in parts["numbers"].split("-"))
    if parts is None or max(numbers) > MAX_ID:
        raise RequestRejected(f"cursor {cursor[:60]!r} was not returned by a search")
    return parts["kind"], numbers


def _check(kind: str, expected: str, fits: bool) -> None:
    if kind and (kind != expected or not fits):
        raise RequestRejected("the cursor belongs to a search for other types; start without a cursor")


def _text(kind: str, *numbers: int) -> str:
    return kind + "-".join(map(str, numbers))
