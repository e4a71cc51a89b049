"""`choose`, `while` and `until` in real runs: no trace in the log, the last task's data, and the right round after a crash."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.engine.views.state import current_task
from arclog.model.commands import Pipeline
from arclog.model.events import Event
from arclog.plan import net
from arclog.plan.program import Program
from arclog.ports.storage.store import Append, Appended
from arclog.testing.faults import forever
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER

RELEASED = Path(__file__).parents[1] / "golden" / "released"


def act(name: str, returns: Any = None, **sets: Any) -> dict[str, Any]:
    task: dict[str, Any] = {"name": name, "kind": "act", "returns": returns}
    return {**task, "spec": {"policy": {"rules": [{"else": {"then": sets}}]}}} if sets else task


def book(*tool: Any, **step: Any) -> str:
    start = {"step": "start", "tool": list(tool), **step}
    return json.dumps({"metadata": {"name": "blocks"}, "workflow": [start]})


def rounds(key: str = "n") -> dict[str, Any]:
    """A task that counts its runs in iter."""
    return act("count", {"n": f"{{{{ iter.{key} | default(0) + 1 }}}}"}, set_iter={key: "{{ outcome.data.n }}"})


async def ended(text: str, **options: Any) -> tuple[State, list[Event]]:
    async with World(text, **options) as world:
        state = await world.run()
        stored = await world.stored()
        check_log(stored, state.scope)
        return state, [row.event for row in stored]


def ran(events: list[Event]) -> list[str]:
    return [f"{event.task}#{event.task_run}" for event in events if event.type == "task.started"]


BRANCHES = {"choose": [{"when": "{{ ctx.x is defined }}", "then": [act("yes")]}, {"else": [act("no", {"n": 7})]}]}
UNTIL = {"until": {"do": [rounds()], "when": "{{ _prev.n >= 3 }}", "max": 5}}


@pytest.mark.parametrize(
    ("tool", "labels", "data"),
    [
        ([act("a", {"n": 1}), BRANCHES], ["a#1", "no#1"], {"n": 7}),
        ([UNTIL], ["count#1", "count#2", "count#3"], {"n": 3}),
        ([act("a", {"n": 1}), {"choose": [{"when": False, "then": [act("never")]}]}], ["a#1"], {"n": 1}),
        ([act("a", {"n": 1}), {"while": {"when": "{{ _prev.n < 1 }}", "do": [rounds()]}}], ["a#1"], {"n": 1}),
    ],
)
def test_a_list_that_ends_in_a_block_keeps_the_data_of_its_last_task(tool: Any, labels: list[str], data: Any) -> None:
    arcs = {"arcs": [{"step": "end", "when": f"{{{{ outcome.data.n == {data['n']} }}}}"}]}
    text = json.loads(book(*tool, next=arcs))
    text["workflow"].append({"step": "end", "tool": act("end", "{{ start.data }}")})
    state, events = run_virtually(ended(json.dumps(text)))
    assert state.result == data
    assert ran(events) == [*labels, "end#1"]
    assert not [event.task for event in events if event.task.startswith("_")]


def test_prev_is_the_task_before_whatever_stands_between() -> None:
    state, _ = run_virtually(ended(book(act("a", {"n": 1}), BRANCHES, act("z", "{{ [_prev.n, a.n, no.n] }}"))))
    assert state.result == [7, 1, 7]


def test_prev_is_false_before_the_first_task() -> None:
    more = {"while": {"when": "{{ not _prev or _prev.n < 2 }}", "do": [rounds()]}}
    state, events = run_virtually(ended(book(more)))
    assert (state.status, state.result, ran(events)) == ("COMPLETED", {"n": 2}, ["count#1", "count#2"])


def test_three_rounds_are_three_task_runs_and_no_policy_but_the_authors() -> None:
    _, events = run_virtually(ended(book(UNTIL)))
    tasks = [event for event in events if event.task]
    assert [event.type for event in tasks] == ["task.started", "task.done", "policy.task.evaluated"] * 3
    assert [event.payload["rounds"] for event in tasks if event.type == "task.started"] == [
        {"until_1": 1}, {"until_1": 2}, {"until_1": 3},
    ]  # fmt: skip


def test_a_block_that_lets_no_task_run_is_a_success_without_data() -> None:
    nothing = {"choose": [{"when": False, "then": [act("never")]}]}
    text = json.loads(book(nothing, next={"arcs": [{"step": "end", "when": "{{ outcome.status == 'ok' }}"}]}))
    text["workflow"].append({"step": "end", "tool": act("end", "{{ [start.status, start.data, start and 1] }}")})
    state, events = run_virtually(ended(json.dumps(text)))
    assert (state.status, state.result) == ("COMPLETED", ["ok", None, 1])
    assert ran(events) == ["end#1"]


def test_past_max_the_step_fails_and_an_arc_can_take_it() -> None:
    endless = {"while": {"when": True, "max": 2, "do": [rounds()]}}
    failed = {"arcs": [{"step": "end", "when": "{{ event.name == 'step.failed' }}"}]}
    text = json.loads(book(endless, next=failed))
    text["workflow"].append({"step": "end", "tool": act("end", "{{ [start.n, start.status] }}")})
    state, events = run_virtually(ended(json.dumps(text)))
    assert (state.status, state.result) == ("COMPLETED", [2, "ok"])
    problem = next(event.payload["error"] for event in events if event.type == "step.failed")
    assert (problem["kind"], problem["code"]) == ("limit", "MAX_ROUNDS")
    assert problem["message"].startswith("while at 1:")


def test_iterations_count_their_own_rounds() -> None:
    loop = {"in": [1, 2, 3], "iterator": "x", "spec": {"mode": "parallel"}}
    body = {"while": {"when": "{{ (iter.n | default(0)) < iter.x }}", "max": 3, "do": [rounds()]}}
    text = json.loads(book(body, loop=loop))
    text["executor"] = {"spec": {"result": "{{ start.results }}"}}
    state, _ = run_virtually(ended(json.dumps(text)))
    assert state.result == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_the_rounds_of_an_inner_block_begin_anew() -> None:
    inner = {"until": {"when": "{{ count.n % 2 == 0 }}", "max": 2, "do": [rounds()]}}
    outer = {"while": {"when": "{{ not _prev or _prev.n < 6 }}", "max": 3, "do": [inner]}}
    state, events = run_virtually(ended(book(outer)))
    assert (state.status, state.result) == ("COMPLETED", {"n": 6})
    seen = [event.payload.get("rounds") for event in events if event.type == "task.started"]
    assert seen == [
        {"while_1": 1, "until_1": 1}, {"until_1": 2},
        {"while_1": 2, "until_1": 1}, {"until_1": 2},
        {"while_1": 3, "until_1": 1}, {"until_1": 2},
    ]  # fmt: skip


def test_what_a_condition_reads_is_sent_along() -> None:
    """Names that stand in a condition alone: another step's results, ctx, a bare workload key."""
    text: dict[str, Any] = {
        "metadata": {"name": "blocks"},
        "workload": {"most": 2},
        "workflow": [
            {
                "step": "start",
                "loop": {"in": [1, 2], "iterator": "x"},
                "tool": act("one", "{{ iter.x }}", set_ctx={"seen": "{{ iter.x }}"}),
                "next": {"arcs": [{"step": "end"}]},
            },
            {
                "step": "end",
                "tool": [
                    {"choose": [{"when": "{{ start.results == [1, 2] and ctx.seen == most }}", "then": [act("y", 1)]}]}
                ],
            },
        ],
    }
    state, _ = run_virtually(ended(json.dumps(text)))
    assert state.result == 1


def test_a_condition_can_read_stored_data() -> None:
    rows = act("rows", "{{ range(20000) | map('string') | list }}")
    many = {
        "choose": [
            {"when": "{{ rows.data | length == 20000 and _prev.data[19999] == '19999' }}", "then": [act("y", 1)]}
        ]
    }
    state, events = run_virtually(ended(book(rows, many)))
    assert any("result_ref" in event.payload.get("outcome", {}) for event in events)
    assert (state.status, state.result) == ("COMPLETED", 1)


def test_the_task_that_comes_next_is_named_only_when_it_is_known() -> None:
    text = book(act("a"), {"while": {"when": "{{ ctx.more }}", "do": [act("b")]}}, act("c"), act("d"))
    program = World(text).program.steps["start"]
    names = [current_task(program, Pipeline(at=at)) for at in range(5)]
    assert [task and task.plan.name for task in names] == ["a", None, None, "d", None]
    assert current_task(program, Pipeline(at=1, attempt=1)) is program.tasks[1]
    assert current_task(program, Pipeline(at=2, direct=True)) is program.tasks[2]


# -- crashes ----------------------------------------------------------------------------------------------------------

WAITING = book(
    act("a"),
    {
        "while": {
            "when": "{{ (iter.n | default(0)) < 3 }}",
            "max": 3,
            "do": [
                rounds(),
                {"choose": [{"when": "{{ count.n == 2 }}", "then": [{"name": "pause", "kind": "wait", "for_s": 30}]}]},
            ],
        }
    },
    {"until": {"do": [act("b", {"m": "{{ iter.m | default(0) + 1 }}"}, set_iter={"m": "{{ outcome.data.m }}"})],
               "when": "{{ b.m == 2 }}", "max": 2}},
)  # fmt: skip


class Killed:
    """A run whose process dies after a chosen commit."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.commits = 0
        self.world = World(WAITING, settings=EAGER, after=self.after)

    async def after(self, _: int, __: Append, ___: Appended) -> None:
        self.commits += 1
        if self.commits == self.at:
            self.world.crash_now()
            await forever()

    async def run(self) -> tuple[State, list[Event]]:
        async with self.world as world:
            state = await world.run()
            stored = await world.stored()
            check_log(stored, state.scope)
            return state, [row.event for row in stored]


def test_a_crash_anywhere_goes_on_in_the_same_round() -> None:
    whole = Killed(0)
    state, events = run_virtually(whole.run())
    expected = ["a#1", "count#1", "count#2", "pause#1", "count#3", "b#1", "b#2"]
    assert (state.status, ran(events)) == ("COMPLETED", expected)
    for at in range(1, whole.commits + 1):
        died, log = run_virtually(Killed(at).run())
        assert (died.status, died.result, ran(log)) == ("COMPLETED", {"m": 2}, expected), at
        counted: dict[str, int] = {}
        for event in log:
            counted.update(event.payload.get("rounds") or {})
        assert counted == {"while_1": 3, "until_1": 2}, at


# -- plans and logs of the release before -----------------------------------------------------------------------------


def released() -> tuple[Program, dict[str, Any]]:
    kept = json.loads((RELEASED / "sugar.json").read_text(encoding="utf-8"))
    body = json.dumps(kept["plan"], ensure_ascii=False, separators=(",", ":")).encode()
    return Program(net.decode(body), net.digest(body)), kept


def test_a_log_with_generated_tasks_folds_to_the_state_that_it_had() -> None:
    program, kept = released()
    state = State(execution_id=kept["execution_id"])
    for event in kept["events"]:
        apply(program, state, msgspec.convert(event, Event))
    ends = {"status": state.status, "ctx": state.ctx, "result": state.result, "results": state.results}
    assert ends == kept["ends"]


def test_a_run_of_such_a_plan_goes_on_as_it_began() -> None:
    """Whatever of the log already exists, the tasks that follow are those of the release before."""
    program, kept = released()

    async def again() -> tuple[State, list[Event]]:
        async with World((RELEASED / "sugar.yaml").read_text(encoding="utf-8")) as world:
            world.program, world._body = program, net.encode(program.plan)
            return await world.run(), await world.events()

    state, events = run_virtually(again())
    assert ran(events) == ran([msgspec.convert(event, Event) for event in kept["events"]])
    assert (state.ctx, state.result) == (kept["ends"]["ctx"], kept["ends"]["result"])


def test_the_same_playbook_compiled_now_leaves_no_such_tasks() -> None:
    state, events = run_virtually(ended((RELEASED / "sugar.yaml").read_text(encoding="utf-8")))
    assert ran(events) == ["first#1", "chosen#1", "pause#1", "count#1", "pause#2", "count#2", "last#1", *["add#1"] * 3]
    # Every set_ctx of a key with a reducer contributes: 10 + 5 + 1 + 2 + 3.
    assert state.ctx == {"total": 21}
