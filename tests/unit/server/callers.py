"""Keys for tests, straight into the store of a home, or through one that is open."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from arclog.model.settings import Settings
from arclog.server.keys import make_key
from arclog.stores.sqlite import SqliteStore
from arclog.wiring.clock import SystemClock


async def make_keys(home: Path, wanted: Iterable[tuple[str, str]], **more: Any) -> dict[tuple[str, str], str]:
    """A key for each (tenant, role)."""
    home.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    store = SqliteStore(home / "arclog.db", clock=clock, settings=Settings())
    await store.open()
    try:
        made: dict[tuple[str, str], str] = {}
        for tenant, role in wanted:
            text, record = make_key(f"{tenant}-{role}", [role], tenant, clock.now(), **more)
            await store.add_key(record)
            made[tenant, role] = text
        return made
    finally:
        await store.close()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
