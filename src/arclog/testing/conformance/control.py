"""The rules of `arclog.ports.control` as tests. Every control runs them unchanged:

    class TestMyControl(ControlContract):
        @pytest.fixture
        async def ground(self, tmp_path):
            async with ...:
                yield Ground(control, api, lapse)

Needs pytest and pytest-asyncio (`asyncio_mode = "auto"`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from arclog.model.commands import Command, Report, Revocation
from arclog.model.errors import NotFound, ReportGap, RequestRejected, StaleFence
from arclog.model.events import Event
from arclog.ports.control import Control, LoopItem, WorkerInfo
from arclog.ports.storage.task_logs import LogLine
from arclog.ports.views.api import Api, ExecuteRequest, SignalRequest

# ── base ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Shared parts of the rules: a control, the runs whose commands it delivers, and short ways to act as a worker.

WORKER = WorkerInfo("one", ("noop",))
OTHER_WORKER = WorkerInfo("two", ("noop",))
GPU = WorkerInfo("gpu", ("noop",), ("gpu",))

STEPS = """
metadata: {name: steps}
workflow:
  - step: first
    tool: {kind: noop, data: 1}
    next: {arcs: [{step: second}]}
  - step: second
    tool: {kind: noop, data: 2}
    next: {arcs: [{step: third}]}
  - step: third
    spec: {pool: gpu}
    tool: {kind: noop, data: 3}
"""
LOOP = """
metadata: {name: loop}
workflow:
  - step: each
    loop: {in: [5, 6, 7], iterator: n}
    tool: {kind: noop, data: "{{ iter.n }}"}
    next: {arcs: [{step: after}]}
  - step: after
    tool: {kind: noop, data: "{{ each.results }}"}
"""


class Ground(NamedTuple):
    control: Control
    #: of the engine behind it
    api: Api
    #: ends the leases of an execution's commands, as if their time were over
    lapse: Callable[[int], Awaitable[None]]

    async def start(self, text: str = STEPS) -> int:
        return int((await self.api.execute(ExecuteRequest(playbook=text))).execution_id)

    async def claimed(self, text: str = STEPS, worker: WorkerInfo = WORKER) -> Command:
        """The first command of a new run."""
        await self.start(text)
        (command,) = await self.control.claim(worker, 1)
        return command

    async def types(self, command: Command) -> list[str]:
        return [event["event_type"] for event in await self.api.events(str(command.execution_id), limit=1000)]


def step_events(command: Command, *types: str) -> list[Event]:
    """Return the events of a step without a loop, whose task returned 1."""
    events = []
    for at, kind in enumerate(types, 1_800_000_000_000_000):
        event = Event(kind, at, step=command.step, run=command.run)
        if kind.startswith("task."):
            event.task, event.task_run = f"{command.step}_task", 1
        if kind == "task.done":
            event.payload = {"outcome": {"status": "ok", "result": 1, "meta": {"attempt": 1}}}
        if kind == "task.failed":
            problem = {"kind": "exception", "message": "no", "code": None, "retryable": False}
            event.payload = {"outcome": {"status": "error", "error": problem, "meta": {"attempt": 1}}}
        events.append(event)
    return events


def reported(command: Command, n: int, *types: str, worker: WorkerInfo = WORKER, wants: int = 0) -> Report:
    events = step_events(command, *types)
    return Report(worker.worker_id, command.execution_id, command.command_id, command.fence, n, events, wants)


WHOLE = ("step.started", "task.started", "task.done", "step.done")


class Rules:
    """Base of all groups of rules: the fixtures."""

    @pytest.fixture
    def ground(self) -> Ground:
        pytest.fail("a subclass of ControlContract gives the fixture `ground`")


# ── claiming ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of held commands: one worker claims a command, keeps it by heartbeats, and gives it back or loses it.

#: A time limit that is never reached, because every awaited event happens at once.
LONG_S = 20.0


class ClaimRules(Rules):
    async def test_a_command_is_one_workers(self, ground: Ground) -> None:
        command = await ground.claimed()
        assert (command.step, command.run, command.fence, command.started) == ("first", 1, 1, False)
        assert await ground.control.claim(OTHER_WORKER, 5) == []

    async def test_a_claim_takes_no_more_than_its_limit(self, ground: Ground) -> None:
        for _ in range(3):
            await ground.start()
        assert len(await ground.control.claim(WORKER, 2)) == 2
        assert len(await ground.control.claim(OTHER_WORKER, 2)) == 1

    async def test_a_claim_waits_for_work(self, ground: Ground) -> None:
        claiming = asyncio.ensure_future(ground.control.claim(WORKER, 1, LONG_S))
        await asyncio.sleep(0)
        execution_id = await ground.start()
        (command,) = await claiming
        assert command.execution_id == execution_id

    async def test_a_claim_without_work_returns_nothing(self, ground: Ground) -> None:
        assert await ground.control.claim(WORKER, 1) == []
        assert await ground.control.claim(WORKER, 1, 0.01) == []

    async def test_a_worker_gets_what_it_knows_and_serves(self, ground: Ground) -> None:
        await ground.start()
        assert await ground.control.claim(replace(WORKER, kinds=("http",)), 1) == []
        assert await ground.control.claim(GPU, 1) == []
        assert await ground.control.claim(replace(WORKER, execution_id=1), 1) == []
        assert len(await ground.control.claim(replace(WORKER, pools=()), 1)) == 1

    async def test_a_worker_is_listed_as_it_last_registered(self, ground: Ground) -> None:
        changes: list[dict[str, Any]] = [{"kinds": ("http",)}, {"pools": ("gpu",)}]
        for change in changes:
            command = await ground.claimed()
            assert await ground.control.claim(replace(WORKER, **change), 1) == []
            assert (await ground.control.report(reported(command, 1, *WHOLE, wants=1))).commands == []
            (following,) = await ground.control.claim(WORKER, 1)
            answer = await ground.control.report(reported(following, 1, *WHOLE, wants=1))
            assert answer.commands == []  # of another pool
            assert len(await ground.control.claim(GPU, 1)) == 1

    async def test_a_heartbeat_reports_lost_commands(self, ground: Ground) -> None:
        command = await ground.claimed()
        held = [(command.command_id, command.fence)]
        assert await ground.control.heartbeat("one", held) == []
        assert await ground.control.heartbeat("two", held) == [command.command_id]
        assert await ground.control.heartbeat("one", [(command.command_id, 2), (1, 1)]) == [command.command_id, 1]
        await ground.lapse(command.execution_id)
        assert await ground.control.heartbeat("one", held) == [command.command_id]

    async def test_returned_commands_go_to_the_next_worker(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.control.report(reported(command, 1, "step.started"))
        await ground.control.give_back("one", command.execution_id, command.command_id, command.fence)
        (again,) = await ground.control.claim(OTHER_WORKER, 1)
        assert (again.command_id, again.fence, again.started) == (command.command_id, 2, True)

    async def test_a_lost_lease_goes_to_the_next(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.lapse(command.execution_id)
        (again,) = await ground.control.claim(OTHER_WORKER, 1)
        assert (again.command_id, again.fence) == (command.command_id, 2)

    async def test_workers_are_notified_that_their_run_was_cancelled(self, ground: Ground) -> None:
        command = await ground.claimed()
        waiting = asyncio.ensure_future(ground.control.revoked("one", LONG_S))
        other = asyncio.ensure_future(ground.control.revoked("two", LONG_S))
        await asyncio.sleep(0)
        await ground.api.cancel(str(command.execution_id), "enough")
        assert await waiting == [Revocation(command.command_id)]
        other.cancel()
        assert await ground.control.revoked("one", 0.0) == []

    async def test_events_between_two_requests_are_reported_with_the_second(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.api.cancel(str(command.execution_id), "enough")
        assert await ground.control.revoked("two", 0.01) == []
        assert await ground.control.revoked("one", LONG_S) == [Revocation(command.command_id)]

    async def test_a_pause_reaches_the_worker_and_is_confirmed(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.api.signal(str(command.execution_id), SignalRequest("PAUSE"))
        assert await ground.control.revoked("one", LONG_S) == [Revocation(command.command_id, pause=True)]
        assert (await ground.control.report(reported(command, 1, "step.started"))).pause
        await ground.control.give_back("one", command.execution_id, command.command_id, command.fence)
        assert await ground.control.claim(OTHER_WORKER, 1) == []
        await ground.api.signal(str(command.execution_id), SignalRequest("RESUME"))
        (again,) = await ground.control.claim(OTHER_WORKER, 1)
        assert again.command_id == command.command_id


# ── reporting ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules of reports, an ordered stream for a held command that is durable when answered, and of the data that workers read.


class ReportRules(Rules):
    async def test_a_whole_run(self, ground: Ground) -> None:
        command = await ground.claimed()
        answer = await ground.control.report(reported(command, 1, *WHOLE, wants=1))
        assert (answer.accepted, answer.closed, [command.step for command in answer.commands]) == (1, False, ["second"])
        (second,) = answer.commands
        answer = await ground.control.report(reported(second, 1, *WHOLE, wants=1))
        assert answer.commands == [], "the third step is another pool's"
        (third,) = await ground.control.claim(GPU, 1)
        await ground.control.report(reported(third, 1, *WHOLE, worker=GPU))
        assert await ground.api.ended(str(command.execution_id), timeout_s=30)
        assert (await ground.api.summary(str(command.execution_id))).state == "COMPLETED"

    async def test_an_acknowledged_append_is_in_the_log(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.control.report(reported(command, 1, "step.started", "task.started"))
        assert (await ground.types(command))[-2:] == ["step.started", "task.started"]

    async def test_a_report_that_comes_again_is_answered_as_before(self, ground: Ground) -> None:
        command = await ground.claimed()
        first = await ground.control.report(reported(command, 1, "step.started"))
        assert await ground.control.report(reported(command, 1, "step.started")) == first
        last = await ground.control.report(reported(command, 2, *WHOLE[1:], wants=1))
        again = await ground.control.report(reported(command, 2, *WHOLE[1:], wants=1))
        assert (
            [command.command_id for command in again.commands]
            == [command.command_id for command in last.commands]
            != []
        )
        assert (await ground.types(command)).count("step.done") == 1

    async def test_a_gap_names_what_is_expected(self, ground: Ground) -> None:
        command = await ground.claimed()
        with pytest.raises(ReportGap) as gap:
            await ground.control.report(reported(command, 2, "step.started"))
        assert gap.value.expected == 1
        await ground.control.report(reported(command, 1, "step.started"))
        with pytest.raises(ReportGap) as gap:
            await ground.control.report(reported(command, 3, "step.done"))
        assert gap.value.expected == 2

    async def test_an_old_fence_is_refused(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.lapse(command.execution_id)
        with pytest.raises(StaleFence):
            await ground.control.report(reported(command, 1, *WHOLE))
        (again,) = await ground.control.claim(OTHER_WORKER, 1)
        with pytest.raises(StaleFence):
            await ground.control.report(reported(command, 1, *WHOLE))
        assert "step.started" not in await ground.types(command)
        answer = await ground.control.report(reported(again, 1, *WHOLE, worker=OTHER_WORKER))
        assert answer.accepted == 1

    async def test_a_stale_hand_back_changes_nothing(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.lapse(command.execution_id)
        (again,) = await ground.control.claim(WORKER, 1)
        await ground.control.give_back("one", command.execution_id, command.command_id, command.fence)
        assert (await ground.control.report(reported(again, 1, *WHOLE))).accepted == 1

    async def test_a_report_for_a_cancelled_run_is_closed(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.api.cancel(str(command.execution_id), "enough")
        answer = await ground.control.report(reported(command, 1, *WHOLE))
        assert answer.closed
        assert "step.started" not in await ground.types(command)

    @pytest.mark.parametrize(
        "types", [("playbook.finished",), ("step.scheduled",), ("step.started", "execution.cancelled"), ()]
    )
    async def test_a_worker_reports_only_events_of_workers(self, ground: Ground, types: tuple[str, ...]) -> None:
        command = await ground.claimed()
        before = await ground.types(command)
        with pytest.raises(RequestRejected):
            await ground.control.report(reported(command, 1, *types))
        assert await ground.types(command) == [*before, "command.refused"], "that is recorded, and nothing else"

    @pytest.mark.parametrize(
        "types",
        [
            pytest.param(("step.started", "step.done"), id="no task has run"),
            pytest.param(("step.started", "task.done"), id="a task that has not started"),
            pytest.param(("step.started", "task.started", "step.done"), id="a task that has not ended"),
            pytest.param(("step.started", "task.started", "task.done", "task.done"), id="ended twice"),
            pytest.param(("step.started", "task.started", "task.done", "task.failed"), id="failed after its end"),
            pytest.param(("step.started", "task.started", "task.started"), id="started twice"),
        ],
    )
    async def test_a_report_follows_the_transitions(self, ground: Ground, types: tuple[str, ...]) -> None:
        command = await ground.claimed()
        before = await ground.types(command)
        with pytest.raises(RequestRejected):
            await ground.control.report(reported(command, 1, *types))
        assert await ground.types(command) == [*before, "command.refused"]
        assert (await ground.control.report(reported(command, 1, *WHOLE))).accepted == 1

    async def test_the_plan_of_a_command(self, ground: Ground) -> None:
        command = await ground.claimed()
        program = await ground.control.program(command.plan)
        assert program.digest == command.plan
        assert list(program.steps) == ["first", "second", "third"]
        with pytest.raises(NotFound):
            await ground.control.program("0" * 64)

    async def test_the_results_of_a_loop_page_by_page(self, ground: Ground) -> None:
        command = await ground.claimed(LOOP)
        events = [event for index in range(3) for event in iteration(command, index)]
        events = [Event("step.started", 1, step="each", run=1), *events]
        report = reported(command, 1)
        report.events = events
        await ground.control.report(report)
        loop_items: list[LoopItem] = []
        after: int | None = 0
        while after is not None:
            page = await ground.control.loop_results(command.execution_id, "each", 1, after, 4)
            loop_items += page.items
            after = page.after
        assert [(item.path, item.data) for item in loop_items] == [((0,), 0), ((1,), 10), ((2,), 20)]

    async def test_log_lines_are_kept(self, ground: Ground) -> None:
        command = await ground.claimed()
        line = LogLine(command.execution_id, 5, "first", 1, "first_task", 1, 1, "stdout", "größer\x00")
        await ground.control.write_logs([line])
        lines = await ground.api.logs(str(command.execution_id))
        assert [line["text"] for line in lines] == ["größer\x00"]


def iteration(command: Command, index: int) -> list[Event]:
    """Return the events of one iteration whose task returned ten times its index."""
    place: dict[str, Any] = {"step": command.step, "run": command.run, "iteration": (index,)}
    task: dict[str, Any] = {**place, "task": "each_task", "task_run": 1}
    outcome = {"status": "ok", "result": index * 10, "meta": {"attempt": 1}}
    return [
        Event("loop.iteration.started", 1, **place),
        Event("task.started", 1, **task),
        Event("task.done", 1, **task, payload={"outcome": outcome}),
        Event("loop.iteration.done", 1, **place),
    ]


# ── control ───────────────────────────────────────────────────────────────────────────────────────────────────────────

__all__ = ["ControlContract", "Ground"]


class ControlContract(ClaimRules, ReportRules):
    """All rules. A subclass gives the fixture `ground`."""
