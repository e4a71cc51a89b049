"""`ports.storage.store` in plain Python, for tests and simulation: the same rules and the same derived rows, no thread, no disk.

Nothing here awaits, so every call is atomic. Bodies are kept encoded: what a reader gets is never what a writer holds.
"""

from __future__ import annotations

from arclog.stores.memory.access import Access
from arclog.stores.memory.catalog import Catalog
from arclog.stores.memory.duties import Duties
from arclog.stores.memory.log import Log
from arclog.stores.memory.pools import Pools
from arclog.stores.memory.retention import Retention
from arclog.stores.memory.schedules import Schedules
from arclog.stores.memory.secrets import Secrets
from arclog.stores.memory.snapshots import Odds

__all__ = ["MemoryStore"]


class MemoryStore(Log, Catalog, Odds, Access, Schedules, Duties, Pools, Secrets, Retention):
    """The store of tests. Its content lives as long as the object: close() and open() again is a restart."""
