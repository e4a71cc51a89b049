"""Partitions: `log` and `task_logs` have one table per span of execution ids. Ids are assigned in order of time, so a
span of ids is a span of time. A span's tables exist before its first row: they are created in advance, or by the first
process that needs them.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from typing import Any

from arclog.drivers.postgres.connect import answering
from arclog.model.errors import ArclogError
from arclog.model.ids import EPOCH_MS, MAX_ID, NODE_BITS, SEQUENCE_BITS, compose
from arclog.stores.postgres.connection.connect import Address, connect
from arclog.stores.postgres.connection.pipeline import translated
from arclog.stores.postgres.connection.pool import Pool

log = logging.getLogger("arclog.store")

PARTED = ("log", "task_logs")
# Statements may take long, but waits for locks may not. Locks of a process that vanished are released.
_PATIENTLY = """
SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = {ms}; SET LOCAL lock_timeout = {ms}
"""
#: maximum time to create tables, in addition to waiting for locks
_MAKING_S = 10.0
#: class of the advisory lock for partitions
_LOCK_CLASS = 1634886665


class Spans:
    def __init__(self, address: Address, pool: Pool, queries: dict[str, str], seconds: float) -> None:
        self._address = address
        self._pool = pool
        self._queries = queries
        #: number of ids in a span
        self._width = round(seconds * 1000) << (NODE_BITS + SEQUENCE_BITS)
        self._lowers: list[int] = []
        self._uppers: list[int] = []
        self._lock = asyncio.Lock()
        self._making: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def make_ahead(self, now: int) -> None:
        """Create the tables for the current ids and for the next span (`now` in microseconds), so that no append waits
        for them.
        """
        first = compose(max(now // 1000, EPOCH_MS), 0, 0)
        for execution_id in (first, first + self._width):
            if not self.has(execution_id):
                await self.ensure(execution_id)

    def make_next(self, now: int) -> None:
        """Create the tables of the next span in the background."""
        if self._making is None or self._making.done():
            self._making = asyncio.ensure_future(self._make_next(now))

    async def _make_next(self, now: int) -> None:
        try:
            await self.make_ahead(now)
        except ArclogError as problem:
            log.warning(
                "the log's next partition could not be made (%s); the next run that starts tries again", problem
            )

    def is_last(self, execution_id: int) -> bool:
        """Return whether no later span than that of this id is known."""
        return not self._uppers or execution_id >= self._lowers[-1]

    def has(self, execution_id: int) -> bool:
        index = bisect_right(self._lowers, execution_id) - 1
        return index >= 0 and execution_id < self._uppers[index]

    async def ensure(self, execution_id: int) -> None:
        """Create the tables for this id, if they do not exist."""
        async with self._lock:
            if self.has(execution_id):
                return
            await self.reload()
            if not self.has(execution_id):
                await self._create(execution_id)
                await self.reload()

    async def reload(self) -> None:
        rows = await self._pool.read(self._queries["spans"])
        self._lowers = [lower for lower, _ in rows]
        self._uppers = [upper for _, upper in rows]

    async def _create(self, execution_id: int) -> None:
        address = self._address
        try:
            connection = await connect(address)
            try:
                with answering(connection, address.timeout_s + _MAKING_S):
                    async with connection.transaction():
                        await connection.execute(_PATIENTLY.format(ms=round(1000 * address.timeout_s)))
                        await self._create_in(connection, execution_id)
            finally:
                await connection.close()
        except Exception as error:
            raise translated(error, address.place) from error

    async def _create_in(self, connection: Any, execution_id: int) -> None:
        schema = self._address.schema
        await lock_spans(connection, schema)
        # A span has the width in the settings, without overlapping adjacent spans, which may have another width.
        lower = execution_id // self._width * self._width
        upper = min(lower + self._width, MAX_ID)
        rows = await (
            await connection.execute(f'SELECT lower, upper FROM "{schema}".spans ORDER BY lower')  # noqa: S608 - the schema is a plain name
        ).fetchall()
        for known_lower, known_upper in rows:
            if known_lower <= execution_id < known_upper:
                return  # another process was faster
            if known_upper <= execution_id:
                lower = max(lower, known_upper)
            else:
                upper = min(upper, known_lower)
        for table in PARTED:
            # Created separately and then attached, which neither waits for reads and writes nor blocks them.
            part = f'"{schema}"."{table}_{lower}"'
            await connection.execute(f'CREATE TABLE {part} (LIKE "{schema}".{table} INCLUDING ALL)')
            await connection.execute(
                f'ALTER TABLE "{schema}".{table} ATTACH PARTITION {part} FOR VALUES FROM ({lower}) TO ({upper})'
            )
        await connection.execute(f'INSERT INTO "{schema}".spans VALUES (%s, %s)', (lower, upper))  # noqa: S608 - the schema is a plain name


async def lock_spans(connection: Any, schema: str) -> None:
    """Prevent other processes from creating or dropping partitions until the end of the transaction."""
    await connection.execute("SELECT pg_advisory_xact_lock(%s, hashtext(%s))", (_LOCK_CLASS, schema))
