"""Servers on PostgreSQL go by its clock: when somebody sets the clock of their machine, timers, leases and schedules notice nothing."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.ids import MICROS
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.schedules import NewSchedule
from arclog.ports.views.api import ExecuteRequest, RegisterRequest
from arclog.wiring.clocks import SystemClock
from arclog.wiring.embedded import embedded
from tests.servers.postgres import Database

HOUR = 3600.0
LEASE_S = 1.0
#: Far above the step of any poll, far below the step of the clock.
SOON_S = 60.0
WAITS = "metadata: {name: waits}\nworkflow: [{step: start, tool: {kind: wait, for_s: 1}}]\n"
CLAIMED = "metadata: {name: claimed}\nworkflow: [{step: start, spec: {pool: apart}, tool: {kind: noop}}]\n"
SCHEDULED = "metadata: {name: tidy, path: flows/tidy}\nworkflow: [{step: start, tool: {kind: noop}}]\n"


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_timers_leases_and_schedules_are_neither_early_nor_late(
    tmp_path: Path, postgres: Database, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    settings = {
        "home": str(tmp_path / "home"),
        "store.url": postgres.dsn,
        "leases.seconds": LEASE_S,
        "engine.sweep_s": 0.2,
    }
    now = SystemClock.now
    async with embedded(Settings(settings)) as runtime, asyncio.timeout(250):
        runtime.start_duties()
        runtime.start_scheduler()
        await runtime.start_worker(unattended=True)
        await runtime.api.register(RegisterRequest(playbook=SCHEDULED))
        half_past = datetime.now(UTC) + timedelta(minutes=30)
        await runtime.schedules().add(NewSchedule("once", f"{half_past.minute} {half_past.hour} * * *", "flows/tidy"))
        waits = await runtime.api.execute(ExecuteRequest(playbook=WAITS))
        begun = time.monotonic()
        claimed = await runtime.api.execute(ExecuteRequest(playbook=CLAIMED))
        gone, next_one = (WorkerInfo(name, ("noop",), ("apart",)) for name in ("gone", "next"))
        (first,) = await runtime.control.claim(gone, 1, SOON_S)
        held = time.monotonic()

        monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + round(step * MICROS))

        (second,) = await runtime.control.claim(next_one, 1, SOON_S)
        assert (second.command_id, second.fence) == (first.command_id, first.fence + 1)
        assert LEASE_S - 0.1 <= time.monotonic() - held < SOON_S
        assert await runtime.api.ended(waits.execution_id, timeout_s=SOON_S)
        assert 0.95 <= time.monotonic() - begun < SOON_S
        assert (await runtime.api.summary(waits.execution_id)).state == "COMPLETED"
        assert await runtime.api.list(path="flows/tidy") == [], "its time is in half an hour"
        assert abs(runtime.engine.wall.now() - await runtime.engine.store.time()) < MICROS, (
            "schedules go by the same clock"
        )
        await runtime.api.cancel(claimed.execution_id, "enough")
