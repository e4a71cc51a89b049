"""What the end of a run, a loop or a step closes: everything that is open, once, and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from arclog.core.boundary.inputs import Abort, Continue, LeaseEnded, Signal, TimerFired, Txn, WorkReported
from arclog.core.transitions.closing import MAX_MESSAGE
from arclog.core.transitions.decide import MAX_OPEN_COMMANDS, MAX_OPEN_PIPELINES
from arclog.model.events import CLOSING_REASONS, Event, is_closing
from arclog.model.outcome import error
from arclog.testing.closed_logs import check_events
from tests.unit.core.support import Core, done, event

BRANCHES = """
metadata: {name: test}
workflow:
  - step: start
    tool: {name: t, kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}
  - {step: a, tool: [{name: t, kind: act}, {name: u, kind: act}]}
  - {step: b, tool: {name: t, kind: act}}
  - {step: c, tool: {name: t, kind: act}}
"""


def big_loop(count: int, at_a_time: int, **spec: Any) -> str:
    loop = {
        "in": f"{{{{ range({count}) }}}}",
        "iterator": "n",
        "spec": {"mode": "parallel", "max_in_flight": at_a_time, **spec},
    }
    step = {"step": "start", "loop": loop, "tool": {"name": "t", "kind": "act"}}
    return json.dumps({"metadata": {"name": "test"}, "workflow": [step]})


def branches() -> Core:
    """a is in its second task, b in its first, c waits for a worker."""
    core = Core(BRANCHES)
    work = core.start()
    a, b, _ = core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work)).issue
    core.report(a, event("step.started", a), *done(a, "t"), event("task.started", a, "u"))
    core.report(b, event("step.started", b), event("task.started", b, "t"))
    return core


def closings(txn: Txn) -> list[Event]:
    return [event for event in txn.events if is_closing(event)]


@pytest.mark.parametrize(
    ("incoming", "reason"),
    [
        (Signal("CANCEL", "s", "enough"), "run_cancelled"),
        (Signal("EMERGENCY_STOP", "s", "enough"), "run_cancelled"),
        (Abort(error("internal", "broken")), "run_failed"),
    ],
)
def test_the_end_of_a_run_closes_what_is_open(incoming: Any, reason: str) -> None:
    core = branches()
    txn = core.put(incoming)
    assert [(event.type, event.step, event.task) for event in closings(txn)] == [
        ("task.failed", "a", "u"),
        ("step.failed", "a", ""),
        ("task.failed", "b", "t"),
        ("step.failed", "b", ""),
        ("step.failed", "c", ""),
    ]
    assert {event.payload["reason"] for event in closings(txn)} == {reason}
    assert not any(event.type == "next.evaluated" for event in txn.events), "nothing is routed"
    assert core.state.latest == {"start": "done", "a": "cancelled", "b": "cancelled", "c": "cancelled"}
    check_events(core.events)
    assert core.replayed() == core.state


def test_what_was_closed_is_no_outcome_and_no_failure() -> None:
    core = branches()
    core.put(Signal("CANCEL", "s", "enough"))
    assert set(core.state.results) == {"start"}
    assert core.state.failures == {}
    assert core.state.error is not None
    assert core.state.error["message"] == "enough"


def test_a_long_reason_is_not_repeated_in_full() -> None:
    core = branches()
    txn = core.put(Signal("CANCEL", "s", "x" * 100_000))
    for closing in closings(txn):
        problem = closing.payload.get("error") or closing.payload["outcome"]["error"]
        assert len(problem["message"]) == MAX_MESSAGE
    assert all(len(event.payload["reason"]) <= MAX_MESSAGE for event in txn.events if event.type == "command.cancelled")


def test_every_reason_is_described() -> None:
    assert all(text.endswith(".") for text in CLOSING_REASONS.values())


# -- many -------------------------------------------------------------------------------------------------------------


def begun(core: Core, count: int) -> None:
    """Let so many commands begin their first item."""
    for command in list(core.state.commands.values())[:count]:
        chunk = core.state.open["start#1"].chunks[command.chunk]
        at: dict[str, Any] = {"step": "start", "run": 1, "iteration": (*chunk.path, chunk.next)}
        events = [
            Event("loop.iteration.started", 1, **at),
            Event("task.started", 1, task="t", task_run=1, **at),
        ]
        assert core.put(WorkReported(command.id, 1, 1, "w", events)).refused is None


def test_a_large_loop_closes_only_what_is_open() -> None:
    core = Core(big_loop(10_000, 1000))
    core.begin()
    while len(core.state.commands) < MAX_OPEN_COMMANDS:
        core.put(Continue())
    begun(core, 990)
    txn = core.put(Signal("CANCEL", "stop", "enough"))
    assert Counter(event.type for event in txn.events) == {
        "signal.received": 1,
        "command.cancelled": 1000,
        "task.failed": 990,
        "loop.iteration.failed": 990,
        "step.failed": 1,
        "workflow.finished": 1,
        "execution.cancelled": 1,
        "playbook.processed": 1,
    }
    failed = next(event for event in txn.events if event.type == "step.failed")
    assert failed.payload["loop"] == {"total": 10_000, "ok": 0, "failed": 0, "cancelled": 990}
    assert max(len(msgspec.json.encode(event)) for event in txn.events) < 400
    check_events(core.events)
    assert core.replayed() == core.state


def test_items_side_by_side_count_for_as_many_as_they_are() -> None:
    wide = [f"w{i}" for i in range(30)]
    loop = {
        "in": "{{ range(1000) }}",
        "iterator": "n",
        "spec": {"mode": "parallel", "max_in_flight": 1000, "policy": {"exec": "local"}},
    }
    steps = [{"step": name, "loop": loop, "tool": {"name": "t", "kind": "act"}} for name in wide]
    start = {"step": "start", "tool": {"name": "t", "kind": "noop"}}
    start["next"] = {"spec": {"mode": "inclusive"}, "arcs": [{"step": name} for name in wide]}
    core = Core(json.dumps({"metadata": {"name": "test"}, "workflow": [start, *steps]}))
    work = core.start()
    core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work))
    assert len(core.state.commands) == MAX_OPEN_PIPELINES // 500
    assert len(core.state.tokens) == 30 - MAX_OPEN_PIPELINES // 500, "the others wait"
    txn = core.put(Signal("CANCEL", "s", "enough"))
    finished = next(event for event in txn.events if event.type == "workflow.finished")
    assert finished.payload["tokens"] == sorted(range(12, 32)), "and end with the run"
    check_events(core.events)


# -- steps and loops --------------------------------------------------------------------------------------------------


def test_a_poison_command_ends_the_items_of_the_others() -> None:
    core = Core(big_loop(10, 3))
    core.begin()
    begun(core, 3)
    first = next(iter(core.state.commands.values()))
    txn = core.put(LeaseEnded(first.id, 1, "w", max_losses=1))
    assert Counter(event.type for event in closings(txn)) == {"task.failed": 3, "loop.iteration.failed": 3}
    assert {event.payload["reason"] for event in closings(txn)} == {"poison"}
    check_events(core.events)


def test_a_late_step_without_a_loop_is_its_tasks_own_failure() -> None:
    core = Core(
        "metadata: {name: test}\nworkflow:\n"
        "  - {step: start, spec: {policy: {lifecycle: {timeout_s: 5}}}, tool: {name: t, kind: act}}\n"
    )
    work = core.start()
    core.report(work, event("step.started", work), event("task.started", work, "t"))
    core.state.timers["timeout:start#1"] = 1
    txn = core.put(TimerFired("timeout:start#1"))
    assert closings(txn) == []
    assert [event.payload["outcome"]["error"]["kind"] for event in txn.events if event.type == "task.failed"] == [
        "timeout"
    ]
    check_events(core.events)
