"""What a worker may report: only the next piece, only for a command that it holds, only events that fit its place.

A report is checked whole before any of it is applied, so a refused one changes nothing.
"""

from __future__ import annotations

from arclog.core.inputs import Refused, WorkReported
from arclog.core.state import State, StepRun
from arclog.model.events import Event
from arclog.plan.program import Program, StepProgram

#: Event types that a worker may send for a command that it holds.
WORKER_TYPES = frozenset({
    "step.started", "step.done", "step.failed",
    "task.started", "task.attempt.started", "task.attempt.done", "task.attempt.failed", "task.done", "task.failed",
    "loop.iteration.started", "loop.iteration.done", "loop.iteration.failed",
    "policy.task.evaluated", "result.stored", "result.manifest.updated",
})  # fmt: skip
TASK_TYPES = frozenset(name for name in WORKER_TYPES if name.startswith(("task.", "policy.", "result.")))

#: A larger report must be sent in pieces; ids of one transaction come from one run of 4,096.
MAX_REPORT_EVENTS = 1000


def check_report(program: Program, state: State, report: WorkReported) -> Refused | None:
    """Why the report is refused, or None."""
    command = state.commands.get(report.command_id)
    if command is None:
        return Refused("closed", f"command {report.command_id} is over")
    if report.fence != command.fence:
        return Refused(
            "stale", f"command {report.command_id} has fence {command.fence}, the report came with {report.fence}"
        )
    if report.n <= command.report:
        return Refused("duplicate", f"report {report.n} was accepted before", command.report + 1)
    if report.n > command.report + 1:
        return Refused("gap", f"report {report.n} came before {command.report + 1}", command.report + 1)
    if not report.events or len(report.events) > MAX_REPORT_EVENTS:
        return Refused("malformed", f"a report has 1 to {MAX_REPORT_EVENTS} events, not {len(report.events)}")
    step_run = state.run_of(command.step, command.run)
    if step_run is None:
        return Refused("closed", f"step {command.step} run {command.run} is over")
    place = _Place(program.steps[command.step], step_run)
    for event in report.events:
        problem = place.take(event)
        if problem:
            return Refused("malformed", f"{event.type}: {problem}")
    return None


class _Place:
    """Follows a report through the shape of a step run: started once, tasks inside a pipeline, one end."""

    def __init__(self, step: StepProgram, step_run: StepRun) -> None:
        self.step = step
        self.run = step_run.run
        self.started = step_run.started
        self.loop = step_run.loop
        self.index = step_run.loop.index if step_run.loop is not None else 0
        self.inside = step_run.pipeline is not None
        self.over = False

    def take(self, event: Event) -> str:
        """What is wrong with the next event, '' when nothing is."""
        if event.type not in WORKER_TYPES:
            return "is not a worker's to emit"
        if event.step != self.step.name or event.run != self.run:
            return f"belongs to step {event.step} run {event.run}, the command to step {self.step.name} run {self.run}"
        if self.over:
            return "comes after the end of the step run"
        if event.type == "step.started":
            if self.started:
                return "the step run has started already"
            self.started = True
            self.inside = self.loop is None
            return ""
        if not self.started:
            return "comes before step.started"
        if event.type in TASK_TYPES:
            return self._take_task(event)
        if event.type.startswith("loop."):
            return self._take_iteration(event)
        if self.loop is not None:
            return "the server ends a loop step"
        self.over = True
        return ""

    def _take_task(self, event: Event) -> str:
        if not self.inside:
            return "comes outside an iteration"
        if event.task not in self.step.index:
            return f"step {self.step.name} has no task {event.task!r}"
        return ""

    def _take_iteration(self, event: Event) -> str:
        if self.loop is None:
            return f"step {self.step.name} is no loop"
        if event.iteration != (self.index,):
            return f"iteration {event.iteration} is not the next one, {self.index}"
        starts = event.type == "loop.iteration.started"
        if starts == self.inside:
            return "the iteration is open already" if starts else "the iteration has not started"
        self.inside = starts
        if not starts:
            self.index += 1
            broken = event.type == "loop.iteration.failed" and self.step.plan.failure_mode == "fail_fast"
            self.over = broken or self.index >= self.loop.total
        elif self.index >= self.loop.total:
            return "the loop has no such item"
        return ""
