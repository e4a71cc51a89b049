"""Every clock counts the time that the machine was suspended."""

from __future__ import annotations

import importlib.util
import time
from types import ModuleType

import pytest

from arclog.model.ids import MICROS
from arclog.wiring.clocks import IS_KNOWN

pytestmark = pytest.mark.skipif(not IS_KNOWN, reason="this system has no clock that includes suspended time")


class Machine:
    """The clocks of a machine that was suspended for some time since its start."""

    def __init__(self) -> None:
        self.suspended_s = 0.0
        self._read = time.clock_gettime

    def clock_gettime(self, clock: int) -> float:
        # CLOCK_MONOTONIC stands still during a suspension, as `time.monotonic` does; this one goes on.
        return self._read(clock) + (self.suspended_s if clock == time.CLOCK_BOOTTIME else 0.0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "clock_gettime", machine.clock_gettime)
    return machine


@pytest.fixture
def clocks(machine: Machine) -> ModuleType:
    """The module, which chooses its clock when it is loaded, as loaded on this machine."""
    spec = importlib.util.find_spec("arclog.wiring.clocks")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_elapsed_time_includes_suspended_time(machine: Machine, clocks: ModuleType) -> None:
    clock = clocks.SystemClock()
    steady = clocks.SteadyClock(clock, max_step_s=1.0)
    sources = (clocks.elapsed_s, clock.monotonic, steady.monotonic)
    before = [read() for read in sources]
    machine.suspended_s = 3600.0
    assert all(read() - earlier >= 3600.0 for read, earlier in zip(sources, before, strict=True))


async def test_the_stores_clock_continues_during_a_suspension(machine: Machine, clocks: ModuleType) -> None:
    measured = 1_800_000_000 * MICROS

    async def store_time() -> int:
        return measured

    clock = clocks.StoreClock(store_time, clocks.SystemClock())
    await clock.measure()
    machine.suspended_s = 3600.0
    assert clock.now() - measured >= 3600 * MICROS
