"""The store for several machines: a PostgreSQL database."""

from arclog.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
