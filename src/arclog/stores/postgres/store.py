"""`ports.storage.store` on a PostgreSQL database: its parts and their connections."""

from __future__ import annotations

import asyncio
import logging

from arclog.drivers.backoff import Patience
from arclog.drivers.postgres.refusals import is_away
from arclog.model.config.settings import Settings
from arclog.ports.clock import Clock
from arclog.stores.postgres.administration import Access, Duties
from arclog.stores.postgres.appends import Writer
from arclog.stores.postgres.connection.connect import address_of, migrate, open_pipeline
from arclog.stores.postgres.connection.pipeline import Pipeline, translated
from arclog.stores.postgres.connection.pool import Pool
from arclog.stores.postgres.executions import Catalog, Executions, Retention, kept_versions
from arclog.stores.postgres.log import Log
from arclog.stores.postgres.part import Lookups, Shared
from arclog.stores.postgres.partitions import Spans
from arclog.stores.postgres.queries import queries
from arclog.stores.postgres.work import Claims, Work
from arclog.stores.rows import Codec

#: Number of connections for appends: while one waits for the disk, the other sends the next group. Of several server
#: processes, each has one: the others send groups meanwhile, and its own are larger.
_LANES, _LANES_OF_SEVERAL = 2, 1

log = logging.getLogger("arclog.store")

#: Time limit for pending appends when the store is closed.
_CLOSE_S = 5.0


class PostgresStore(Log, Executions, Catalog, Work, Duties, Access, Retention):
    """The store for several servers. Any number of processes may have the same database open."""

    def __init__(self, url: str, *, clock: Clock, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self._address = address_of(url, settings)
        self.place = self._address.place
        self._clock = clock
        self._codec = Codec(settings, dense=True)
        self._search_rows = settings.integer("events.search_rows")
        self._sql = queries(self._address.schema)
        self._patience_s = settings.number("store.patience_s")
        lanes = _LANES if settings.integer("server.processes") == 1 else _LANES_OF_SEVERAL
        most = settings.integer("store.connections") - lanes
        self._pool = Pool(self.place, self._open_pipeline, most, self._patience_s)
        self._lookups = Lookups(self._read_executions)
        self._beginnings = Lookups(self._read_beginnings)
        self._registrations = Shared()
        self._versions = kept_versions()
        self._claims = Claims(self.place, self._pool, self._sql)
        self._spans = Spans(self._address, self._pool, self._sql, settings.number("store.partition_s"))
        self._writer = Writer(self.place, self._sql, self._open_pipeline, self._pool, clock, lanes)

    async def _open_pipeline(self) -> Pipeline:
        return await open_pipeline(self._address)

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
            await self._claims.stop_notes()
        except BaseException:
            await self._pool.close()
            raise
        self._writer.open()

    async def close(self) -> None:
        """Close after the pending appends, without waiting for a server that does not respond."""
        self._pool.patience_s = 0.0
        await self._spans.close()
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.close()
                await self._pool.close()
        except TimeoutError:
            log.warning("%s does not answer; it is unknown whether the last append was committed", self.place)
            await self._writer.abandon()
            self._pool.abandon()

    async def changed_elsewhere(self) -> bool:
        return False  # the bus notifies

    async def time(self) -> int:
        [(now,)] = await self._read("time")
        return int(now)
