"""The store of tests and simulations, in plain Python."""

from arclog.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
