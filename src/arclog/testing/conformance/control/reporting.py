"""Rules of reports: an ordered stream for a command that is held, durable when answered; and what a worker reads."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.model.commands import Command
from arclog.model.errors import NotFound, ReportGap, RequestRejected, StaleFence
from arclog.model.events import Event
from arclog.ports.control import LoopItem
from arclog.ports.storage.task_logs import LogLine
from arclog.testing.conformance.control.base import GPU, LOOP, ONE, TWO, WHOLE, Ground, Rules, reported


class ReportRules(Rules):
    async def test_a_whole_run(self, ground: Ground) -> None:
        command = await ground.claimed()
        answer = await ground.control.report(reported(command, 1, *WHOLE, wants=1))
        assert (answer.accepted, answer.closed, [one.step for one in answer.commands]) == (1, False, ["second"])
        (second,) = answer.commands
        answer = await ground.control.report(reported(second, 1, *WHOLE, wants=1))
        assert answer.commands == [], "the third step is another pool's"
        (third,) = await ground.control.claim(GPU, 1)
        await ground.control.report(reported(third, 1, *WHOLE, worker=GPU))
        assert await ground.api.ended(str(command.execution_id), timeout_s=30)
        assert (await ground.api.summary(str(command.execution_id))).state == "COMPLETED"

    async def test_what_is_answered_is_in_the_log(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.control.report(reported(command, 1, "step.started", "task.started"))
        assert (await ground.types(command))[-2:] == ["step.started", "task.started"]

    async def test_a_report_that_comes_again_is_answered_as_before(self, ground: Ground) -> None:
        command = await ground.claimed()
        first = await ground.control.report(reported(command, 1, "step.started"))
        assert await ground.control.report(reported(command, 1, "step.started")) == first
        last = await ground.control.report(reported(command, 2, *WHOLE[1:], wants=1))
        again = await ground.control.report(reported(command, 2, *WHOLE[1:], wants=1))
        assert [one.command_id for one in again.commands] == [one.command_id for one in last.commands] != []
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
        (again,) = await ground.control.claim(TWO, 1)
        with pytest.raises(StaleFence):
            await ground.control.report(reported(command, 1, *WHOLE))
        assert "step.started" not in await ground.types(command)
        answer = await ground.control.report(reported(again, 1, *WHOLE, worker=TWO))
        assert answer.accepted == 1

    async def test_a_stale_hand_back_changes_nothing(self, ground: Ground) -> None:
        command = await ground.claimed()
        await ground.lapse(command.execution_id)
        (again,) = await ground.control.claim(ONE, 1)
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
    async def test_a_worker_says_only_what_is_a_workers(self, ground: Ground, types: tuple[str, ...]) -> None:
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
        found: list[LoopItem] = []
        after: int | None = 0
        while after is not None:
            page = await ground.control.loop_results(command.execution_id, "each", 1, after, 4)
            found += page.items
            after = page.after
        assert [(item.path, item.data) for item in found] == [((0,), 0), ((1,), 10), ((2,), 20)]

    async def test_log_lines_are_kept(self, ground: Ground) -> None:
        command = await ground.claimed()
        line = LogLine(command.execution_id, 5, "first", 1, "first_task", 1, 1, "stdout", "größer\x00")
        await ground.control.write_logs([line])
        kept = await ground.api.logs(str(command.execution_id))
        assert [one["text"] for one in kept] == ["größer\x00"]


def iteration(command: Command, index: int) -> list[Event]:
    """One iteration whose task gave ten times its index."""
    place: dict[str, Any] = {"step": command.step, "run": command.run, "iteration": (index,)}
    task: dict[str, Any] = {**place, "task": "each_task", "task_run": 1}
    outcome = {"status": "ok", "result": index * 10, "meta": {"attempt": 1}}
    return [
        Event("loop.iteration.started", 1, **place),
        Event("task.started", 1, **task),
        Event("task.done", 1, **task, payload={"outcome": outcome}),
        Event("loop.iteration.done", 1, **place),
    ]
