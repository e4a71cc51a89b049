"""What became of appends: why one was refused, and whether a group was committed whose connection was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from arclog.model.errors import Conflict, StoreUnavailable
from arclog.ports.store import Append, Appended, EventIdTaken, NoSlot, OutcomeUnknown
from arclog.stores.postgres.errors import told
from arclog.stores.postgres.link import Lost
from arclog.stores.postgres.pool import Patience, Pool
from arclog.stores.postgres.values import ints
from arclog.stores.records import refusal_of
from arclog.stores.rows import Derived


class Item:
    """An append that waits for its answer."""

    __slots__ = ("bytes", "derived", "future", "what")

    def __init__(self, what: Append, derived: Derived, future: asyncio.Future[Appended]) -> None:
        self.what = what
        self.derived = derived
        self.future = future
        self.bytes = sum(len(row.body) for row in derived.rows)

    def settle(self, outcome: Appended | BaseException) -> None:
        if self.future.done():
            return  # its caller was cancelled
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


async def refusal(pool: Pool, queries: dict[str, str], what: Append, *, terminal: bool) -> Conflict:
    """Why the compare-and-set found nothing. The rows may have changed since; then it is just a conflict."""
    own = what.execution_id
    if what.hold:
        asked = ints(command_id for command_id, _ in what.hold)
        fences: dict[int, int] = dict(await pool.read(queries["fences"], own, asked))
        for command_id, fence in what.hold:
            if fences.get(command_id) != fence:
                return Conflict(f"command {command_id} no longer has fence {fence}: reload and decide again")
    if what.slots:
        holders = [holder for (holder,) in await pool.read(queries["slot_holders"], own)]
        if len(holders) >= what.slots:
            return NoSlot(holders)
    if what.digests:
        known = await pool.read(queries["ingested"], own, ints(what.digests))
        if known:
            return EventIdTaken(f"execution {own} has an event {known[0][0]} already")
    found = await pool.read(queries["head"], own)
    return refusal_of(what, found[0] if found else None, terminal=terminal)


async def find_out(pool: Pool, queries: dict[str, str], lost: Lost, group: Sequence[Item]) -> list[Item]:
    """After a lost connection: answers those that were committed, and gives back those that were not."""
    try:
        await _end(pool, queries, lost)
        found = [await _committed_at(pool, queries, item) for item in group]
    except StoreUnavailable as away:
        raise OutcomeUnknown(
            f"the connection to PostgreSQL was lost in the middle of a commit ({told(lost)}), which may or may not have "
            f"taken place: {away}"
        ) from lost
    left: list[Item] = []
    for item, at in zip(group, found, strict=True):
        if at is not None:
            item.settle(Appended(item.what.expected + 1, item.derived.last_seq, at))
        else:
            left.append(item)
    return left


async def _end(pool: Pool, queries: dict[str, str], lost: Lost) -> None:
    """Make sure that the server process of the lost connection does nothing more: it may still be about to commit."""
    patience = Patience(pool.patience_s)
    while await pool.read(queries["end_session"], lost.link):
        if not await patience.more():
            raise StoreUnavailable("its server process cannot be ended; look at pg_stat_activity")


async def _committed_at(pool: Pool, queries: dict[str, str], item: Item) -> int | None:
    """When an append was committed; None when it was not, or when carrying it out again changes nothing."""
    what, rows = item.what, item.derived.rows
    if rows:
        found = await pool.read(queries["appended_at"], what.execution_id, rows[0].seq0, rows[0].base)
    elif what.issue:
        ids = ints(command.command_id for command in what.issue)
        found = await pool.read(queries["issued_at"], what.execution_id, ids)
    else:
        return None
    return found[0][0] if found else None
