"""`ports.storage.store` on one SQLite file: its parts and their connections."""

from __future__ import annotations

import os

from arclog.model.config.settings import Settings
from arclog.ports.clock import Clock
from arclog.stores.rows import Codec
from arclog.stores.sql.administration import Access, Duties
from arclog.stores.sqlite.connection.readers import Readers
from arclog.stores.sqlite.connection.writer import Writer
from arclog.stores.sqlite.executions import Catalog, Executions, Retention, Sweep
from arclog.stores.sqlite.log import Log
from arclog.stores.sqlite.work import Work

#: If this process is writing at every check for changes of others, every fifth check assumes that there were some.
_UNSEEN = 5


class SqliteStore(Log, Executions, Catalog, Work, Duties, Access, Retention):
    """The embedded store. Several processes may have the same file open."""

    def __init__(self, path: str | os.PathLike[str], *, clock: Clock, settings: Settings | None = None) -> None:
        settings = settings or Settings()
        self._clock = clock
        self.path = self.place = os.fspath(path)
        busy = settings.number("store.busy_timeout_s")
        self._codec = Codec(settings)
        self._writer = Writer(self.path, busy, clock)
        readers = settings.integer("store.readers")
        self._reader = Readers(self.path, busy, "arclog-reader", readers)
        self._lists = Readers(self.path, busy, "arclog-lists", readers)
        self._sweep = Sweep(self._writer, self._lists)
        #: the state of the write-ahead log at the last check for changes of others
        self._touched: tuple[int, int, int] | None = None
        self._version: int | None = None
        self._unseen = 0
        self._search_rows = settings.integer("events.search_rows")

    async def open(self) -> None:
        await self._writer.open()
        self._reader.open()
        self._lists.open()

    async def close(self) -> None:
        await self._lists.close()
        await self._reader.close()
        await self._writer.close()

    async def changed_elsewhere(self) -> bool:
        """Return whether another process changed the store. Every commit changes the write-ahead log; SQLite's
        data_version shows whether another connection made it.
        """
        try:
            about = os.stat(f"{self.path}-wal")  # noqa: PTH116 - asked every second: no object is needed for it
        except OSError:
            return False
        touched = (about.st_ino, about.st_size, about.st_mtime_ns)
        if touched == self._touched:
            return False
        seen = self._writer.peek(lambda execute: execute("PRAGMA data_version").get)
        if seen is None:  # this process is writing right now; the next call checks
            self._unseen += 1
            return self._unseen % _UNSEEN == 0
        self._touched, self._unseen = touched, 0
        before, self._version = self._version, seen[0]
        return before != self._version

    async def time(self) -> int:
        return self._clock.now()
