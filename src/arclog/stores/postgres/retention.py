"""Removing what ended long ago: a span of executions at a time, whose tables of the log are dropped as a whole.

Law: nobody waits for it. Executions go some at a time, with all that is known of them but their log rows; then the span's tables
are detached beside whoever reads and writes, and dropped. Each step may be the last of a process that is killed: the next one
continues with what it finds.
"""

from __future__ import annotations

from typing import Any

from arclog.model.ids import EPOCH_MS, compose
from arclog.stores.postgres.connection.connect import Address, connect
from arclog.stores.postgres.connection.errors import translated
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.postgres.partitions import PARTED

#: executions that go at a time
_PIECE = 200
#: detaching waits for reads that are in progress
_LOCK_TIMEOUT_MS = 2_000

# A span's table: whether it is a part of the log still, and whether it was left half detached.
_STATE = """
SELECT c.relispartition, coalesce((SELECT i.inhdetachpending FROM pg_inherits i WHERE i.inhrelid = c.oid), false)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""


class Retention(PostgresPart):
    _address: Address
    #: the span that is being removed, and the moment for which it was found
    _going: tuple[int, int, int] | None = None
    #: spans up to here must stay, as far as is known of this moment
    _passed: tuple[int, int] = (-1, -1)

    async def reclaim(self) -> int:
        return 0  # dropped partitions have given theirs back; the space of deleted rows is used again after a vacuum

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        if dry_run:
            return await self._count(before)
        while True:
            span = await self._span(before)
            if span is None:
                self._passed = (-1, -1)  # the next call begins again
                return 0
            rows = await self._write("retire", *span, before, _PIECE)
            if rows:
                return len(rows)
            self._going = None
            [(empty,)] = await self._read("span_is_empty", *span)
            if empty:
                await self._drop(span[0])
            self._passed = (before, span[0])

    async def _span(self, before: int) -> tuple[int, int] | None:
        """The next whose executions may all go."""
        if self._going is not None and self._going[2] == before:
            return self._going[:2]
        passed = self._passed[1] if self._passed[0] == before else -1
        rows = await self._read("retirable", _newest(before), before, passed)
        if not rows:
            self._going = None
            return None
        self._going = (*rows[0], before)
        return self._going[:2]

    async def _count(self, before: int) -> int:
        total, passed = 0, -1
        while rows := await self._read("retirable", _newest(before), before, passed):
            [(count,)] = await self._read("count_span", *rows[0])
            total += count
            passed = rows[0][0]
        return total

    async def _drop(self, lower: int) -> None:
        """The tables of a span without executions. Each statement is a transaction of its own."""
        address = self._address
        try:
            connection = await connect(address)
            try:
                await connection.execute(f"SET statement_timeout = 0; SET lock_timeout = {_LOCK_TIMEOUT_MS}")
                for table in PARTED:
                    await self._drop_table(connection, table, lower)
            finally:
                await connection.close()
        except Exception as error:
            raise translated(error, address.place) from error
        await self._write("forget_span", lower)
        await self._spans.reload()

    async def _drop_table(self, connection: Any, table: str, lower: int) -> None:
        schema, name = self._address.schema, f"{table}_{lower}"
        row = await (await connection.execute(_STATE, (schema, name))).fetchone()
        if row is None:
            return
        is_part, is_pending = row
        if is_part:
            how = "FINALIZE" if is_pending else "CONCURRENTLY"
            await connection.execute(f'ALTER TABLE "{schema}".{table} DETACH PARTITION "{schema}"."{name}" {how}')
        await connection.execute(f'DROP TABLE "{schema}"."{name}"')


def _newest(before: int) -> int:
    """The first id of a moment: what was minted later cannot have ended earlier."""
    return compose(max(before // 1000, EPOCH_MS), 0, 0)
