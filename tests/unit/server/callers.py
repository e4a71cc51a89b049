"""Keys for tests, straight into the store of a home, or through one that is open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from arclog.model.settings import Settings
from arclog.ports.access import KeyRecord
from arclog.server.keys import make_key
from arclog.stores.sqlite import SqliteStore
from arclog.wiring.clock import SystemClock


async def make_keys(home: Path, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A key for each (tenant, role)."""
    await asyncio.to_thread(home.mkdir, parents=True, exist_ok=True)
    clock = SystemClock()
    store = SqliteStore(home / "arclog.db", clock=clock, settings=Settings())
    await store.open()
    try:
        made: dict[tuple[str, str], str] = {}
        for tenant, role in wanted:
            text, record = _made(tenant, role)
            await store.add_key(record)
            made[tenant, role] = text
        return made
    finally:
        await store.close()


@cache
def _made(tenant: str, role: str) -> tuple[str, KeyRecord]:
    """Once for all tests: argon2 takes its time."""
    return make_key(f"{tenant}-{role}", [role], tenant, SystemClock().now())


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
