"""Stores on the shared server: durable as one in production, a database for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.stores.postgres import PostgresStore
from arclog.wiring.clocks import SystemClock
from tests.servers.postgres import Database

Opened = Callable[..., Any]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    """Opens stores of a database, and closes them: `await opened(database, store__timeout_s=1)`."""
    async with AsyncExitStack() as stack:

        async def open_store(database: Database, **settings: Any) -> PostgresStore:
            store = PostgresStore(database.dsn, clock=SystemClock(), settings=Settings().replaced(**settings))
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield open_store
