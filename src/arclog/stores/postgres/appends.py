"""The writer of appends: group commit, refusals, and recovery after a lost connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import psycopg

from arclog.drivers.backoff import Patience
from arclog.drivers.postgres.refusals import is_away, is_conflict, text_of
from arclog.model.errors import ArclogError, Conflict, StoreUnavailable
from arclog.ports.clock import Clock
from arclog.ports.storage.store import Append, Appended, EventIdTaken, NoSlot, OutcomeUnknown
from arclog.stores.postgres.append_statement import MOST_ROWS, Wave
from arclog.stores.postgres.connection.pipeline import Call, Lost, Pipeline, Rows, ints, translated
from arclog.stores.postgres.connection.pool import Pool, closed
from arclog.stores.records import refusal_of
from arclog.stores.rows import Derived

# ── outcomes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Item:
    """An append that waits for its result."""

    __slots__ = ("append", "bytes", "derived", "future")

    def __init__(self, append: Append, derived: Derived, future: asyncio.Future[Appended]) -> None:
        self.append = append
        self.derived = derived
        self.future = future
        self.bytes = sum(len(row.body) for row in derived.rows)

    def appended(self, at: int) -> Appended:
        """Return the result of a durable append."""
        return Appended(self.append.expected + 1, self.derived.last_seq, at, self.derived.decoded_bytes)

    def settle(self, outcome: Appended | BaseException) -> None:
        if self.future.done():
            return  # the caller was cancelled
        if isinstance(outcome, BaseException):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


async def refusal(pool: Pool, queries: dict[str, str], append: Append, *, terminal: bool) -> Conflict:
    """Return why the compare-and-set matched no row. If the rows have changed since then, it is a conflict."""
    own = append.execution_id
    if append.hold:
        asked = ints(command_id for command_id, _ in append.hold)
        fences: dict[int, int] = dict(await pool.read(queries["fences"], own, asked))
        for command_id, fence in append.hold:
            if fences.get(command_id) != fence:
                return Conflict(f"command {command_id} no longer has fence {fence}: reload and decide again")
    if append.slots:
        if append.new is None:
            rows = await pool.read(queries["slot_holders"], own, append.slots)
        else:
            new = append.new
            rows = await pool.read(queries["slot_holders_of"], new.scope.tenant, new.path, own, append.slots)
        holders = [holder for (holder,) in rows]
        if len(holders) >= append.slots:
            return NoSlot(holders)
    if append.digests:
        known = await pool.read(queries["ingested"], own, ints(append.digests))
        if known:
            return EventIdTaken(f"execution {own} has an event {known[0][0]} already")
    rows = await pool.read(queries["head"], own)
    return refusal_of(append, rows[0] if rows else None, terminal=terminal)


async def find_out(
    lane: Callable[[], Awaitable[Pipeline]], pool: Pool, queries: dict[str, str], lost: Lost, items: Sequence[Item]
) -> list[Item]:
    """Find out which appends were committed after a lost connection. Resolves those, and returns the others.

    `lane` returns a connection, preferably a new one, since others that were open at the time may be dead, too. The
    server process of the lost connection may still commit, so it is terminated; once it is gone, the content of the log
    is final. Both requests are sent at once, so that an attempt takes one round trip.
    """
    asked = [(item, call) for item in items if (call := _look_up(queries, item)) is not None]
    look = [call for _, call in asked]
    patience = Patience(pool.patience_s)
    while True:
        try:
            pipeline = await lane()
            # Two transactions, so that the second reads the state after the first at any isolation level.
            end = pipeline.request([(queries["end_session"], (lost.pipeline,))])
            [still_there], answers = await asyncio.gather(end, pipeline.request(look))
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
    committed = {id(item): rows[0][0] for (item, _), rows in zip(asked, answers, strict=True) if rows}
    left: list[Item] = []
    for item in items:
        if id(item) in committed:
            item.settle(item.appended(committed[id(item)]))
        else:
            left.append(item)
    return left


def _look_up(queries: dict[str, str], item: Item) -> Call | None:
    """Return the query that shows whether an append was committed; None if repeating the append changes nothing."""
    append, rows = item.append, item.derived.rows
    if rows:
        return queries["appended_at"], (append.execution_id, rows[0].seq0, rows[0].base)
    if append.issue:
        return queries["issued_at"], (append.execution_id, ints(command.command_id for command in append.issue))
    return None


# ── group ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# A group: appends that are sent as one request, with the result of each.


class Group:
    def __init__(self, items: list[Item], at: int, queries: dict[str, str]) -> None:
        self.items = items
        self._at = at
        waves: list[Wave] = []
        self._places: list[list[Item]] = []
        rows = 0
        depth: dict[int, int] = {}
        for item in items:
            own = item.append.execution_id
            index = depth.get(own, 0)
            while index < len(waves) and not waves[index].takes(item.append):
                index += 1
            if index == len(waves):
                waves.append(Wave())
                self._places.append([])
            depth[own] = index + 1
            waves[index].add(item.append, item.derived, at, rows)
            self._places[index].append(item)
            rows += len(item.derived.rows)
        self.calls: list[Call] = []
        #: the indexes of the calls that return the executions whose appends succeeded
        self._verdicts: list[int] = []
        for wave in waves:
            self.calls += wave.calls(queries, at)
            self._verdicts.append(len(self.calls) - 1)

    def settle(self, answers: list[Rows]) -> list[Item]:
        """Resolve the appends that were committed, and return those that were refused."""
        refused: list[Item] = []
        for index, items in zip(self._verdicts, self._places, strict=True):
            won = {execution_id for execution_id, _ in answers[index]}
            for item in items:
                if item.append.execution_id in won:
                    item.settle(item.appended(self._at))
                else:
                    refused.append(item)
        return refused


# ── writer ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Group commit: all waiting appends become one transaction on the next free connection, in one round trip.
#
# - Appends of one execution run in the order of the calls: while one is in progress, the others wait.
# - A refused append writes nothing and does not affect the others (see `append_statement`). If the server refuses a
#   whole group (because a row violates a constraint), its appends are committed one by one.
# - If a connection is lost while a group is in progress, it is unknown whether the group was committed. Its server
#   process is terminated, then the log is read: appends in the log are confirmed, the others are sent again.

#: maximum number of appends in one transaction
_MOST = 500
#: maximum size of a group's log rows in bytes
_MOST_BYTES = 8 << 20


class Writer:
    def __init__(
        self,
        place: str,
        queries: dict[str, str],
        open_pipeline: Callable[[], Awaitable[Pipeline]],
        pool: Pool,
        clock: Clock,
        lanes: int,
    ) -> None:
        self._place = place
        self._queries = queries
        self._open_pipeline = open_pipeline
        self._pool = pool
        self._clock = clock
        self._lanes: list[Pipeline | None] = [None] * lanes
        self._free = list(range(lanes))
        self._pending: list[Item] = []
        #: executions with an append in progress
        self._under_way: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flush_is_due = False
        self._is_open = False
        #: set while nothing is in progress
        self._idle = asyncio.Event()
        self._idle.set()

    def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        """Close after the pending appends are done."""
        self._is_open = False
        self._flush()
        await self._idle.wait()
        self._close_lanes()

    async def abandon(self) -> None:
        """Close at once; pending appends fail."""
        self._is_open = False
        pending, self._pending = self._pending, []
        for item in pending:
            item.settle(closed(self._place))
        self._close_lanes()
        await asyncio.sleep(0)  # requests in progress fail, and are recovered from here
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close_lanes(self) -> None:
        for number, pipeline in enumerate(self._lanes):
            if pipeline is not None:
                pipeline.close()
            self._lanes[number] = None

    def append(self, append: Append, derived: Derived) -> asyncio.Future[Appended]:
        if not self._is_open:
            raise closed(self._place)
        loop = asyncio.get_running_loop()
        item = Item(append, derived, loop.create_future())
        self._pending.append(item)
        if not self._flush_is_due and self._free:
            self._flush_is_due = True
            loop.call_soon(self._flush)
        return item.future

    def _flush(self) -> None:
        self._flush_is_due = False
        while self._free and self._pending:
            items = self._take()
            if not items:
                return
            self._start(self._free.pop(), items)

    def _start(self, number: int, items: list[Item]) -> None:
        """Send a group on the fast path, which wakes only the callers of its appends. Any error leads to `_recover`."""
        pipeline = self._lanes[number]
        if pipeline is None or pipeline.lost is not None:
            self._recover(number, items)
            return
        try:
            group = Group(items, self._clock.now(), self._queries)
            pipeline.send(group.calls, partial(self._answered, number, group))
        except Exception as error:  # noqa: BLE001 - it is raised where the append is awaited
            self._recover(number, items, error)

    def _answered(self, number: int, group: Group, outcome: list[Rows] | psycopg.Error) -> None:
        if isinstance(outcome, psycopg.Error):
            self._recover(number, group.items, outcome)
        elif refused := group.settle(outcome):
            self._recover(number, group.items, refused=refused)
        else:
            self._release(number, group.items)

    def _release(self, number: int, items: list[Item]) -> None:
        """Mark the connection as free, and send waiting appends."""
        self._free.append(number)
        self._under_way.difference_update([item.append.execution_id for item in items])
        if self._pending:
            self._flush()
        if not self._under_way:
            self._idle.set()

    def _take(self) -> list[Item]:
        """Take the appends that can be sent now. An append waits if its execution has an earlier one in progress or
        waiting.
        """
        group: list[Item] = []
        left: list[Item] = []
        rows = size = 0
        held = set(self._under_way)
        for item in self._pending:
            own = item.append.execution_id
            full = len(group) >= _MOST or (group and (size + item.bytes > _MOST_BYTES or rows >= MOST_ROWS // 2))
            if full or own in held:
                held.add(own)
                left.append(item)
                continue
            group.append(item)
            size += item.bytes
            rows += len(item.derived.rows)
        self._pending = left
        self._under_way.update([item.append.execution_id for item in group])
        self._idle.clear()
        return group

    def _recover(
        self, number: int, items: list[Item], error: Exception | None = None, refused: Sequence[Item] = ()
    ) -> None:
        task = asyncio.ensure_future(self._run_recovery(number, items, error, refused))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_recovery(
        self, number: int, items: list[Item], error: Exception | None, refused: Sequence[Item]
    ) -> None:
        """Recover from an error of the fast path, until every append has its result."""
        try:
            if refused:
                await self._refuse(refused)
            else:
                await self._commit(number, items, error)
        except BaseException as problem:
            known = translated(problem, self._place)
            if isinstance(problem, asyncio.CancelledError):
                known = OutcomeUnknown(
                    f"{self._place} was closed in the meantime; the events may or may not have been stored"
                )
            for item in items:
                item.settle(type(known)(*known.args))  # each caller gets its own exception object
            if not isinstance(problem, Exception):
                raise
        finally:
            self._release(number, items)

    async def _commit(self, number: int, items: list[Item], failed: Exception | None = None) -> None:
        """Retry until every append has its result."""
        patience: Patience | None = None
        while items:
            try:
                if failed is not None:
                    problem, failed = failed, None
                    raise problem
                pipeline = await self._pipeline(number)
                group = Group(items, self._clock.now(), self._queries)
                await self._refuse(group.settle(await pipeline.request(group.calls)))
                return
            except Lost as error:
                # The time for finding out what was committed counts as well, so that every append ends.
                patience = patience or Patience(self._pool.patience_s)
                items = await find_out(partial(self._pipeline, number), self._pool, self._queries, error, items)
                if items and not await patience.more():
                    raise
            except Exception as error:
                if is_conflict(error):
                    pass
                elif not is_away(error):
                    await self._commit_singly(number, items, error)
                    return
                patience = patience or Patience(self._pool.patience_s)
                if not await patience.more():
                    raise

    async def _commit_singly(self, number: int, items: list[Item], error: Exception) -> None:
        """Commit the appends of a refused group one by one, so that only the invalid ones are refused."""
        if len(items) == 1:
            raise error
        for item in items:
            try:
                await self._commit(number, [item])
            except Exception as problem:
                if is_away(problem) or isinstance(problem, OutcomeUnknown):
                    raise  # the others would fail in the same way, each after the full time
                item.settle(translated(problem, self._place))

    async def _pipeline(self, number: int) -> Pipeline:
        pipeline = self._lanes[number]
        if pipeline is not None and pipeline.lost is None:
            return pipeline
        try:
            pipeline = self._lanes[number] = await self._open_pipeline()
        except Exception:
            others = [lane for lane in self._lanes if lane is not None and lane.lost is None]
            if (other := others[0] if others else self._pool.best()) is None:
                raise
            return other  # no further connection is available; use this one
        return pipeline

    async def _refuse(self, items: Sequence[Item]) -> None:
        for item, reason in zip(items, await asyncio.gather(*map(self._refusal, items)), strict=True):
            item.settle(reason)

    async def _refusal(self, item: Item) -> ArclogError:
        try:
            return await refusal(self._pool, self._queries, item.append, terminal=item.derived.terminal)
        except StoreUnavailable as error:
            return error
        except Exception as error:  # noqa: BLE001 - it is raised where the append is awaited
            return translated(error, self._place)
