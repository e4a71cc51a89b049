"""Loops on the real engine and worker in virtual time: how many run at a time, waits and long retries inside, lateness."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from arclog.core.transitions.state import State
from arclog.model.events import Event
from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER

SPECS: dict[str, dict[str, Any]] = {
    "sequential": {"mode": "sequential"},
    "sequential, distributed": {"mode": "sequential", "policy": {"exec": "distributed"}},
    "parallel": {"mode": "parallel", "max_in_flight": 3},
    "parallel, local": {"mode": "parallel", "max_in_flight": 3, "policy": {"exec": "local"}},
}
WAITS = [
    {"name": "before", "kind": "act"},
    {"name": "rest", "kind": "wait", "for_s": 600},
    {"name": "after", "kind": "act"},
]
LAST_WAITS = WAITS[:2]
FAILS_ONCE = {
    "policy": {
        "rules": [
            {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "delay": 90}},
            {"else": {"then": {}}},
        ]
    }
}
RETRIES = [{"name": "before", "kind": "act"}, {"name": "again", "kind": "act", "fail_attempts": 1, "spec": FAILS_ONCE}]


def playbook(spec: Any, tool: Any, *, count: int = 5, step: Any = None) -> str:
    loop = {"in": list(range(count)), "iterator": "n", "spec": spec}
    first = {"step": "start", "loop": loop, "tool": tool, **(step or {})}
    return json.dumps(
        {"metadata": {"name": "loops"}, "workflow": [first, {"step": "rescue", "tool": {"kind": "noop"}}]}
    )


async def ran(text: str, **options: Any) -> tuple[State, list[Event], World]:
    async with World(text, settings=EAGER, **options) as world:
        state = await world.run()
        check_log(await world.stored(), "loops")
        assert await world.state() == state
        assert not state.waits
        assert not state.timers
        assert await world.store.next_due() is None
        assert await world.store.commands(world.execution_id) == []
        return state, await world.events(), world


class Watch:
    """How many calls are under way at a time."""

    def __init__(self, takes: float = 1.0) -> None:
        self.takes = takes
        self.now = self.most = 0

    async def __call__(self, _call: Call, _context: TaskContext) -> Outcome | None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.takes)
        finally:
            self.now -= 1
        return None


@pytest.mark.parametrize(
    ("spec", "most"), [("sequential", 1), ("sequential, distributed", 1), ("parallel", 3), ("parallel, local", 3)]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_as_many_items_at_a_time_as_the_loop_says(spec: str, most: int, workers: int) -> None:
    watch = Watch()
    text = playbook(SPECS[spec], [{"name": "t", "kind": "act"}], count=12)
    state, _, world = run_virtually(ran(text, hook=watch, workers=workers))
    assert state.status == "COMPLETED"
    assert watch.most == most
    assert set(world.ledger.times().values()) == {1}
    assert len(world.ledger.calls) == 12


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("tool", [WAITS, LAST_WAITS, RETRIES], ids=["wait", "wait at the end", "long retry"])
def test_tasks_that_wait_inside_a_loop(spec: str, tool: list[dict[str, Any]]) -> None:
    state, events, world = run_virtually(ran(playbook(SPECS[spec], tool)))
    assert state.status == "COMPLETED"
    done = Counter(event.type for event in events)
    assert (done["loop.iteration.done"], done["loop.done"]) == (5, 1)
    assert set(world.ledger.times().values()) == {1}


@pytest.mark.parametrize("spec", SPECS)
def test_a_late_loop_fails_with_all_that_is_under_way(spec: str) -> None:
    late = {"spec": {"policy": {"lifecycle": {"timeout_s": 10}, "failure": {"mode": "best_effort"}}}}
    late["next"] = {"arcs": [{"step": "rescue", "when": "{{ event.name == 'step.failed' }}"}]}  # type: ignore[dict-item]  # any JSON
    watch = Watch(takes=4)
    state, events, _ = run_virtually(
        ran(playbook(SPECS[spec], [{"name": "t", "kind": "act"}], count=50, step=late), hook=watch)
    )
    assert state.status == "COMPLETED"
    assert state.latest == {"start": "failed", "rescue": "done"}
    failed = next(event for event in events if event.type == "step.failed")
    assert failed.payload["error"]["kind"] == "timeout"
    assert watch.now == 0, "what was withdrawn goes on"


@pytest.mark.parametrize("spec", ["parallel", "parallel, local"])
def test_the_first_failure_stops_what_runs_beside_it(spec: str) -> None:
    watch = Watch(takes=3600)

    async def hook(call: Call, context: TaskContext) -> Outcome | None:
        return None if ":1:t:" in call.key else await watch(call, context)

    tool = [{"name": "t", "kind": "act", "fail_attempts": 1}]
    state, events, _ = run_virtually(ran(playbook(SPECS[spec], tool), hook=hook))
    assert state.status == "FAILED"
    assert watch.now == 0
    assert (events[-1].at - events[0].at) < 60 * 1_000_000, "it waited for items that were withdrawn"


def test_a_loop_in_a_branch_leaves_the_other_branch_alone() -> None:
    loop = {"in": [1, 2, 3], "iterator": "n", "spec": {"mode": "parallel"}}
    made = {
        "metadata": {"name": "loops"},
        "workflow": [
            {"step": "start", "tool": {"kind": "noop"}, "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "a"}, {"step": "b"}]}},
            {"step": "a", "loop": loop, "tool": [{"name": "t", "kind": "act", "takes": 2, "fail_attempts": "{{ iter.n - 1 }}"}],
             "next": {"arcs": [{"step": "rescue", "when": "{{ event.name == 'step.failed' }}"}]}},
            {"step": "b", "loop": loop, "tool": [{"name": "t", "kind": "act", "takes": 5}]},
            {"step": "rescue", "tool": {"kind": "noop"}},
        ],
    }  # fmt: skip
    state, events, _ = run_virtually(ran(json.dumps(made)))
    assert state.status == "COMPLETED"
    assert state.latest == {"start": "done", "a": "failed", "b": "done", "rescue": "done"}
    (done,) = [event for event in events if event.type == "loop.done"]
    assert (done.step, done.payload["ok"]) == ("b", 3)


@pytest.mark.parametrize("spec", ["parallel", "parallel, local", "sequential"])
@pytest.mark.parametrize("size", [10, 2000], ids=["kept", "in the log"])
def test_results_of_a_loop_that_failed_have_null_for_items_without_an_end(spec: str, size: int) -> None:
    """Large results are not kept by the server: they are read from the log, which must give the same list."""
    tool = [
        {"name": "first", "kind": "act", "returns": "not a result"},
        {"name": "t", "kind": "act", "takes": 5, "returns": f"{{{{ 'x' * {size} }}}}",
         "fail_attempts": "{{ 1 if iter.n == 40 else 0 }}"},
    ]  # fmt: skip
    made = json.loads(playbook(SPECS[spec], tool, count=60))
    made["workflow"][0]["next"] = {"arcs": [{"step": "rescue", "when": "{{ event.name == 'step.failed' }}"}]}
    expressions = {"all": "| length", "ended": "| select | list | length", "last": "[59]"}
    data = {name: f"{{{{ start.results {how} }}}}" for name, how in expressions.items()}
    made["workflow"][1]["tool"] = {"kind": "noop", "data": data}
    state, events, _ = run_virtually(ran(json.dumps(made)))
    assert state.status == "COMPLETED"
    ended = sum(event.type == "loop.iteration.done" for event in events)
    failed = next(event for event in events if event.type == "step.failed")
    assert failed.payload["loop"]["ok"] == ended
    assert state.result["all"] == 60
    assert state.result["ended"] == ended
    assert state.result["last"] is None
    assert any(event.type == "result.manifest.updated" for event in events) == (size == 2000)


@pytest.mark.parametrize("size", [10, 2000], ids=["kept", "in the log"])
def test_results_of_a_nested_loop_that_failed(size: int) -> None:
    inner = {"in": [0, 1, 2], "iterator": "b", "spec": {"mode": "parallel", "max_in_flight": 3}}
    loop = {"in": list(range(20)), "iterator": "a", "spec": {"mode": "parallel", "max_in_flight": 2}, "loop": inner}
    tool = [
        {"name": "first", "kind": "act", "returns": "not a result"},
        {"name": "t", "kind": "act", "takes": "{{ 1 + iter.b }}", "returns": f"{{{{ 'x' * {size} }}}}",
         "fail_attempts": "{{ 1 if iter.parent.a == 16 and iter.b == 1 else 0 }}"},
    ]  # fmt: skip
    start = {"step": "start", "loop": loop, "tool": tool}
    start["next"] = {"arcs": [{"step": "rescue", "when": "{{ event.name == 'step.failed' }}"}]}
    data = {"all": "{{ start.results | length }}", "ended": "{{ start.results | select | list | length }}"}
    rescue = {"step": "rescue", "tool": {"kind": "noop", "data": data}}
    state, events, _ = run_virtually(ran(json.dumps({"metadata": {"name": "loops"}, "workflow": [start, rescue]})))
    assert state.status == "COMPLETED"
    begun = sum(event.type == "loop.iteration.started" and len(event.iteration or ()) == 2 for event in events)
    ended = sum(event.type == "loop.iteration.done" and len(event.iteration or ()) == 2 for event in events)
    assert begun > ended + 1, "some were cancelled"
    assert state.result == {"all": begun, "ended": ended}
    failed = next(event for event in events if event.type == "step.failed")
    assert (failed.payload["loop"]["total"], failed.payload["loop"]["failed"]) == (20, 1)
