"""What an embedded arclog does beside running commands."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
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
