"""`ports.storage.store` in plain Python, for tests and simulation: the same rules and the same derived rows, without
threads or disk.

No method awaits, so every call is atomic. Bodies are stored encoded, so that readers never share objects with writers.
"""

from __future__ import annotations

from arclog.stores.memory.administration import Access, Duties
from arclog.stores.memory.executions import Catalog, Executions, Retention
from arclog.stores.memory.log import Log
from arclog.stores.memory.work import Work


class MemoryStore(Log, Executions, Catalog, Work, Duties, Access, Retention):
    """The store of tests. Its content lasts as long as the object; close() and open() simulate a restart."""

    async def changed_elsewhere(self) -> bool:
        return False  # no other process can write to it

    async def time(self) -> int:
        self._check_open()
        return self._clock.now()
