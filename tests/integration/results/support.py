"""What the tests of result stores on servers share."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from arclog.model.config.settings import Settings
from arclog.ports.results import Content, Results
from arclog.testing.conformance.results import TENANT, read

ROOT = Path(__file__).parents[3]
NOISE = random.Random(3).randbytes(3_500_000)
#: of more parts than a writer holds
LONG = random.Random(4).randbytes(8_000_000)
ROWS: list[dict[str, Any]] = [{"id": number, "text": "x" * (number % 90)} for number in range(60_000)]

_LARGE = """
import asyncio, random, sys
from arclog.model.config.settings import Settings
from arclog.wiring.backends import choose_results
def peak():
    # Not by getrusage: that of a child begins with what its parent had.
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024
async def main():
    results = choose_results(Settings(dict(each.split("=", 1) for each in sys.argv[4:])))
    noise = random.Random(1).randbytes(1_000_000).hex()
    async def store(count):
        writer = results.writer("acme", listed=True)
        for number in range(count):
            await writer.add([{"id": number, "text": noise[number:] + noise[:number]}])
        done = await writer.commit()
        most, total = int(sys.argv[3]), 0
        async for chunk in results.chunks("acme", done.sha256, 0, min(most, done.bytes)):
            total += len(chunk)
        assert total == min(most, done.bytes)
        for at in range(0, count, count // 10):  # more parts than are kept
            assert (await results.items("acme", done.sha256, at, at + 1))[0]["id"] == at
    await store(int(sys.argv[1]))
    before = peak()
    await store(int(sys.argv[2]))
    print(before, peak())
    await results.close()
asyncio.run(main())
"""
_KILLED = """
import asyncio, os, sys
from arclog.model.config.settings import Settings
from arclog.wiring.backends import choose_results
async def main():
    results = choose_results(Settings(dict(each.split("=", 1) for each in sys.argv[1:])))
    writer = results.writer("acme")
    for number in range(12):
        await writer.write(os.urandom(1 << 20))
    print("under way", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def _child(script: str, *words: object) -> subprocess.Popen[str]:
    # One arena: with one for each thread, what the allocator keeps for later counts as memory in use.
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MALLOC_ARENA_MAX": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)], stdout=subprocess.PIPE, text=True, env=env
    )


def _words(settings: Settings) -> list[str]:
    return [f"{name}={settings[name]}" for name in settings if settings[name] != Settings()[name]]


async def growth_mib(settings: Settings, first: int = 12, then: int = 60, most: int = 1 << 62) -> int:
    """By how much a process grows that stores and reads a list of so many items of 2 MB, half of it when packed, after a
    smaller one; `most` bytes of it are read.
    """
    process = _child(_LARGE, first, then, most, *_words(settings))
    output, _ = await asyncio.to_thread(process.communicate, timeout=100)
    before, after = map(int, output.split())
    return after - before


async def killed_writer(settings: Settings) -> None:
    """A process that has written 12 MiB of a result, and is killed."""
    process = _child(_KILLED, *_words(settings))
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "under way\n"
    process.kill()
    await asyncio.to_thread(process.communicate)


async def stored_around(results: Results, halfway: Callable[[], Awaitable[None]]) -> Content:
    """Store `LONG`; something happens when the first parts are written, and others wait to be."""
    writer = results.writer(TENANT)
    try:
        await writer.write(LONG[:-100_000])
        await halfway()
        await writer.write(LONG[-100_000:])
        return await writer.commit()
    finally:
        await writer.abandon()


async def read_around(results: Results, sha256: str, halfway: Callable[[], Awaitable[None]]) -> bytes:
    """Read content; something happens when its first part came."""
    got: list[bytes] = []
    async for chunk in results.chunks(TENANT, sha256):
        if not got:
            await halfway()
        got.append(chunk)
    return b"".join(got)


async def is_readable(results: Results, sha256: str, body: bytes = NOISE) -> bool:
    return await read(results, sha256) == body
