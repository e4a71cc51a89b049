"""The embedded store: one SQLite file."""

from arclog.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
