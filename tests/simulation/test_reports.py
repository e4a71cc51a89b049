"""The report stream: duplicates are answered as before, gaps and old fences are refused, one result is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec
import pytest

from arclog.model.commands import Command, Report, ReportAnswer
from arclog.model.errors import ReportGap, StaleFence, StoreUnavailable
from arclog.model.events import Event
from arclog.model.outcome import Outcome
from arclog.ports.control import Control, WorkerInfo
from arclog.ports.tool import TaskContext
from arclog.testing.faults import forever
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.playbooks import Drawn, by_seed
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER, assert_same, ending, run, seeds

_REPORT = msgspec.json.Decoder(Report)

TWO_STEPS = """
metadata: {name: two}
workflow:
  - step: one
    tool:
      - {name: a, kind: act, returns: {n: 1}}
      - {name: b, kind: act, returns: {n: 2}, takes: 3}
    next: {arcs: [{step: two}]}
  - step: two
    tool: {kind: act, returns: {n: "{{ one.n + 1 }}"}}
"""


class Around:
    """A control that passes everything on."""

    def __init__(self, below: Control) -> None:
        self.below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)


class Doubling(Around):
    """Every report arrives twice, as over a network that lost the first answer."""

    def __init__(self, below: Control) -> None:
        super().__init__(below)
        self.doubled = 0

    async def report(self, report: Report) -> ReportAnswer:
        copy = _REPORT.decode(msgspec.json.encode(report))
        first = await self.below.report(report)
        second = await self.below.report(copy)
        assert second.accepted == first.accepted == report.n
        assert second.commands == first.commands
        self.doubled += 1
        return first


async def _logged(drawn: Drawn, around: Any) -> tuple[list[bytes], Any]:
    async with World(drawn.text, settings=EAGER, around=around) as world:
        state = await world.run()
        stored = await world.stored()
        check_log(stored, "random")
        return [msgspec.json.encode(entry.event) for entry in stored], await ending(world, state)


@pytest.mark.parametrize("group", seeds(80, 4, first=30_000), ids=str)
def test_reports_that_arrive_twice_change_nothing(group: range) -> None:
    for seed in group:
        drawn = by_seed(seed)
        log, expected = run(drawn, _logged(drawn, None))
        doubled, ending_of_doubled = run(drawn, _logged(drawn, Doubling))
        assert_same(drawn, expected, ending_of_doubled)
        if not drawn.branching and not drawn.side_by_side:
            assert doubled == log


async def _claimed(world: World, name: str = "by-hand") -> Command:
    life = world.begin_life()
    await world.start()
    (command,) = await life.control.claim(WorkerInfo(name, ("act", "peek", "noop")), 1)
    return command


#: the tasks of TWO_STEPS
TASKS = {"one": ("a", "b"), "two": ("two_task",)}


def _report(world: World, command: Command, n: int, *kinds: str, fence: int = 0, wants: int = 0) -> Report:
    """A step that is done has run its tasks."""
    now = world.clock.now()
    events: list[Event] = []
    for kind in kinds:
        place: dict[str, Any] = {"step": command.step, "run": command.run}
        for task in TASKS[command.step] if kind == "step.done" else ():
            events.append(Event("task.started", now, **place, task=task, task_run=1))
            outcome = {"outcome": {"status": "ok", "result": {"n": 1}}}
            events.append(Event("task.done", now, **place, task=task, task_run=1, payload=outcome))
        events.append(Event(type=kind, at=now, **place))
    return Report("by-hand", command.execution_id, command.command_id, fence or command.fence, n, events, wants)


def test_a_gap_is_refused_with_the_expected_number() -> None:
    async def main() -> None:
        async with World(TWO_STEPS) as world:
            command = await _claimed(world)
            with pytest.raises(ReportGap) as gap:
                await world.current_life.control.report(_report(world, command, 2, "step.started"))
            assert gap.value.expected == 1
            await world.current_life.control.report(_report(world, command, 1, "step.started"))
            with pytest.raises(ReportGap) as gap:
                await world.current_life.control.report(_report(world, command, 3, "step.done"))
            assert gap.value.expected == 2
            assert [event.type for event in await world.events()][-1] == "step.started"

    run_virtually(main())


def test_an_old_fence_is_refused_and_the_new_holder_is_not_disturbed() -> None:
    async def main() -> None:
        async with World(TWO_STEPS) as world:
            command = await _claimed(world)
            control = world.current_life.control
            await control.report(_report(world, command, 1, "step.started"))
            (record,) = await world.store.commands(world.execution_id)
            await control.end_lease(record)
            with pytest.raises(StaleFence):
                await control.report(_report(world, command, 2, "step.done"))
            (again,) = await control.claim(WorkerInfo("other", ("act", "peek", "noop")), 1)
            assert (again.command_id, again.fence, again.started) == (command.command_id, 2, True)
            with pytest.raises(StaleFence):
                await control.report(_report(world, command, 2, "step.done"))
            answer = await control.report(_report(world, again, 1, "step.done", wants=1))
            assert [command.step for command in answer.commands] == ["two"]
            # The first holder hears that it is over, and is given nothing.
            late = await control.report(_report(world, command, 2, "step.done", wants=1))
            assert late.closed
            assert late.commands == []
            assert await control.heartbeat("by-hand", [(command.command_id, command.fence)]) == [command.command_id]

    run_virtually(main())


def test_the_last_report_answered_twice_grants_the_same_command_once() -> None:
    async def main() -> None:
        async with World(TWO_STEPS) as world:
            command = await _claimed(world)
            control = world.current_life.control
            await control.report(_report(world, command, 1, "step.started"))
            first = await control.report(_report(world, command, 2, "step.done", wants=3))
            second = await control.report(_report(world, command, 2, "step.done", wants=3))
            assert first.commands == second.commands != []
            assert await control.claim(WorkerInfo("other", ("act",)), 5) == []
            types = [event.type for event in await world.events()]
            assert types.count("step.done") == 1

    run_virtually(main())


def test_the_last_report_answered_twice_says_the_same() -> None:
    """Else ReportStream takes the repeated answer for a lost lease and throws the granted commands away."""

    async def main() -> None:
        async with World(TWO_STEPS) as world:
            command = await _claimed(world)
            control = world.current_life.control
            await control.report(_report(world, command, 1, "step.started"))
            first = await control.report(_report(world, command, 2, "step.done", wants=1))
            second = await control.report(_report(world, command, 2, "step.done", wants=1))
            assert second == first

    run_virtually(main())


class CutOff(Around):
    """A worker that the engine does not hear any more, from a moment on."""

    def __init__(self, below: Control) -> None:
        super().__init__(below)
        self.cut = False

    async def claim(self, worker: WorkerInfo, limit: int, wait_s: float = 0.0) -> list[Command]:
        claimed = await self.below.claim(worker, limit, wait_s)
        if self.cut:
            await forever()
        return claimed

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        if self.cut:
            raise StoreUnavailable("no route to the engine")
        return await self.below.heartbeat(worker_id, held)


def test_two_workers_after_a_lost_lease_one_result_is_accepted() -> None:
    """Worker A is cut off in the middle of a task; it stops by itself before its lease ends, and B does it again."""
    stopped_at: list[float] = []
    overlap: list[str] = []
    running: set[str] = set()

    async def main() -> None:
        async def hook(call: Call, context: TaskContext) -> Outcome | None:
            if call.task != "b":
                return None
            overlap.extend(running)
            running.add(call.key)
            try:
                if len([call for call in world.ledger.calls if call.task == "b"]) == 1:
                    cut.cut = True
                    await asyncio.sleep(3600)
            except asyncio.CancelledError:
                stopped_at.append(world.clock.monotonic())
                raise
            finally:
                running.discard(call.key)
            return None

        world = World(TWO_STEPS, hook=hook)
        async with world:
            life = world.begin_life()
            await world.start()
            cut = CutOff(cast("Control", life.control))
            a = life.start_worker("A", cast("Control", cut))
            a.info = msgspec.structs.replace(a.info, kinds=("act",))
            await asyncio.sleep(1)
            life.start_worker("B")
            life.start_sweeper()
            await life.api.ended(str(world.execution_id))
            stored = await world.stored()
            check_log(stored, "two")
            ends = [entry.event for entry in stored if entry.event.type == "task.done" and entry.event.task == "b"]
            assert len(ends) == 1
            assert [call.task for call in world.ledger.calls] == ["a", "b", "b", "two_task"]
            claimed = next(entry.event for entry in stored if entry.event.type == "command.claimed")
            assert (claimed.worker_id, claimed.fence) == ("B", 2)
            assert (await world.state()).results["two"]["result"] == {"n": 3}

    run_virtually(main())
    assert stopped_at
    assert stopped_at[0] < 30, "A goes on after its lease has ended"
    assert not overlap, "two workers did the same task at the same time"


def test_heartbeats_keep_a_long_task() -> None:
    async def main() -> None:
        text = TWO_STEPS.replace("takes: 3", "takes: 900")
        async with World(text) as world:
            state = await world.run()
            assert state.status == "COMPLETED"
            assert all(times == 1 for times in world.ledger.times().values())
            assert "command.issued" not in [event.type for event in await world.events()]

    run_virtually(main())


class SlowAnswer(Around):
    """The answer to a last report is on its way while a heartbeat asks for the same command."""

    def __init__(self, below: Control) -> None:
        super().__init__(below)
        self.lost: list[int] = []

    async def report(self, report: Report) -> ReportAnswer:
        answer = await self.below.report(report)
        if report.wants and not self.lost:
            await asyncio.sleep(10)
        return answer

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        lost = await self.below.heartbeat(worker_id, held)
        self.lost += lost
        return lost


def test_a_heartbeat_that_meets_the_last_report_loses_no_work() -> None:
    """The command is closed by then, so it is not held any more; the answer brings the next one and must be heard."""

    async def main() -> None:
        async with World(TWO_STEPS, around=lambda control: cast("Control", SlowAnswer(control))) as world:
            state = await world.run()
            assert state.status == "COMPLETED"
            assert "command.issued" not in [event.type for event in await world.events()]

    run_virtually(main())
