"""Keys for tests, straight into the store of a home, or through one that is open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from argon2 import PasswordHasher

from arclog.model.config.settings import Settings
from arclog.ports.storage.access import KeyRecord
from arclog.server.auth.keys import make_key
from arclog.stores.sqlite import SqliteStore
from arclog.wiring.clocks import SystemClock

_QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


class Caller(NamedTuple):
    """A key to be made."""

    name: str
    role: str
    tenant: str = "acme"
    project: str = ""
    environment: str = ""


async def make_keys(home: Path, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A key for each (tenant, role)."""
    pairs = list(wanted)
    texts = await keys_of(home, [Caller(f"{tenant}-{role}", role, tenant) for tenant, role in pairs])
    return {pair: texts[f"{pair[0]}-{pair[1]}"] for pair in pairs}


async def keys_of(home: Path, callers: Iterable[Caller]) -> dict[str, str]:
    """A key for each caller, by its name."""
    await asyncio.to_thread(home.mkdir, parents=True, exist_ok=True)
    clock = SystemClock()
    store = SqliteStore(home / "arclog.db", clock=clock, settings=Settings())
    await store.open()
    try:
        made: dict[str, str] = {}
        for caller in callers:
            text, record = _made(caller)
            await store.add_key(record)
            made[caller.name] = text
        return made
    finally:
        await store.close()


@cache
def _made(caller: Caller) -> tuple[str, KeyRecord]:
    """Once for all tests, and with a hash that servers verify at once: argon2 takes its time. test_keys.py has real ones."""
    now = SystemClock().now()
    text, record = make_key(
        caller.name, [caller.role], caller.tenant, now, project=caller.project, environment=caller.environment
    )
    return text, msgspec.structs.replace(record, hash=_QUICK.hash(text))


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}
