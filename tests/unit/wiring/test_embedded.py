"""What an embedded arclog does beside running commands."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.plan.program import LARGE
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import embedded


async def test_a_store_that_cannot_be_read_for_a_moment_does_not_end_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    again = asyncio.Event()

    async def sweep(_: object) -> None:
        calls.append("sweep")
        if len(calls) == 1:
            raise StoreUnavailable("the disk is full")
        again.set()

    async with embedded(Settings({"home": str(tmp_path), "engine.sweep_s": 0.01})) as runtime:
        monkeypatch.setattr(runtime.control, "sweep", sweep)
        await runtime.start_worker()
        async with asyncio.timeout(10):
            await again.wait()


async def test_a_large_playbook_is_built_without_the_pauses_of_a_server(tmp_path: Path) -> None:
    rows = [f"  - {{step: s{n}, tool: {{kind: noop}}, next: {{arcs: [{{step: s{n + 1}}}]}}}}" for n in range(400)]
    text = "\n".join(["metadata: {name: long}", "workflow:", *rows, "  - {step: s400, tool: {kind: noop}}"])
    before = set(threading.enumerate())
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        started = await runtime.api.execute(ExecuteRequest(playbook=text))
        record = await runtime.engine.store.execution(int(started.execution_id))
        assert record is not None
        assert (await runtime.engine.live.program(record.new.plan)).size >= LARGE
        names = [thread.name for thread in set(threading.enumerate()) - before]
        assert not [name for name in names if name.startswith("arclog-decision")]
