"""What became of appends: why one was refused, and whether a group was committed whose connection was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from arclog.drivers.backoff import Patience
from arclog.drivers.postgres.refusals import is_away, is_conflict, text_of
from arclog.model.errors import ArclogError, Conflict, StoreUnavailable
from arclog.ports.storage.store import Append, Appended, EventIdTaken, NoSlot, OutcomeUnknown
from arclog.stores.postgres.connection.errors import translated
from arclog.stores.postgres.connection.pipeline import Call, Link, Lost
from arclog.stores.postgres.connection.pool import Pool
from arclog.stores.postgres.connection.values import ints
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

    def appended(self, at: int) -> Appended:
        """The proof, once it is durable."""
        return Appended(self.what.expected + 1, self.derived.last_seq, at, self.derived.decoded_bytes)

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
        if what.new is None:
            found = await pool.read(queries["slot_holders"], own, what.slots)
        else:
            new = what.new
            found = await pool.read(queries["slot_holders_of"], new.scope.tenant, new.path, own, what.slots)
        holders = [holder for (holder,) in found]
        if len(holders) >= what.slots:
            return NoSlot(holders)
    if what.digests:
        known = await pool.read(queries["ingested"], own, ints(what.digests))
        if known:
            return EventIdTaken(f"execution {own} has an event {known[0][0]} already")
    found = await pool.read(queries["head"], own)
    return refusal_of(what, found[0] if found else None, terminal=terminal)


async def find_out(
    lane: Callable[[], Awaitable[Link]], pool: Pool, queries: dict[str, str], lost: Lost, items: Sequence[Item]
) -> list[Item]:
    """After a lost connection: answers those that were committed, and gives back those that were not.

    `lane` gives a connection, a new one where that is to be had: those that stood when one was lost may carry nothing any
    more. The server process of the lost one may still be about to commit, so it is ended; once it is gone, what the log
    says is final. Both are asked at once, so that an attempt has the time of one request.
    """
    asked = [(item, call) for item in items if (call := _look_up(queries, item)) is not None]
    look = [call for _, call in asked]
    patience = Patience(pool.patience_s)
    while True:
        try:
            link = await lane()
            # Two transactions, one after the other: what the second sees is of after the first, however they are isolated.
            end = link.request([(queries["end_session"], (lost.link,))])
            [still_there], found = await asyncio.gather(end, link.request(look))
            if not still_there:
                break
            problem: ArclogError = StoreUnavailable("its server process cannot be ended; look at pg_stat_activity")
            passing = True
        except Exception as error:  # noqa: BLE001 - it is raised below
            problem = translated(error, pool.place)
            passing = is_away(error) or is_conflict(error)
        if not passing or not await patience.more():
            raise OutcomeUnknown(
                f"the connection to PostgreSQL was lost in the middle of a commit ({text_of(lost)}), which may or may not have "
                f"taken place: {problem}"
            ) from lost
    committed = {id(item): rows[0][0] for (item, _), rows in zip(asked, found, strict=True) if rows}
    left: list[Item] = []
    for item in items:
        if id(item) in committed:
            item.settle(item.appended(committed[id(item)]))
        else:
            left.append(item)
    return left


def _look_up(queries: dict[str, str], item: Item) -> Call | None:
    """Asks when an append was committed; None when carrying it out again changes nothing."""
    what, rows = item.what, item.derived.rows
    if rows:
        return queries["appended_at"], (what.execution_id, rows[0].seq0, rows[0].base)
    if what.issue:
        return queries["issued_at"], (what.execution_id, ints(command.command_id for command in what.issue))
    return None
