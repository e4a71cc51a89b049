"""A home's clock goes by the time that passes, whoever sets the machine's."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.model.ids import MICROS
from arclog.ports.views.api import ExecuteRequest
from arclog.testing.virtual import FakeClock
from arclog.wiring.clocks import CLOCK_FILE, SteadyClock, SystemClock
from arclog.wiring.embedded import embedded

HOUR = 3600.0
WAITS = """\
metadata: {name: waits}
workflow:
  - step: start
    tool: {kind: wait, for_s: 1}
"""


def steady(machine: FakeClock, home: Path | None = None, *, writes: bool = True) -> SteadyClock:
    return SteadyClock(machine, 2 * HOUR, home, writes=writes)


def passed(clock: SteadyClock, machine: FakeClock, seconds: float, step_s: float = 1.0) -> float:
    """How much time the clock counts while so much passes."""
    before = clock.now()
    for _ in range(round(seconds / step_s)):
        machine.advance(step_s)
        clock.now()
    return (clock.now() - before) / MICROS


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_five_seconds_stay_five_seconds_when_the_clock_is_set(step: float, caplog: pytest.LogCaptureFixture) -> None:
    machine = FakeClock()
    clock = steady(machine)
    clock.now()
    machine.jump(step)
    with caplog.at_level(logging.WARNING, "arclog"):
        assert abs(passed(clock, machine, 5.0) - 5.0) < 0.1
    assert caplog.text.count(f"adjusted by {step:.1f} s") == 1


@pytest.mark.parametrize("step", [90.0, -90.0])
def test_it_follows_in_the_end(step: float) -> None:
    machine = FakeClock()
    clock = steady(machine)
    machine.jump(step)
    passed(clock, machine, 9000 + 20)
    assert abs(clock.now() - machine.now()) < MICROS // 10


def test_small_changes_are_taken_over_and_it_never_goes_back() -> None:
    machine = FakeClock()
    clock = steady(machine)
    latest = clock.now()
    for drift in (0.02, -0.03, 0.04, -0.01):
        machine.jump(drift)
        machine.advance(0.001)
        assert clock.now() >= latest
        latest = clock.now()
        machine.advance(1.0)
        assert abs(clock.now() - machine.now()) <= 0.05 * MICROS


def test_a_step_beyond_the_limit_is_followed_at_once(caplog: pytest.LogCaptureFixture) -> None:
    machine = FakeClock()
    clock = steady(machine)
    clock.now()
    for step in (5 * HOUR, -10 * HOUR):
        machine.jump(step)
        machine.advance(1.0)
        with caplog.at_level(logging.WARNING, "arclog"):
            assert clock.now() == machine.now()
    assert "follow it" in caplog.text


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_processes_of_a_home_have_the_same_time(tmp_path: Path, step: float) -> None:
    machine = FakeClock()
    first = steady(machine, tmp_path)
    machine.advance(100.0)
    machine.jump(step)
    passed(first, machine, 60.0)
    second = steady(machine, tmp_path)
    assert abs(first.now() - second.now()) < 0.05 * MICROS
    # Nobody was there when the clock was set back again.
    passed(first, machine, 60.0)
    machine.jump(-step)
    third = steady(machine, tmp_path)
    assert abs(third.now() - first.now()) < 0.5 * MICROS


@pytest.mark.parametrize("step", [90.0, -90.0])
def test_a_process_that_was_killed_while_it_followed_leaves_no_lasting_error(tmp_path: Path, step: float) -> None:
    machine = FakeClock()
    first = steady(machine, tmp_path)
    machine.jump(step)
    passed(first, machine, 10.0)
    machine.advance(100_000.0)
    assert steady(machine, tmp_path).now() == machine.now()


def test_the_file_of_another_boot_counts_for_nothing(tmp_path: Path) -> None:
    machine = FakeClock()
    steady(machine, tmp_path)
    anchor = json.loads((tmp_path / CLOCK_FILE).read_text())
    (tmp_path / CLOCK_FILE).write_text(json.dumps(anchor | {"boot": "another", "now": 0}))
    assert steady(machine, tmp_path).now() == machine.now()
    (tmp_path / CLOCK_FILE).write_text("no json")
    assert steady(machine, tmp_path).now() == machine.now()


def test_who_only_reads_writes_no_file(tmp_path: Path) -> None:
    steady(FakeClock(), tmp_path, writes=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_wait_is_neither_early_nor_late_when_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: float
) -> None:
    """The whole of it, in real time."""
    now = SystemClock.now
    async with embedded(Settings({"home": str(tmp_path / "home")})) as runtime:
        await runtime.start_worker()
        begun = time.monotonic()
        run = await runtime.api.execute(ExecuteRequest(playbook=WAITS))
        monkeypatch.setattr(SystemClock, "now", lambda self: now(self) + round(step * MICROS))
        async with asyncio.timeout(20):
            await runtime.api.ended(run.execution_id, timeout_s=20)
        assert (await runtime.api.summary(run.execution_id)).state == "COMPLETED"
        assert time.monotonic() - begun >= 0.95
