"""A server to attack, in a process of its own: `python -m tests.security.target HOME SETTINGS` prints its address and keys.

It runs the arclog that PYTHONPATH names, which may be an older one: whatever it needs of it is looked up in every module that
it ever stood in.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.security.names import ask_here

#: What is needed of arclog → the modules that have it, the newest first.
_PLACES = {
    "Settings": ("arclog.model.config.settings", "arclog.model.settings"),
    "SqliteStore": ("arclog.stores.sqlite",),
    "SystemClock": ("arclog.wiring.clocks", "arclog.wiring.clock"),
    "make_key": ("arclog.server.auth.keys", "arclog.server.keys"),
    "run": ("arclog.wiring.process", "arclog.wiring.loop"),
    "serve": ("arclog.wiring.serving.server", "arclog.wiring.server"),
}
#: Who has keys: (tenant, role).
CALLERS = [
    *(("mallory", role) for role in ("viewer", "operator", "engineer", "worker", "admin")),
    *(("victim", role) for role in ("viewer", "engineer", "worker")),
]


def part_from_the_machine() -> None:
    """Attacks that succeed must hurt nobody: what root mounts here stays here."""
    libc = ctypes.CDLL(None, use_errno=True)
    private = 0x4000 | 0x40000
    if os.geteuid() == 0 and (
        libc.unshare(0x00020000 | 0x08000000) or libc.mount(None, b"/", None, ctypes.c_ulong(private), None)
    ):
        raise OSError(ctypes.get_errno(), "cannot part from the machine")


def _of_arclog(name: str) -> Any:
    """Something of the arclog that is attacked."""
    for module in _PLACES[name]:
        try:
            return getattr(import_module(module), name)
        except ModuleNotFoundError:
            continue
    raise ImportError(f"this arclog has {name} in none of {', '.join(_PLACES[name])}")


async def _keys(home: Path) -> list[list[str]]:
    """Tenant, role and key of each caller; made with the home."""
    kept = home.parent / "keys.json"
    if not await asyncio.to_thread(home.exists):
        await asyncio.to_thread(kept.write_text, json.dumps(await _make_keys(home)))
    keys: list[list[str]] = json.loads(await asyncio.to_thread(kept.read_text))
    return keys


async def _make_keys(home: Path) -> list[list[str]]:
    await asyncio.to_thread(home.mkdir, parents=True)
    clock = _of_arclog("SystemClock")()
    store = _of_arclog("SqliteStore")(home / "arclog.db", clock=clock, settings=_of_arclog("Settings")())
    await store.open()
    try:
        made = []
        for tenant, role in CALLERS:
            text, record = _of_arclog("make_key")(f"{tenant}-{role}", [role], tenant, clock.now())
            await store.add_key(record)
            made.append([tenant, role, text])
        return made
    finally:
        await store.close()


async def main(home: Path, given: dict[str, Any]) -> None:
    keys = await _keys(home)
    settings = _of_arclog("Settings")
    supported = {name: value for name, value in given.items() if name in settings()}
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        _of_arclog("serve")(
            settings({"home": str(home), "server.port": 0, **supported}), with_worker=True, started=started
        )
    )
    await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    print(json.dumps({"url": started.result(), "keys": keys}), flush=True)
    await serving


if __name__ == "__main__":
    part_from_the_machine()
    if os.environ.get("NAMES"):
        ask_here(os.environ["NAMES"])
    _of_arclog("run")(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
