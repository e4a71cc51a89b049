"""Suspension as `decide` sees it: what a worker may say of a task that waits, and what the log says afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.core.boundary.inputs import ChildEnded, Input, ParentNotified, Request, TimerFired, Txn, WorkReported
from arclog.core.transitions.decide import decide
from arclog.core.transitions.state import State
from arclog.core.transitions.timers import after
from arclog.model.events import Event
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.program import Program

TEXT = """
metadata: {name: asks}
workflow:
  - step: start
    tool:
      - {name: ask, kind: approval, prompt: "go?"}
      - {name: call, kind: playbook, path: other}
"""
NOW = 1_800_000_000_000_000


class Run:
    def __init__(self, text: str = TEXT) -> None:
        body = net.encode(build_or_raise(text, "t.yaml", {}))
        self.program = Program(net.decode(body), net.digest(body))
        self.state = State(execution_id=1)
        self.base = 1000

    def put(self, incoming: Input, now: int = NOW) -> Txn:
        txn = decide(self.program, self.state, incoming, now, self.base)
        self.base += len(txn.events)
        return txn

    def report(self, n: int, *events: Event) -> Txn:
        command = next(iter(self.state.commands))
        return self.put(WorkReported(command, 1, n, "w", list(events)))


def begun() -> Run:
    run = Run()
    run.put(Request("asks", 1, {}))
    return run


def event(kind: str, task: str = "", **payload: Any) -> Event:
    return Event(type=kind, at=NOW, step="start", run=1, task=task, task_run=1 if task else 0, payload=payload)


def test_a_handed_over_task_closes_its_command_and_waits() -> None:
    run = begun()
    command = next(iter(run.state.commands))
    txn = run.report(1, event("step.started"), event("task.started", "ask", config={"prompt": "go?", "timeout_s": 5}))
    assert txn.refused is None
    assert txn.close == [command]
    assert txn.timers == {"wait:start#1:ask#1": NOW + 5_000_000}
    wait = run.state.waits["start#1:ask#1"]
    assert (wait.kind, wait.task, wait.task_run, wait.until) == ("approval", "ask", 1, NOW + 5_000_000)
    assert not run.state.commands


@pytest.mark.parametrize("kind", ["task.done", "task.attempt.done"])
def test_a_worker_cannot_approve(kind: str) -> None:
    run = begun()
    outcome = {"status": "ok", "result": {"approved": True}}
    txn = run.report(1, event("step.started"), event("task.started", "ask"), event(kind, "ask", outcome=outcome))
    assert txn.refused is not None
    assert "engine's to do" in txn.refused.message
    assert not txn.events


def test_nothing_comes_after_the_task_that_waits() -> None:
    run = begun()
    txn = run.report(1, event("step.started"), event("task.started", "ask", config={}), event("step.done"))
    assert txn.refused is not None
    assert "after the end of the command" in txn.refused.message


def test_a_timer_set_and_cleared_in_one_decision_ends_cleared() -> None:
    run = begun()
    config = {"prompt": "go?", "timeout_s": -1}
    txn = run.report(1, event("step.started"), event("task.started", "ask", config=config))
    assert [event.type for event in txn.events][-4:] == [
        "next.evaluated",
        "workflow.finished",
        "playbook.finished",
        "playbook.processed",
    ]
    assert all(not due for due in txn.timers.values())


def test_a_childs_id_is_given_out_with_the_wait_and_only_its_own_end_counts() -> None:
    run = Run(TEXT.replace('- {name: ask, kind: approval, prompt: "go?"}\n      ', ""))
    run.put(Request("asks", 1, {}))
    txn = run.report(1, event("step.started"), event("task.started", "call", config={"path": "other"}))
    suspended = txn.events[-1]
    wait = run.state.waits["start#1:call#1"]
    assert wait.child == int(suspended.payload["child"]) == run.base - 1
    refused = run.put(ChildEnded(wait.key, 5, {"status": "ok"}))
    assert refused.refused is not None
    txn = run.put(ChildEnded(wait.key, wait.child, {"status": "ok", "result": 3}))
    assert [event.type for event in txn.events][:3] == ["task.done", "step.done", "next.evaluated"]
    assert run.state.result == 3
    assert run.put(ChildEnded(wait.key, wait.child, {"status": "ok"})).refused is not None


def test_a_child_is_processed_only_once_its_parent_was_told() -> None:
    run = Run()
    run.put(Request("asks", 1, {}, parent={"execution_id": "7", "wait": "x"}, depth=1))
    assert run.put(ParentNotified()).refused is not None
    run.report(1, event("step.started"), event("task.started", "ask", config={"timeout_s": 0}))
    assert (run.state.status, run.state.processed) == ("FAILED", False)
    assert [event.type for event in run.put(ParentNotified()).events] == ["playbook.processed"]
    assert run.put(ParentNotified()).refused is not None


def test_an_unknown_timer_is_refused() -> None:
    run = begun()
    assert run.put(TimerFired("execution")).refused is not None


def test_a_moment_is_never_rounded_down() -> None:
    assert after(10, 0) == 11
    assert after(10, 0.000_000_4) == 11
    assert after(10, 1.000_000_1) == 1_000_011
