"""Executions in the SQLite store. A filtered list is merged from several index scans."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby, islice
from time import perf_counter

import msgspec

from arclog.model.ids import EPOCH_MS, MAX_ID, compose
from arclog.model.status import EXECUTION_STATES
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, Scope
from arclog.stores.records import execution_record
from arclog.stores.sql.executions import Catalog as SqlCatalog
from arclog.stores.sql.executions import Executions as SqlExecutions
from arclog.stores.sqlite.connection.connect import INCREMENTAL
from arclog.stores.sqlite.connection.readers import Execute, Readers
from arclog.stores.sqlite.connection.writer import Tx, Writer
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL

# ── executions ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Executions(SqlExecutions, SqlitePart):
    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        return await self._execution("execution", execution_id)

    async def _narrowed(self, which: ExecutionFilter, first: int, limit: int) -> list[ExecutionRecord]:
        page = (first, which.since, limit)
        rest = (which.project, which.environment, which.level)

        def work(execute: Execute) -> list[ExecutionRecord]:
            walks = [
                [number for (number,) in execute(SQL[name], (*keys, *page, *more, *rest))]
                for name, keys, more in _walks(execute, which)
            ]
            # A run that ends meanwhile may occur in both of its states.
            newest = islice((number for number, _ in groupby(merge(*walks, reverse=True))), limit)
            rows = [execute(SQL["execution"], (number,)).fetchone() for number in newest]
            return [execution_record(row) for row in rows if row is not None]

        return await self._lists.do(work)

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        def work(execute: Execute) -> list[tuple[str, str]]:
            """Go from pair to pair, with one look-up each."""
            pairs: list[tuple[str, str]] = []
            last = after
            while len(pairs) < limit:
                pair = execute(SQL["next_pending_path"], (*last, MAX_ID)).fetchone()
                if pair is None:
                    break
                pairs.append(pair)
                last = pair
            return pairs

        return await self._quickly(work)

    async def _put_next_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int]
    ) -> None:
        await self._run(
            [
                ("move_snapshot", (execution_id, seq, code)),
                ("drop_snapshots", (execution_id, code, self._ints(drop))),
                ("put_snapshot", (execution_id, seq, code, body)),
            ]
        )


def _walks(execute: Execute, which: ExecutionFilter) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Yield the statements to run, with the values for the index and the conditions on rows."""
    # In the order in which a run passes through the states, so that a run that changes its state meanwhile is not
    # missed.
    states = [state for state in EXECUTION_STATES if not which.states or state in which.states]
    for tenant in [which.tenant] if which.tenant else _steps(execute, "next_tenant"):
        starts: list[tuple[str, tuple[str, ...], tuple[str, ...]]]
        if which.path:
            starts = [("in_path", (tenant, which.path), (which.name,))]
        elif which.name:
            names = _steps(execute, "next_name", tenant)
            starts = [("with_name", (tenant, name), ()) for name in names if which.name in name]
        else:
            starts = [("in_state", (tenant,), ())]
        for statement, keys, more in starts:
            for state in states:
                yield statement, (*keys, state), more


def _steps(execute: Execute, statement: str, *keys: str) -> Iterator[str]:
    """Yield the distinct values in an index, with one look-up each."""
    last = ""
    while row := execute(SQL[statement], (*keys, last)).fetchone():
        (last,) = row
        yield last


# ── catalog ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Registers plans in the SQLite store, in one transaction.


class Catalog(SqlCatalog, SqlitePart):
    async def _register(self, plan: PlanRecord, scope: Scope) -> tuple[int, str, int]:
        tenant, place = scope.tenant, (scope.project, scope.environment)

        def work(tx: Tx) -> tuple[int, str, int]:
            existing = tx.execute(SQL["version_of"], (plan.digest, tenant, plan.path)).fetchone()
            if existing is None:
                tx.execute(SQL["add_plan"], (plan.digest, plan.body))
                row = (plan.path, plan.digest, plan.source, plan.created_at, tenant)
                ((version,),) = tx.execute(SQL["add_version"], row).fetchall()
                source, at, is_scoped = plan.source, plan.created_at, any(place)
            else:
                version, source, at, is_scoped = existing
            if is_scoped:
                name, more = ("add_scope", place) if any(place) else ("remove_scopes", ())
                tx.execute(SQL[name], (tenant, plan.path, version, *more))
            return version, source, at

        return await self._writer.do(work)


# ── retention ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Removes executions that ended long ago, and returns their space to the file system.
#
# Invariants: the writer and the event loop are blocked for a few milliseconds at a time, however much there is to
# remove. Runs are found on a reader. Each piece of the removal is a transaction of upkeep, whose size is adapted to the
# time that the last ones took. A large run is removed in several pieces: its record first, so that readers never find a
# partial run; `retiring` names it until the rest is gone, even if the process is killed in between.

#: the target duration of a piece
_PIECE_S = 0.003
#: number of runs that are found at a time
_PAGE = 500
#: statements for tables from which all rows of a run are removed; marks before the log, whose rows locate them
_FORGET = [SQL[name] for name in SQL if name.startswith("forget.") and name not in ("forget.mark", "forget.retiring")]
#: tables besides the log in which a large run may have many rows
_SHORTEN = [SQL[f"shorten.{table}"] for table in ("step_runs", "ingested", "task_logs", "results")]
#: pages that stay free for new data: a tenth of the others, but at least _SPARE_PAGES
_SPARE_PART, _SPARE_PAGES = 10, 64


class Candidate(msgspec.Struct, frozen=True):
    execution_id: int
    #: number of rows and pages
    weight: int


class Pace:
    """The size of a piece, adapted to the time that the last ones took."""

    def __init__(self, size: int) -> None:
        self.size = size

    def note(self, done: int, seconds: float) -> None:
        """Adjust the size towards a duration of `_PIECE_S`, by half at most, so that a single outlier has little
        effect.
        """
        fitting = done * _PIECE_S / max(seconds, 1e-6)
        self.size = max(8, round(min(max(fitting, self.size / 2), self.size * 1.5)))


class Sweep:
    """The removal of runs from one store, and its progress."""

    def __init__(self, writer: Writer, lists: Readers) -> None:
        self._writer = writer
        self._lists = lists
        self._rows = Pace(200)
        self._pages = Pace(50)
        self._page_size = 4096
        self._candidates: deque[Candidate] = deque()
        #: the `before` of the last search, and the id up to which it searched
        self._before, self._after = -1, 0

    async def retire(self, before: int) -> int:
        """Remove one piece, or as many as it takes until a run is gone. Return the number of removed runs, 0 if there
        are none.
        """
        try:
            return await self._retire(before)
        except BaseException:
            self._begin_anew()  # failed work is found again
            raise

    def _begin_anew(self) -> None:
        self._before = -1
        self._candidates.clear()

    async def _retire(self, before: int) -> int:
        while True:
            if not self._candidates:
                await self._find(before)
            if not self._candidates:
                self._begin_anew()
                return 0
            first = self._candidates.popleft()
            if first.weight > 2 * self._rows.size:
                if await self._retire_large(first):
                    return 1
                continue
            some, weight = [first.execution_id], first.weight
            while self._candidates and weight + self._candidates[0].weight <= self._rows.size:
                candidate = self._candidates.popleft()
                some.append(candidate.execution_id)
                weight += candidate.weight
            if count := await self._retire_small(some, weight):
                return count

    async def count(self, before: int) -> int:
        """The number of runs that would be removed."""
        count: int = await self._lists.do(
            lambda execute: execute(SQL["count_retirable"], (_newest(before), before)).get
        )
        return count

    async def _find(self, before: int) -> None:
        if before != self._before:
            self._before, self._after = before, 0
            self._candidates += await self._lists.do(_retiring)
            if self._candidates:
                self._before = -1
                return
        values = (self._after, _newest(before), before, _PAGE)
        self._candidates += await self._lists.do(
            lambda execute: [Candidate(*row) for row in execute(SQL["retirable"], values).fetchall()]
        )
        self._after = self._candidates[-1].execution_id if self._candidates else MAX_ID

    async def _retire_small(self, some: Sequence[int], weight: int) -> int:
        """Remove these runs completely. Return how many were removed."""

        def piece(tx: Tx) -> tuple[int, float]:
            began = perf_counter()
            ids = _begin(tx, some)
            _forget(tx, ids)
            return len(ids), perf_counter() - began

        count, seconds = await self._writer.keep_up(piece)
        self._rows.note(weight, seconds)
        return count

    async def _retire_large(self, run: Candidate) -> bool:
        """Remove one run in pieces. Return whether it is gone."""
        execution_id = run.execution_id
        if not await self._writer.keep_up(lambda tx: _begin(tx, [execution_id])):
            return False
        rows = await self._lists.do(lambda execute: execute(SQL["shorten.count"], (execution_id,)).get)
        while True:

            def piece(tx: Tx, size: int = self._rows.size) -> tuple[int, float]:
                began = perf_counter()
                # Counted in rows of the log; a run with large rows has fewer.
                done = _shorten(tx, execution_id, max(1, size * rows // max(run.weight, 1)), size)
                return done, perf_counter() - began

            done, seconds = await self._writer.keep_up(piece)
            if not done:
                return True
            self._rows.note(done * max(run.weight, 1) // max(rows, 1), seconds)

    # -- space --------------------------------------------------------------------------------------------------------

    async def reclaim(self) -> int:
        """Shorten the file by a piece. Return the number of bytes freed, 0 if no more can be freed."""

        def piece(tx: Tx) -> tuple[int, int, float]:
            began = perf_counter()
            spare = _spare(tx.execute)
            pages = min(spare, self._pages.size)
            if pages > 0:
                tx.execute(f"PRAGMA incremental_vacuum({pages})").fetchall()
            return max(pages, 0), spare - pages, perf_counter() - began

        if (await self._lists.do(_spare)) <= 0:
            return 0
        pages, left, seconds = await self._writer.keep_up(piece)
        self._pages.note(pages, seconds)
        if left <= 0:
            await self._writer.checkpoint()  # only a checkpoint shortens the file itself
        return pages * self._page_size


def _spare(execute: Execute) -> int:
    """Return the number of free pages beyond the reserve; 0 if the file cannot be shortened."""
    if execute("PRAGMA auto_vacuum").get != INCREMENTAL:
        return 0
    free, all_pages = execute("PRAGMA freelist_count").get, execute("PRAGMA page_count").get
    return int(free - max((all_pages - free) // _SPARE_PART, _SPARE_PAGES))


def _newest(before: int) -> int:
    """Return the first id of a time (microseconds). An execution with a later id cannot have ended earlier."""
    return compose(max(before // 1000 + 1, EPOCH_MS), 0, 0)


def _retiring(execute: Execute) -> list[Candidate]:
    """Return runs whose removal was begun but not finished."""
    return [Candidate(*row) for row in execute(SQL["retiring"], (_PAGE,)).fetchall()]


def _begin(tx: Tx, some: Sequence[int]) -> list[int]:
    """Remove the records of runs that may be removed. Return these, and those whose removal was begun before."""
    values = _json(some)
    tx.execute(SQL["retire"], (values,)).fetchall()
    ids = [execution_id for (execution_id,) in tx.execute(SQL["begun"], (values,)).fetchall()]
    tx.execute(SQL["forget.executions"], (_json(ids),))
    return ids


def _forget(tx: Tx, ids: Sequence[int]) -> None:
    values = _json(ids)
    tx.execute(SQL["forget.mark"], (values, tx.execute(SQL["marked_types"]).get))
    for statement in _FORGET:
        tx.execute(statement, (values,))
    tx.execute(SQL["forget.retiring"], (values,))


def _shorten(tx: Tx, execution_id: int, rows: int, others: int) -> int:
    """Remove a piece of a large run's log, then of its other rows. Return 0 if nothing is left."""
    last = tx.execute(SQL["shorten.bound"], (execution_id, rows)).get
    if last is not None:
        tx.execute(SQL["shorten.mark"], (execution_id, last, tx.execute(SQL["marked_types"]).get))
        tx.execute(SQL["shorten.log"], (execution_id, last))
        return tx.changes()
    for statement in _SHORTEN:
        tx.execute(statement, (execution_id, others))
        if tx.changes() == others:
            return others
    _forget(tx, [execution_id])
    return 0


def _json(ids: Sequence[int]) -> str:
    return msgspec.json.encode(ids).decode()


class Retention(SqlitePart):
    _sweep: Sweep

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        return await (self._sweep.count(before) if dry_run else self._sweep.retire(before))

    async def reclaim(self) -> int:
        return await self._sweep.reclaim()
