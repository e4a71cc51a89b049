"""Loop items in one piece: applying and checking them at once has the same result as doing so event by event."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from arclog.core.boundary import reports
from arclog.core.boundary.inputs import Continue, NewWork, Request
from arclog.core.transitions import decide, items
from arclog.core.transitions.apply import apply
from arclog.core.transitions.items import apply_all, item_end
from arclog.core.transitions.state import State
from arclog.model.events import Event
from arclog.plan.program import Program
from tests.unit.core.support import Core, done, event

ITEMS = 6


def playbook(loop: str, tasks: str = "[{name: a, kind: act}]", more: str = "", executor: str = "") -> str:
    return f"""
metadata: {{name: p}}
executor: {{spec: {{{executor}}}}}
workflow:
  - step: start
    loop: {{in: "{{{{ range({ITEMS}) }}}}", iterator: n, {loop}}}
    tool: {tasks}
    {more}
    next: {{arcs: [{{step: after}}]}}
  - {{step: after, tool: {{kind: act}}}}
"""


PLAYBOOKS = {
    "one command": playbook("spec: {policy: {exec: local}}"),
    "sequential": playbook("spec: {mode: sequential}"),
    "parallel": playbook("spec: {mode: parallel, max_in_flight: 2}"),
    "two tasks": playbook("spec: {policy: {exec: local}}", "[{name: a, kind: act}, {name: b, kind: act}]"),
    "results": playbook("spec: {policy: {exec: local}}", executor="result: '{{ start.results }}'"),
    "a time limit": playbook("spec: {policy: {exec: local}}", more="spec: {policy: {lifecycle: {timeout_s: 60}}}"),
    "a policy": playbook(
        "spec: {policy: {exec: local}}",
        "[{name: a, kind: act, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}]",
    ),
    "nested": playbook("spec: {mode: sequential}, loop: {in: '{{ range(2) }}', iterator: m}"),
}

#: changes of one event of an item, by name
CHANGES: dict[str, dict[str, Any]] = {
    "informative": {"informative": True},
    "version": {"version": 99},
    "cause": {"cause": 1},
    "own_id": {"own_id": 5},
    "sent": {"sent": {"meta": 1}},
    "report": {"report": 7},
    "command_id": {"command_id": 9},
    "fence": {"fence": 3},
    "worker_id": {"worker_id": "x"},
    "no iteration": {"iteration": None},
    "another iteration": {"iteration": (ITEMS - 1,)},
    "a deeper iteration": {"iteration": (1, 0)},
    "no such iteration": {"iteration": (ITEMS,)},
    "another run": {"run": 2},
    "another step": {"step": "after"},
    "another task": {"task": "no_such_task"},
    "another task run": {"task_run": 2},
    "task.failed": {"type": "task.failed"},
    "task.done": {"type": "task.done"},
    "task.started": {"type": "task.started"},
    "loop.iteration.failed": {"type": "loop.iteration.failed"},
    "loop.iteration.done": {"type": "loop.iteration.done"},
    "loop.iteration.started": {"type": "loop.iteration.started"},
    "policy.task.evaluated": {"type": "policy.task.evaluated"},
    "a later time": {"at": 1_900_000_000_000_000},
    "source": {"payload": {"source": "server", "outcome": {"status": "ok"}}},
    "config": {"payload": {"config": {}, "outcome": {"status": "ok"}}},
    "suspended": {"payload": {"suspended": True, "outcome": {"status": "ok"}}},
    "rounds": {"payload": {"rounds": {"x": 1}, "outcome": {"status": "ok"}}},
    "nothing": {"payload": {}},
    "inputs": {"payload": {"inputs": {"x": 1}}},
    "no outcome": {"payload": {"outcome": None}},
    "a list": {"payload": {"outcome": ["ok"]}},
    "an error": {"payload": {"outcome": {"status": "error", "error": {"kind": "x", "message": "y"}}}},
    "a ref": {"payload": {"outcome": {"status": "ok", "result_ref": {"ref": "x"}}}},
    "files": {"payload": {"outcome": {"status": "ok", "files": {"f": {}}}}},
}


@cache
def program_of(text: str) -> Program:
    return Core(text).program


class Prepared(Core):
    """A core whose program is built once."""

    def __init__(self, text: str) -> None:
        self.program = program_of(text)
        self.state = State(execution_id=1)
        self.events: list[Event] = []
        self.next_id = 1000
        self.reports: dict[tuple[int, int], int] = {}


def item_of(core: Core, work: NewWork, path: tuple[int, ...]) -> list[Event]:
    tasks = core.program.steps[work.step].tasks
    events = [event("loop.iteration.started", work, iteration=path)]
    for task in tasks:
        events += done(work, task.plan.name, {"n": path}, iteration=path)
        if task.plan.policy is not None:
            payload = {"matched_rule_index": 0, "action": {"do": "continue"}}
            events.append(event("policy.task.evaluated", work, task.plan.name, iteration=path, payload=payload))
    return [*events, event("loop.iteration.done", work, iteration=path)]


def report_of(core: Core, work: NewWork) -> list[Event]:
    """All events of a command, as a worker reports them."""
    command = core.state.commands[work.command_id]
    step_run = core.state.run_of(work.step, work.run)
    assert step_run is not None
    events = [] if step_run.started else [event("step.started", work)]
    if command.chunk:
        chunk = step_run.chunks[command.chunk]
        for index in range(chunk.first, chunk.last):
            events += item_of(core, work, (*chunk.path, index))
        return events
    return [*events, *done(work, "after_task"), event("step.done", work)]


def run(text: str) -> Core:
    """Run a playbook to its end."""
    core = Prepared(text)
    todo = list(core.put(Request("test", 1, {})).issue)
    while todo:
        work = todo.pop(0)
        txn = core.report(work, *report_of(core, work))
        assert txn.refused is None, txn.refused
        todo += txn.issue
        while txn.more:
            txn = core.put(Continue())
            todo += txn.issue
    assert core.state.status == "COMPLETED"
    return core


def copied(events: list[Event]) -> list[Event]:
    return [msgspec.structs.replace(known) for known in events]


def effect(program: Program, events: list[Event], fold: Callable[[Program, State, list[Event]], Any]) -> Any:
    """The state after a fold, or its error."""
    state = State(execution_id=1)
    try:
        moves = fold(program, state, events)
    except Exception as problem:
        return repr(problem)
    return msgspec.json.encode(state), moves


def one_by_one(program: Program, state: State, events: list[Event]) -> dict[str, int]:
    moves: dict[str, int] = {}
    for known in events:
        moves.update(apply(program, state, known))
    return moves


@pytest.mark.parametrize("name", PLAYBOOKS)
def test_all_events_have_the_same_effect_as_one_by_one(name: str) -> None:
    core = run(PLAYBOOKS[name])
    for last in range(len(core.events) + 1):
        events = core.events[:last]
        assert effect(core.program, events, apply_all) == effect(core.program, events, one_by_one)
    assert msgspec.json.encode(core.state) == msgspec.json.encode(core.replayed())


@pytest.mark.parametrize("name", ["one command", "parallel", "two tasks"])
def test_items_in_one_piece_are_applied_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    applied: list[str] = []

    def counted(program: Program, state: State, known: Event) -> Any:
        applied.append(known.type)
        return apply(program, state, known)

    monkeypatch.setattr(items, "apply", counted)
    monkeypatch.setattr(decide, "apply", counted)
    core = run(PLAYBOOKS[name])
    assert applied.count("task.done") == 1, "only that of the step after the loop"
    applied.clear()
    apply_all(core.program, State(execution_id=1), core.events)
    assert applied.count("task.done") == 1


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["one command", "two tasks", "results", "a time limit"])
def test_a_different_item_has_the_same_effect_too(name: str, change: str) -> None:
    core = run(PLAYBOOKS[name])
    begin = next(index for index, known in enumerate(core.events) if known.iteration == (1,))
    end = item_end(core.events, begin)
    assert end > begin
    for index in range(begin, end):
        events = copied(core.events)
        events[index] = msgspec.structs.replace(events[index], **CHANGES[change])
        assert effect(core.program, events, apply_all) == effect(core.program, events, one_by_one)


def decided(text: str, changed: Callable[[list[Event]], list[Event]]) -> Any:
    """The decision about a changed report on a loop, and the state after it."""
    core = Prepared(text)
    (work,) = core.put(Request("test", 1, {})).issue
    try:
        txn = core.report(work, *changed(report_of(core, work)))
    except Exception as problem:
        return repr(problem)
    return msgspec.json.encode((txn.events, txn.issue, txn.close, txn.timers, txn.refused, core.state))


@pytest.mark.parametrize("change", [*CHANGES, "removed", "repeated", "moved"])
@pytest.mark.parametrize("name", ["one command", "two tasks", "results", "a time limit", "a policy"])
def test_a_report_is_decided_as_event_by_event(name: str, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(index: int) -> Callable[[list[Event]], list[Event]]:
        def change_events(events: list[Event]) -> list[Event]:
            if change == "removed":
                return events[:index] + events[index + 1 :]
            if change == "repeated":
                return [*events[: index + 1], *copied(events[index:])]
            if change == "moved":
                return [*events[:index], *events[index + 1 : index + 3], events[index], *events[index + 3 :]]
            events[index] = msgspec.structs.replace(events[index], **CHANGES[change])
            return events

        return change_events

    def answers() -> list[Any]:
        return [decided(PLAYBOOKS[name], changed(index)) for index in range(12)]

    at_once = answers()
    for module in (decide, reports):
        monkeypatch.setattr(module, "item_end", lambda _, at: at)
    assert at_once == answers()


def test_results_beyond_the_limit_stop_the_loop_in_the_middle_of_a_report(monkeypatch: pytest.MonkeyPatch) -> None:
    text = playbook(
        "spec: {policy: {exec: local}}",
        more="",
        executor="result: '{{ start.results }}', policy: {limits: {max_loop_results_bytes: 20}}",
    ).replace("arcs: [{step: after}]", 'arcs: [{step: after, when: "{{ start.results | length }}"}]')
    at_once = decided(text, lambda events: events)
    assert b"MAX_LOOP_RESULTS_BYTES" in at_once
    for module in (decide, reports):
        monkeypatch.setattr(module, "item_end", lambda _, at: at)
    assert at_once == decided(text, lambda events: events)
