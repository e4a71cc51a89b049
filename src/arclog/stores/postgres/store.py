"""`ports.storage.store` on a PostgreSQL database: appends go to the writer, everything else to the pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence

from arclog.model.config.settings import Settings
from arclog.ports.clock import Clock
from arclog.ports.storage.store import Append, Appended
from arclog.stores.postgres.connection.connect import address_of, open_link
from arclog.stores.postgres.connection.errors import is_away, translated
from arclog.stores.postgres.connection.migrations import migrate
from arclog.stores.postgres.connection.pipeline import Link
from arclog.stores.postgres.connection.pool import Patience, Pool
from arclog.stores.postgres.log.partitions import Spans
from arclog.stores.postgres.log.reading import Reading
from arclog.stores.postgres.log.searches import Searches
from arclog.stores.postgres.log.writer import Writer
from arclog.stores.postgres.queries import queries
from arclog.stores.postgres.retention import Retention
from arclog.stores.postgres.tables.access import Access
from arclog.stores.postgres.tables.catalog import Catalog
from arclog.stores.postgres.tables.claims import Claims
from arclog.stores.postgres.tables.crashes import Crashes
from arclog.stores.postgres.tables.lookups import Lookups
from arclog.stores.postgres.tables.operations import Operations
from arclog.stores.postgres.tables.pools import Pools
from arclog.stores.postgres.tables.secrets import Secrets
from arclog.stores.postgres.tables.stored_results import Stored
from arclog.stores.postgres.tables.task_logs import TaskLogs
from arclog.stores.postgres.tables.work import Work
from arclog.stores.rows import Codec

#: connections for appends: while one waits for the disk, the other takes the next group
_LANES = 2

log = logging.getLogger("arclog.store")

#: Time for what was handed in when the store is closed.
_CLOSE_S = 5.0


class PostgresStore(
    Reading, Searches, Work, Catalog, Operations, Stored, TaskLogs, Access, Pools, Secrets, Retention, Crashes
):
    """The store of many servers: any number of processes may have the same database open."""

    def __init__(self, url: str, *, clock: Clock, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self._address = address_of(url, settings)
        self.place = self._address.place
        self._clock = clock
        self._codec = Codec(settings, dense=True)
        self._search_rows = settings.integer("events.search_rows")
        self._sql = queries(self._address.schema)
        self._patience_s = settings.number("store.patience_s")
        most = settings.integer("store.connections") - _LANES
        self._pool = Pool(self.place, self._open_link, most, self._patience_s)
        self._lookups = Lookups(self._executions_by_id)
        self._beginnings = Lookups(self._beginnings_of)
        self._claims = Claims(self.place, self._pool, self._sql)
        self._spans = Spans(self._address, self._pool, self._sql, settings.number("store.partition_s"))
        self._writer = Writer(self.place, self._sql, self._open_link, self._pool, clock, _LANES)

    async def _open_link(self) -> Link:
        return await open_link(self._address)

    async def open(self) -> None:
        self._pool.patience_s = self._patience_s
        patience = Patience(self._patience_s)
        while True:
            try:
                await migrate(self._address)
                break
            except Exception as error:
                if not is_away(error) or not await patience.more():
                    raise translated(error, self.place) from error
        self._pool.open()
        try:
            await self._pool.write(self._sql["lift_positions"])
            await self._spans.reload()
            await self._spans.make_ahead(self._clock.now())
        except BaseException:
            await self._pool.close()
            raise
        self._writer.open()

    async def close(self) -> None:
        """After what was handed in, as far as the server answers: it is waited for no more."""
        self._pool.patience_s = 0.0
        await self._spans.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.close()
                await self._pool.close()
        except TimeoutError:
            log.warning("%s does not answer; whether what was handed in last is there is not known", self.place)
            await self._writer.abandon()
            self._pool.abandon()

    async def append(self, append: Append) -> Appended:
        derived = self._codec.derive(append)
        if not self._has_span(append):
            await self._spans.ensure(append.execution_id)
        return await self._writer.append(append, derived)

    async def append_all(self, appends: Sequence[Append]) -> list[Appended | Exception]:
        outcomes = await asyncio.gather(*map(self._handed_in, appends), return_exceptions=True)
        for each in outcomes:
            if isinstance(each, BaseException) and not isinstance(each, Exception):
                raise each
        return [each for each in outcomes if isinstance(each, Appended | Exception)]

    def _handed_in(self, append: Append) -> Awaitable[Appended]:
        """An append that is with the writer at once, so that those of a group go out together."""
        try:
            if self._has_span(append):
                return self._writer.append(append, self._codec.derive(append))
        except Exception as problem:  # noqa: BLE001 - it is raised where the append is awaited
            return _failed(problem)
        return self.append(append)

    def _has_span(self, append: Append) -> bool:
        """Whether the partition of an execution is there; of one that begins, the next is made in time."""
        if append.new is not None and self._spans.is_last(append.execution_id):
            self._spans.make_next(self._clock.now())
        return self._spans.has(append.execution_id)


async def _failed(problem: Exception) -> Appended:
    raise problem
