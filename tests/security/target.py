"""A server to attack, in a process of its own: `python -m tests.security.target HOME SETTINGS` prints its address and keys.

It runs the arclog that PYTHONPATH names, which may be an older one.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from arclog.model.config.settings import Settings
from arclog.wiring.loop import run
from arclog.wiring.serving.server import serve
from tests.unit.server.callers import make_keys

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


async def _keys(home: Path) -> list[list[str]]:
    """Tenant, role and key of each caller; made with the home."""
    kept = home.parent / "keys.json"
    if not await asyncio.to_thread(home.exists):
        made = await make_keys(home, CALLERS)
        await asyncio.to_thread(kept.write_text, json.dumps([[*caller, key] for caller, key in made.items()]))
    keys: list[list[str]] = json.loads(await asyncio.to_thread(kept.read_text))
    return keys


async def main(home: Path, settings: dict[str, Any]) -> None:
    keys = await _keys(home)
    known = {name: value for name, value in settings.items() if name in Settings()}
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        serve(Settings({"home": str(home), "server.port": 0, **known}), with_worker=True, started=started)
    )
    await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    print(json.dumps({"url": started.result(), "keys": keys}), flush=True)
    await serving


if __name__ == "__main__":
    part_from_the_machine()
    run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
