"""The store of tests and simulations: plain Python."""

from arclog.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
