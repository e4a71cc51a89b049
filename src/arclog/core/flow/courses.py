"""The course of a pipeline as a worker reports it: which task event may come next.

Law: a task run starts once, its attempts follow each other, and it ends once; a pipeline ends when its tasks have. This is
the tool layer of `model.status` for reports, checked before any of a report is applied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from arclog.model.commands import Pipeline
from arclog.model.events import Event
from arclog.model.outcome import ERROR, OK
from arclog.plan.program import StepProgram


class Course:
    """Tracks the position of a pipeline while a report is checked. Cheap: no event is folded."""

    __slots__ = ("_at", "_attempt", "_direct", "_in_flight", "_prev", "_runs", "_state", "_step")

    def __init__(self, step: StepProgram, pipeline: Pipeline) -> None:
        self._step = step
        self._at = pipeline.at
        self._direct = pipeline.direct
        #: of the task run that is open; 0 when none is
        self._attempt = pipeline.attempt
        self._in_flight = pipeline.in_flight
        self._prev = pipeline.prev
        self._runs = pipeline.runs
        self._state = pipeline.state

    def take(self, event: Event) -> str:
        """The problem of the next task event; '' if there is none."""
        taken = self._taken.get(event.type)
        return "" if taken is None else taken(self, event)

    def end(self, *, failed: bool) -> str:
        """The problems of the end of the pipeline here."""
        if self._attempt:
            return f"task {self._label} has not ended"
        if failed:
            return ""
        if self._state == "failed":
            return "the pipeline has failed"
        return self._not_ended() if self._state == "open" else ""

    def _may_reach(self, index: int) -> bool:
        """Whether the task with that index may come next; the number of tasks means the end of the list."""
        if self._step.guards is None or self._direct:
            return index == self._at
        return index in self._step.guards.reachable[self._at]

    def _not_ended(self) -> str:
        if self._may_reach(len(self._step.tasks)):
            return ""
        return self._no_decision() if self._undecided else f"task {self._following} has not run"

    @property
    def _following(self) -> str:
        """The tasks that may come next, for messages."""
        labels = [task.plan.name for index, task in enumerate(self._step.tasks) if self._may_reach(index)]
        return " or ".join(labels)

    @property
    def _undecided(self) -> bool:
        """Whether the last task's policy has not been evaluated."""
        return self._at < len(self._step.tasks) and self._prev == self._label

    @property
    def _label(self) -> str:
        return self._step.tasks[self._at].plan.name

    def _start(self, event: Event) -> str:
        if self._attempt:
            return f"task {self._label} has not ended"
        if self._state != "open":
            return "the pipeline has ended"
        index = self._step.index[event.task]
        if not self._may_reach(index):
            if self._undecided:
                return self._no_decision()
            following = self._following
            return f"task {following} comes next" if following else "the pipeline has ended"
        run = self._runs.get(event.task, 0) + 1
        if event.task_run != run:
            return f"is run {event.task_run} of task {event.task}, which has run {run - 1} times"
        self._runs = {**self._runs, event.task: run}
        self._at, self._direct = index, False
        self._attempt, self._in_flight = 1, True
        return ""

    def _start_attempt(self, event: Event) -> str:
        if problem := self._not_open(event):
            return problem
        if event.attempt != self._attempt:
            return f"is attempt {event.attempt} of task {event.task}, whose next one is {self._attempt}"
        self._in_flight = True
        return ""

    def _end_attempt(self, event: Event) -> str:
        if problem := self._not_open(event):
            return problem
        if event.attempt != self._attempt or not self._in_flight:
            return f"attempt {event.attempt} of task {event.task} is not under way"
        self._in_flight = False
        return ""

    def _end_task(self, event: Event) -> str:
        if problem := self._not_open(event):
            return problem
        outcome = event.payload["outcome"]["status"]
        policy = self._step.tasks[self._at].plan.policy
        if event.type == "task.done" and outcome != OK:
            return "has an error outcome"
        if event.type == "task.failed" and outcome != ERROR and policy is None:
            return "has an ok outcome"
        self._attempt, self._in_flight, self._prev = 0, False, event.task
        self._direct = policy is not None
        if policy is None:
            if event.type == "task.done":
                self._at += 1
            else:
                self._state = "failed"
        return ""

    def _decide(self, event: Event) -> str:
        task = self._step.tasks[self._step.index[event.task]].plan
        if task.policy is None:
            return f"task {event.task} has no policy"
        action = event.payload["action"]
        if action["do"] == "retry":
            if problem := self._not_open(event):
                return problem
            if self._in_flight or event.attempt != self._attempt:
                return f"attempt {event.attempt} of task {event.task} has not ended"
            self._attempt += 1
            return ""
        if self._attempt or self._prev != event.task or self._at >= len(self._step.tasks) or event.task != self._label:
            return f"task {event.task} has not just ended"
        match action["do"]:
            case "continue":
                self._at += 1
                self._direct = False
            case "jump":
                self._at = self._step.index[action["to"]]
                self._direct = True
            case "break":
                self._state = "done"
            case _:
                self._state = "failed"
        return ""

    def _not_open(self, event: Event) -> str:
        if self._attempt and event.task == self._label and event.task_run == self._runs[event.task]:
            return ""
        if self._runs.get(event.task, 0) >= event.task_run:
            return f"run {event.task_run} of task {event.task} has ended"
        return f"run {event.task_run} of task {event.task} has not started"

    def _no_decision(self) -> str:
        return f"the policy of task {self._label} has not been evaluated (policy.task.evaluated)"

    #: what follows the pipeline through an event
    _taken: ClassVar[dict[str, Callable[[Course, Event], str]]] = {
        "task.started": _start,
        "task.attempt.started": _start_attempt,
        "task.attempt.done": _end_attempt,
        "task.attempt.failed": _end_attempt,
        "task.done": _end_task,
        "task.failed": _end_task,
        "policy.task.evaluated": _decide,
    }
