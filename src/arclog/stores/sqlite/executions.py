"""Executions in the SQLite store. A list that something narrows is merged from walks along indexes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby, islice

from arclog.model.ids import MAX_ID
from arclog.model.status import EXECUTION_STATES
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord
from arclog.stores.records import execution_record
from arclog.stores.sql.executions import Executions as SqlExecutions
from arclog.stores.sqlite.connection.readers import Execute
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL


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
            # A run that ends meanwhile is met in both of its states.
            newest = islice((number for number, _ in groupby(merge(*walks, reverse=True))), limit)
            rows = [execute(SQL["execution"], (number,)).fetchone() for number in newest]
            return [execution_record(row) for row in rows if row is not None]

        return await self._lists.do(work)

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        def work(execute: Execute) -> list[tuple[str, str]]:
            """Steps from pair to pair, one look-up each."""
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
    """Statement, what the index is narrowed to, what is looked at in the rows."""
    # In the order in which a run takes them: one that changes its state meanwhile is not missed.
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
    """The values that an index has, one look-up each."""
    last = ""
    while row := execute(SQL[statement], (*keys, last)).fetchone():
        (last,) = row
        yield last
