"""What the rules share: a control, the runs whose commands it hands out, and short ways to speak as a worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from arclog.model.commands import Command, Report
from arclog.model.events import Event
from arclog.ports.control import Control, WorkerInfo
from arclog.ports.views.api import Api, ExecuteRequest

ONE = WorkerInfo("one", ("noop",))
TWO = WorkerInfo("two", ("noop",))
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

    async def claimed(self, text: str = STEPS, worker: WorkerInfo = ONE) -> Command:
        """The first command of a new run."""
        await self.start(text)
        (command,) = await self.control.claim(worker, 1)
        return command

    async def types(self, command: Command) -> list[str]:
        return [event["event_type"] for event in await self.api.events(str(command.execution_id), limit=1000)]


def said(command: Command, *types: str) -> list[Event]:
    """Events of a step without a loop, with a task that gave 1."""
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


def reported(command: Command, n: int, *types: str, worker: WorkerInfo = ONE, wants: int = 0) -> Report:
    events = said(command, *types)
    return Report(worker.worker_id, command.execution_id, command.command_id, command.fence, n, events, wants)


WHOLE = ("step.started", "task.started", "task.done", "step.done")


class Rules:
    """Base of all groups of rules: the fixtures."""

    @pytest.fixture
    def ground(self) -> Ground:
        pytest.fail("a subclass of ControlContract gives the fixture `ground`")
