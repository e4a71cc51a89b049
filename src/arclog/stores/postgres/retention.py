"""Forgetting what ended long ago: a span of executions at a time, whose tables of the log are dropped as a whole."""

from __future__ import annotations

from typing import Any

from arclog.model.ids import EPOCH_MS, compose
from arclog.stores.postgres.connect import Address, connect
from arclog.stores.postgres.errors import translated
from arclog.stores.postgres.part import Part
from arclog.stores.postgres.spans import PARTED, lock_spans

#: tables that are not parted, and lose the span's rows
_OTHERS = ("mark", "step_runs", "ingested", "snapshots", "task_log_sizes", "outbox", "executions")
#: dropping waits for reads that are under way, and others wait behind it: not for long
_LOCK_TIMEOUT_MS = 2_000


class Retention(Part):
    _address: Address

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        newest = compose(max(before // 1000, EPOCH_MS), 0, 0)
        if dry_run:
            rows = await self._pool.read(self._sql["retirable"], newest, before)
            return sum(count for _, _, count in rows)
        address = self._address
        try:
            connection = await connect(address)
            try:
                async with connection.transaction():
                    count = await self._drop(connection, newest, before)
            finally:
                await connection.close()
        except Exception as error:
            raise translated(error, address.place) from error
        await self._spans.reload()
        return count

    async def _drop(self, connection: Any, newest: int, before: int) -> int:
        """Spans without executions go along with the first that has some."""
        schema = self._address.schema
        await connection.execute(f"SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}")
        await lock_spans(connection, schema)
        cursor = connection.cursor()
        query = self._sql["retirable"].replace("$1", "%(newest)s").replace("$2", "%(before)s")
        await cursor.execute(query, {"newest": newest, "before": before})
        for lower, upper, count in await cursor.fetchall():
            for table in PARTED:
                await connection.execute(f'DROP TABLE "{schema}"."{table}_{lower}"')
            span = (lower, upper)
            for table in _OTHERS:
                await connection.execute(
                    f'DELETE FROM "{schema}".{table} WHERE execution_id >= %s AND execution_id < %s',  # noqa: S608 - names of our own
                    span,
                )
            await connection.execute(
                f'DELETE FROM "{schema}".results '  # noqa: S608 - names of our own
                "WHERE execution_id >= %s AND execution_id < %s AND removed_at IS NOT NULL",
                span,
            )
            await connection.execute(f'DELETE FROM "{schema}".spans WHERE lower = %s', (lower,))  # noqa: S608 - names of our own
            if count:
                return int(count)
        return 0
