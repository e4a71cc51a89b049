"""What a search reads: pages of marks and of rows; see `stores.searching`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arclog.ports.storage.event_search import EventQuery, StoredEvent
from arclog.stores.rows import Codec
from arclog.stores.searching import Key, MarkRow, ScannedRow
from arclog.stores.sqlite.queries import SQL

Execute = Callable[..., Any]


def mark_page(execute: Execute, bit: int, after: Key, query: EventQuery, limit: int) -> list[MarkRow]:
    where = (query.tenant, query.project, query.environment)
    rows = execute(SQL["mark_page"], (bit, *after, *where, query.until, limit))
    return [MarkRow(ts, execution_id, seq, bool(is_within)) for ts, execution_id, seq, is_within in rows]


def scanned_page(
    execute: Execute, codec: Codec, after: int, bits: int, query: EventQuery, limit: int
) -> list[ScannedRow]:
    where = (query.tenant, query.project, query.environment)
    rows = execute(SQL["scanned_page"], (after, bits, *where, limit)).fetchall()
    return [
        ScannedRow(pos, ts, () if body is None else codec.stored(owner, seq0, base, ts, body))
        for pos, ts, owner, seq0, base, body in rows
    ]


def position_before(execute: Execute, ts: int) -> int:
    """By halving: positions are given in the order of time."""
    low, high = map(int, execute(SQL["position_bounds"]).fetchone())
    newest = execute(SQL["first_from"], (high,)).fetchone()
    if newest is None or newest[1] < ts:
        return high  # nothing was persisted since
    while low < high:
        middle = (low + high) // 2
        position, at = execute(SQL["first_from"], (middle,)).fetchone()
        if at >= ts:
            high = middle
        else:
            low = position + 1
    return high - 1


def events_at(execute: Execute, codec: Codec, keys: Sequence[Key]) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    for key in keys:
        row = execute(SQL["row_at"], (key.execution_id, key.seq)).fetchone()
        if row is not None:  # else it was removed meanwhile
            found.append(codec.stored(key.execution_id, *row)[key.seq - row[0]])
    return found
