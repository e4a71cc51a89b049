"""The law of closed logs: everything that a log opens is closed exactly once and in order, in the log and in each
dialect.

| opened by | closed by |
| --- | --- |
| playbook.started | playbook.finished or execution.cancelled |
| workflow.started | workflow.finished |
| step.scheduled | step.done or step.failed |
| loop.started | loop.done; else the step.failed of its step run, of an inner loop the loop.iteration.failed that it runs in |
| loop.iteration.started | loop.iteration.done or loop.iteration.failed |
| task.started | task.done or task.failed |
| task.attempt.started | task.attempt.done, task.attempt.failed, or the end of its task run |
| step.scheduled, command.issued (of a new command) | command.completed, command.failed, command.cancelled, or the end of its items |
| a token, by workflow.started, next.evaluated or RETRY_STEP | the event that names it in `tokens`, or its own next.evaluated when absorbed |

Inner items close before outer ones. A step run is routed once (next.evaluated), unless the end of the run closed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from arclog.model.events import TERMINAL, Event, is_closing

Path = tuple[int, ...]
#: step, run
RunKey = tuple[str, int]

_CAN_CLOSE = frozenset({"task.failed", "task.attempt.failed", "loop.iteration.failed", "step.failed"})
#: may follow the end of a run
_AFTERWARDS = frozenset({"playbook.processed", "signal.received"})


class _StepRun:
    """The open items of a step run."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.started = False
        #: task run → its open attempt; 0 if no attempt was recorded
        self.tasks: dict[tuple[Path | None, str, int], int] = {}
        self.iterations: set[Path] = set()
        #: by the path of the iteration that they run in; () is the step run's own
        self.loops: set[Path] = set()
        #: how often each task, iteration and loop was opened: once
        self.opened: Counter[Any] = Counter()

    def open(self, key: Any) -> None:
        self.opened[key] += 1
        assert self.opened[key] == 1, f"{self.subject}: {key} was opened twice"

    def inside(self, path: Path) -> list[Any]:
        """Return the open items below an iteration, or below the whole loop."""
        return [key for key in self.tasks if (key[0] or ())[: len(path)] == path] + [
            iteration for iteration in self.iterations if iteration != path and iteration[: len(path)] == path
        ]


class _Walk:
    """Follows a log from its beginning to its end."""

    def __init__(self) -> None:
        self.runs: dict[RunKey, _StepRun] = {}
        #: ended, to be routed
        self.unrouted: set[RunKey] = set()
        self.commands: dict[int, RunKey] = {}
        self.playbook = self.workflow = self.ended = False
        self.made: set[int] = set()
        self.taken: set[int] = set()

    def take(self, event: Event) -> None:
        if self.ended:
            assert event.type in _AFTERWARDS, f"{event.type} after the end of the run"
            return
        if event.type in _CAN_CLOSE and is_closing(event):
            _check_closing(event)
        rule = _RULES.get(event.type)
        if rule is not None:
            rule(self, event)
        for token in event.payload.get("tokens") or ():
            self.end_token(token)

    # -- the run ------------------------------------------------------------------------------------------------------

    def playbook_started(self, _: Event) -> None:
        self.playbook = True

    def workflow_started(self, event: Event) -> None:
        self.workflow = True
        self.made.add(event.payload["token"])

    def workflow_finished(self, _: Event) -> None:
        assert self.workflow, "workflow.finished of a workflow that is not open"
        assert not self.runs, f"open when the workflow ended: {[step_run.subject for step_run in self.runs.values()]}"
        assert not self.unrouted, f"never routed: {self.unrouted}"
        assert not self.commands, f"commands open when the workflow ended: {self.commands}"
        self.workflow = False

    def terminal(self, event: Event) -> None:
        assert not self.workflow, f"{event.type} before workflow.finished"
        assert self.made == self.taken, f"tokens left over: {self.made - self.taken}"
        self.ended = True

    def end_token(self, token: int) -> None:
        assert token in self.made, f"token {token} is taken and was never made"
        assert token not in self.taken, f"token {token} is taken twice"
        self.taken.add(token)

    def signal(self, event: Event) -> None:
        if "token" in event.payload:
            self.made.add(event.payload["token"])

    # -- step runs ----------------------------------------------------------------------------------------------------

    def step_scheduled(self, event: Event) -> None:
        key = (event.step, event.run)
        assert self.workflow, "a step is scheduled outside the workflow"
        assert key not in self.runs, f"step {event.step} run {event.run} is scheduled twice"
        self.runs[key] = _StepRun(f"step {event.step} run {event.run}")
        if event.command_id:
            self.commands[event.command_id] = key

    def step_started(self, event: Event) -> None:
        step_run = self.of(event)
        assert not step_run.started, f"{step_run.subject} is started twice"
        step_run.started = True

    def step_ended(self, event: Event) -> None:
        step_run = self.of(event)
        still_open = step_run.inside(())
        assert not still_open, f"{step_run.subject} ended while {still_open} was open"
        if event.type == "step.done":
            assert not step_run.loops, f"{step_run.subject}: step.done before loop.done"
        elif step_run.loops:
            assert "loop" in event.payload, f"{step_run.subject}: step.failed ends a loop without its counts"
        key = (event.step, event.run)
        del self.runs[key]
        self.commands = {command: of for command, of in self.commands.items() if of != key}
        if not is_closing(event):
            self.unrouted.add(key)

    def routed(self, event: Event) -> None:
        key = (event.step, event.run)
        assert key in self.unrouted, (
            f"next.evaluated of step {event.step} run {event.run}, which has not ended by itself"
        )
        self.unrouted.discard(key)
        for choice in event.payload["selected"]:
            self.made.add(choice["token"])
            if choice.get("absorbed"):
                self.end_token(choice["token"])

    def of(self, event: Event) -> _StepRun:
        step_run = self.runs.get((event.step, event.run))
        assert step_run is not None, f"{event.type} of step {event.step} run {event.run}, which is not open"
        return step_run

    # -- loops --------------------------------------------------------------------------------------------------------

    def loop_started(self, event: Event) -> None:
        step_run, path = self.of(event), event.iteration or ()
        assert not path or path in step_run.iterations, (
            f"{step_run.subject}: a loop begins in {path}, which is not open"
        )
        step_run.open(("loop", path))
        step_run.loops.add(path)

    def loop_done(self, event: Event) -> None:
        step_run, path = self.of(event), event.iteration or ()
        assert path in step_run.loops, f"{step_run.subject}: loop.done at {path}, where no loop is open"
        still_open = step_run.inside(path)
        assert not still_open, f"{step_run.subject}: loop.done at {path} while {still_open} was open"
        step_run.loops.discard(path)

    def iteration_started(self, event: Event) -> None:
        step_run, path = self.of(event), event.iteration or ()
        assert path[:-1] in step_run.loops, f"{step_run.subject}: iteration {path} begins outside a loop"
        step_run.open(("iteration", path))
        step_run.iterations.add(path)

    def iteration_ended(self, event: Event) -> None:
        step_run, path = self.of(event), event.iteration or ()
        assert path in step_run.iterations, f"{step_run.subject}: {event.type} of {path}, which is not open"
        still_open = step_run.inside(path)
        assert not still_open, f"{step_run.subject}: iteration {path} ended while {still_open} was open"
        if path in step_run.loops:
            assert event.type == "loop.iteration.failed", f"{step_run.subject}: {path} is done before its inner loop"
            step_run.loops.discard(path)
        step_run.iterations.discard(path)

    # -- tasks --------------------------------------------------------------------------------------------------------

    def task_started(self, event: Event) -> None:
        step_run, key = self.of(event), _task(event)
        inside = event.iteration is None or event.iteration in step_run.iterations
        assert inside, f"{step_run.subject}: {key} begins outside its iteration"
        step_run.open(key)
        step_run.tasks[key] = 0

    def attempt_started(self, event: Event) -> None:
        step_run, key = self.of(event), _task(event)
        assert step_run.tasks.get(key) == 0, (
            f"{step_run.subject}: attempt {event.attempt} of {key} begins inside another"
        )
        step_run.tasks[key] = event.attempt

    def attempt_ended(self, event: Event) -> None:
        step_run, key = self.of(event), _task(event)
        assert step_run.tasks.get(key) in (0, event.attempt), f"{step_run.subject}: the end of another attempt of {key}"
        step_run.tasks[key] = 0

    def task_ended(self, event: Event) -> None:
        step_run, key = self.of(event), _task(event)
        assert key in step_run.tasks, f"{step_run.subject}: {event.type} of {key}, which is not open"
        del step_run.tasks[key]

    # -- commands -----------------------------------------------------------------------------------------------------

    def command_issued(self, event: Event) -> None:
        self.commands[event.command_id] = (event.step, event.run)

    def command_ended(self, event: Event) -> None:
        assert event.command_id in self.commands, f"{event.type} of command {event.command_id}, which is not open"
        del self.commands[event.command_id]

    def manifest(self, event: Event) -> None:
        if "items" in event.payload:  # the command has read the items of the loop, which was its only task
            key = (event.step, event.run)
            self.commands = {command: of for command, of in self.commands.items() if of != key}


def _task(event: Event) -> tuple[Path | None, str, int]:
    return event.iteration, event.task, event.task_run


def _check_closing(event: Event) -> None:
    problem = event.payload.get("error") or (event.payload.get("outcome") or {}).get("error") or {}
    subject = f"{event.type} of step {event.step} run {event.run}"
    assert problem.get("kind") == "cancelled", f"{subject} is closed with kind {problem.get('kind')}"
    assert problem.get("message"), f"{subject} is closed without a message"


_RULES: dict[str, Callable[[_Walk, Event], None]] = {
    "playbook.started": _Walk.playbook_started,
    "workflow.started": _Walk.workflow_started,
    "workflow.finished": _Walk.workflow_finished,
    "signal.received": _Walk.signal,
    "step.scheduled": _Walk.step_scheduled,
    "step.started": _Walk.step_started,
    "step.done": _Walk.step_ended,
    "step.failed": _Walk.step_ended,
    "next.evaluated": _Walk.routed,
    "loop.started": _Walk.loop_started,
    "loop.done": _Walk.loop_done,
    "loop.iteration.started": _Walk.iteration_started,
    "loop.iteration.done": _Walk.iteration_ended,
    "loop.iteration.failed": _Walk.iteration_ended,
    "task.started": _Walk.task_started,
    "task.attempt.started": _Walk.attempt_started,
    "task.attempt.done": _Walk.attempt_ended,
    "task.attempt.failed": _Walk.attempt_ended,
    "task.done": _Walk.task_ended,
    "task.failed": _Walk.task_ended,
    "command.issued": _Walk.command_issued,
    "command.completed": _Walk.command_ended,
    "command.failed": _Walk.command_ended,
    "command.cancelled": _Walk.command_ended,
    "result.manifest.updated": _Walk.manifest,
    **dict.fromkeys(TERMINAL, _Walk.terminal),
}


def check_events(events: Sequence[Event]) -> None:
    """Check the stored events of one run; of one that has not ended, the events so far."""
    walk = _Walk()
    for event in events:
        if not event.informative:
            walk.take(event)


# -- dialects ---------------------------------------------------------------------------------------------------------

Record = Mapping[str, Any]

#: name → the kind of thing that it opens, in dialects with status layers; a dialect need not use every name
_OPENS = {
    "playbook.initialized": "playbook", "playbook_started": "playbook",
    "workflow.initialized": "workflow", "workflow_started": "workflow",
    "step.scheduled": "step", "step_scheduled": "step",
    "task.started": "task", "tool.started": "task",
    "loop.iteration.started": "iteration", "iteration_started": "iteration",
}  # fmt: skip
_CLOSES = {
    "playbook.completed": "playbook", "playbook.failed": "playbook", "execution.cancelled": "playbook",
    "playbook_completed": "playbook", "playbook_failed": "playbook", "execution_cancelled": "playbook",
    "workflow.completed": "workflow", "workflow.failed": "workflow",
    "workflow_completed": "workflow", "workflow_failed": "workflow",
    "step.exit": "step", "step_completed": "step", "step_failed": "step",
    "call.done": "task", "call.error": "task", "tool.processed": "task",
    "loop.iteration.done": "iteration", "loop.iteration.failed": "iteration",
    "iteration_completed": "iteration", "iteration_failed": "iteration",
}  # fmt: skip
_NAMED_BY = {
    "playbook": (),
    "workflow": (),
    "step": ("step_run_id",),
    "task": ("step_run_id", "iteration_id", "task_run_id"),
    "iteration": ("step_run_id", "iteration_id"),
}


def check_layers(dialect: str, records: Sequence[Record]) -> None:
    """Check the records of a dialect with status layers: lifecycle, wire, legacy."""
    open_now: Counter[Any] = Counter()
    openings: Counter[Any] = Counter()
    for record in records:
        name = record["event_type"]
        if record.get("informative"):
            continue
        where = {**record, **(record.get("meta") or {})}
        for table, change in ((_OPENS, 1), (_CLOSES, -1)):
            layer = table.get(name)
            if layer is not None:
                key = (layer, *(where.get(part) for part in _NAMED_BY[layer]))
                openings[key] += change == 1
                open_now[key] += change
                # A run that is refused, or cancelled while it is pending, ends without having begun.
                assert open_now[key] in (0, 1) or layer == "playbook", f"{dialect}: {name} of {key} out of order"
                assert openings[key] <= 1, f"{dialect}: {key} was opened twice"
    still_open = [key for key, count in open_now.items() if count > 0]
    assert not still_open, f"{dialect}: never closed: {still_open}"


def check_run_records(records: Sequence[Record]) -> None:
    """Check RunEventRecords: each StepStarted has one end, before the next attempt and before the run's end."""
    open_now: dict[str, int] = {}
    for record in records:
        kind, step, attempt = record["eventType"], record.get("stepId"), record["logicalAttemptId"]
        if kind == "StepStarted":
            assert step is not None
            assert step not in open_now, f"run: {step} ({attempt}) starts while {open_now.get(step)} is open"
            open_now[step] = attempt
        elif step is not None:
            assert open_now.pop(step, 0) == attempt, f"run: {kind} of {step} ({attempt}) without its StepStarted"
            if (record.get("payload") or {}).get("errorCode") == "CANCELLED":
                assert kind == "StepFailed"
        elif kind in ("RunCompleted", "RunFailed", "RunCancelled"):
            assert not open_now, f"run: never ended: {open_now}"
