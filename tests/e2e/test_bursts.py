"""Timers of many runs that are due at the same moment, in real processes: each fires once, whoever is killed and whatever is full."""

from __future__ import annotations

import asyncio
import logging
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from arclog.engine.duties.timers import Timers
from arclog.model.config.settings import Settings
from arclog.ports.storage.store import ExecutionFilter
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded
from bench.children import copied_runs

COUNT = 300
WAITING = "{metadata: {name: waiting}, workflow: [{step: start, tool: {kind: wait, for_s: 1}}]}"
SERVER = """
import asyncio, sys
from arclog.model.config.settings import Settings
from arclog.wiring.embedded import embedded
async def main():
    async with embedded(Settings({"home": sys.argv[1]})) as here:
        here.engine.hints.on_committed.append(
            lambda state, events: any(event.type == "timer.fired" for event in events) and print("fired", flush=True)
        )
        await here.start_worker()
        await asyncio.Event().wait()
asyncio.run(main())
"""


@asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Embedded]:
    async with embedded(Settings({"home": str(home), "engine.sweep_s": 0.05})) as runtime, asyncio.timeout(60):
        yield runtime


async def waiting_home(home: Path) -> None:
    """A home with runs whose timers are due, all at the same moment."""
    async with opened(home) as runtime:
        await runtime.start_worker()
        first = int((await runtime.api.execute(ExecuteRequest(WAITING))).execution_id)
        head = 0
        while await runtime.engine.store.next_due() is None:
            head = await runtime.api.wait(str(first), after=head)
    copied_runs.copy(str(home), {first: tuple(range(1, COUNT))})


def started(home: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SERVER, str(home)], stdout=subprocess.PIPE, text=True)


async def fire_the_rest(embedded_runtime: Embedded) -> None:
    for execution in await embedded_runtime.engine.store.executions(limit=COUNT):
        await embedded_runtime.api.ended(str(execution.execution_id))


async def each_fired_once(embedded_runtime: Embedded) -> None:
    store = embedded_runtime.engine.store
    ended = await store.executions(ExecutionFilter(states=("COMPLETED",)), limit=2 * COUNT)
    assert len(ended) == COUNT
    for run in ended:
        assert len(await store.events(run.execution_id, types=["timer.fired"])) == 1
        assert len(await store.events(run.execution_id, types=["playbook.finished"])) == 1


@pytest.mark.soak
async def test_killed_at_any_moment_the_next_fires_the_rest(tmp_path: Path) -> None:
    await waiting_home(tmp_path)
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    for _ in range(3):
        server = started(tmp_path)
        assert server.stdout is not None
        for _ in range(moments.randrange(1, COUNT // 4)):
            assert await asyncio.to_thread(server.stdout.readline) == "fired\n"
        server.kill()
        server.communicate()
    assert apsw.Connection(str(tmp_path / "arclog.db")).execute("PRAGMA integrity_check").get == "ok"
    async with opened(tmp_path) as runtime:
        await runtime.start_worker()
        await fire_the_rest(runtime)
        await each_fired_once(runtime)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


async def test_a_full_disk_stops_a_burst_until_there_is_room(small_disk: Path) -> None:
    home = small_disk / "home"
    home.mkdir()
    await waiting_home(home)
    refused = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Noted(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage().startswith("timers: disk full"):
                loop.call_soon_threadsafe(refused.set)

    noted = Noted()
    logging.getLogger("arclog.engine").addHandler(noted)
    ballast = small_disk / "ballast"
    try:
        async with opened(home) as runtime:
            with ballast.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    pass
            timers = asyncio.ensure_future(Timers(runtime.engine).run())
            await refused.wait()
            ballast.unlink()
            await fire_the_rest(runtime)
            await each_fired_once(runtime)
            timers.cancel()
            await asyncio.gather(timers, return_exceptions=True)
    finally:
        logging.getLogger("arclog.engine").removeHandler(noted)
