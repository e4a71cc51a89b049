"""A core by hand: a program, its state, and inputs put to it one after the other, without engine, store or worker."""

from __future__ import annotations

from typing import Any

from arclog.core.boundary.inputs import Input, NewWork, Request, Txn, WorkReported
from arclog.core.transitions.apply import apply
from arclog.core.transitions.decide import decide
from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.model.ids import moved
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.program import Program
from arclog.testing.harness import SPECS

NOW = 1_800_000_000_000_000


class Core:
    """One execution."""

    def __init__(self, text: str, **settings: Any) -> None:
        plan = build_or_raise(text, "test.yaml", SPECS, Settings(settings))
        body = net.encode(plan)
        self.program = Program(net.decode(body), net.digest(body))
        self.state = State(execution_id=1)
        self.events: list[Event] = []
        self.next_id = 1000
        self.reports: dict[tuple[int, int], int] = {}

    def put(self, incoming: Input) -> Txn:
        txn = decide(self.program, self.state, incoming, NOW, self.next_id)
        self.events += txn.events
        self.next_id = moved(self.next_id, max(len(txn.events), 1))
        return txn

    def start(self, **workload: Any) -> NewWork:
        (work,) = self.put(Request("test", 1, workload)).issue
        return work

    def begin(self, **workload: Any) -> Txn:
        return self.put(Request("test", 1, workload))

    def report(self, work: NewWork, *events: Event, fence: int = 1, n: int = 0) -> Txn:
        key = (work.command_id, fence)
        txn = self.put(WorkReported(work.command_id, fence, n or self.reports.get(key, 0) + 1, "w", list(events)))
        if txn.refused is None:
            self.reports[key] = n or self.reports.get(key, 0) + 1
        return txn

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def replayed(self) -> State:
        state = State(execution_id=1)
        for event in self.events:
            apply(self.program, state, event)
        return state


def event(kind: str, work: NewWork, task: str = "", **more: Any) -> Event:
    """A worker's event for a command."""
    if task:
        more.setdefault("task_run", 1)
    return Event(type=kind, at=NOW, step=work.step, run=work.run, task=task, **more)


def done(work: NewWork, task: str, result: Any = None, **more: Any) -> list[Event]:
    """A task that went well."""
    payload = {"outcome": {"status": "ok", "result": result, "meta": {"attempt": 1}}}
    return [event("task.started", work, task, **more), event("task.done", work, task, payload=payload, **more)]
