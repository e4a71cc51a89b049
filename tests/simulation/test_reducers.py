"""ctx keys with a reducer: every `set_ctx` contributes a value, in branches, sequences, rounds and loops alike."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from arclog.core.transitions.state import State
from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually

VALUES: dict[str, tuple[Any, list[Any], Any]] = {
    "sum": (10, [1, 2, 3], 16),
    "count": (0, ["a", None, {}], 3),
    "min": (5, [7, 3, 4], 3),
    "max": (5, [7, 3, 4], 7),
    "append": (["x"], [1, [2], None], ["x", 1, [2], None]),
    "union": ([1], [[1, 2], 3, 2], [1, 2, 3]),
    "merge": ({"a": 0}, [{"b": 1}, {"a": 2}, {"c": 3}], {"a": 2, "b": 1, "c": 3}),
    "last": (0, [1, 2, 3], 3),
}


def sets(name: str, value: Any, takes: float = 0.0, **more: Any) -> dict[str, Any]:
    rule = {"else": {"then": {"set_ctx": {"key": value}, **more}}}
    return {"name": name, "kind": "act", "takes": takes, "spec": {"policy": {"rules": [rule]}}}


def book(reducer: str, initial: Any, *steps: dict[str, Any]) -> str:
    spec = {"ctx": {"key": {"reducer": reducer, "initial": initial}}, "result": "{{ ctx.key }}"}
    return json.dumps({"metadata": {"name": "reducers"}, "executor": {"spec": spec}, "workflow": list(steps)})


def chain(*tools: Any) -> list[dict[str, Any]]:
    steps = [{"step": f"s{number}", "tool": tool} for number, tool in enumerate(tools)]
    for step, following in pairwise(steps):
        step["next"] = {"arcs": [{"step": following["step"]}]}
    return steps


async def ended(text: str, **options: Any) -> State:
    async with World(text, **options) as world:
        state = await world.run()
        check_log(await world.stored(), state.scope)
        return state


def result(text: str) -> Any:
    state = run_virtually(ended(text))
    assert state.status == "COMPLETED", state.error
    return state.result


@pytest.mark.parametrize("reducer", VALUES)
def test_in_a_sequence_of_steps(reducer: str) -> None:
    initial, values, expected = VALUES[reducer]
    assert result(book(reducer, initial, *chain(*([sets("t", value)] for value in values)))) == expected


@pytest.mark.parametrize("reducer", VALUES)
def test_in_a_sequence_of_tasks(reducer: str) -> None:
    initial, values, expected = VALUES[reducer]
    tasks = [sets(f"t{number}", value) for number, value in enumerate(values)]
    assert result(book(reducer, initial, {"step": "start", "tool": tasks})) == expected


@pytest.mark.parametrize("reducer", VALUES)
@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_in_loops_each_task_of_an_item_contributes(reducer: str, mode: str) -> None:
    initial, values, expected = VALUES[reducer]
    first = sets("a", "{{ iter.v }}")
    loop = {"in": [{"v": value} for value in values], "iterator": "v", "spec": {"mode": mode}}
    step = {"step": "start", "loop": loop, "tool": [{**first, "spec": _of(first, "{{ iter.v.v }}")}]}
    assert result(book(reducer, initial, step)) == expected
    doubled = {**step, "tool": [*step["tool"], {**sets("b", None), "spec": _of(first, "{{ iter.v.v }}")}]}
    if reducer in ("sum", "count"):
        assert result(book(reducer, 0, doubled)) == 2 * (expected - initial)


def _of(task: dict[str, Any], value: Any) -> dict[str, Any]:
    rule = {"else": {"then": {"set_ctx": {"key": value}}}}
    return {**task["spec"], "policy": {"rules": [rule]}}


@pytest.mark.parametrize("reducer", ["sum", "count", "min", "max", "append", "union", "merge"])
def test_branches_that_run_at_once_lose_nothing(reducer: str) -> None:
    """They end in the other order than they were started in: what counts is when each of them ended."""
    initial, values, _ = VALUES[reducer]
    arcs = {"spec": {"mode": "inclusive"}, "arcs": [{"step": f"b{n}"} for n in range(3)]}
    branches = [
        {"step": f"b{n}", "tool": [sets("t", value, takes=3.0 - n)], "next": {"arcs": [{"step": "end"}]}}
        for n, value in enumerate(values)
    ]
    end = {"step": "end", "spec": {"join": "all"}, "tool": {"kind": "noop"}}
    text = book(reducer, initial, {"step": "start", "tool": {"kind": "noop"}, "next": arcs}, *branches, end)
    state = run_virtually(ended(text, workers=3))
    backwards = list(reversed(values))
    expected = {
        "append": [*initial, *backwards] if reducer == "append" else None,
        "union": [1, 2, 3],
        "merge": {"a": 2, "b": 1, "c": 3},
    }.get(reducer, VALUES[reducer][2])
    assert state.result == expected


def test_a_pipeline_sees_its_own_contributions_at_once() -> None:
    peek = {"name": "peek", "kind": "act", "returns": "{{ ctx.key }}"}
    steps = chain(
        [sets("a", 5), sets("b", "{{ ctx.key }}"), peek], {"kind": "act", "returns": "{{ [ctx.key, s0.data] }}"}
    )
    # 10, plus 5, plus the 15 that it then saw.
    text = json.loads(book("sum", 10, *steps))
    del text["executor"]["spec"]["result"]
    assert result(json.dumps(text)) == [30, 30]


def test_rounds_of_a_while_contribute_one_by_one() -> None:
    step = {"step": "start", "tool": [{"while": {"when": "{{ ctx.key < 5 }}", "max": 9, "do": [sets("t", 1)]}}]}
    assert result(book("sum", 0, step)) == 5


@pytest.mark.parametrize(
    "loop", [None, {"in": [1], "iterator": "x"}, {"in": [1], "iterator": "x", "spec": {"mode": "parallel"}}]
)
def test_a_value_that_the_reducer_cannot_take_fails_the_step_and_names_the_key(loop: Any) -> None:
    step: dict[str, Any] = {"step": "start", "tool": [sets("t", "text")]}
    if loop:
        step |= {"loop": loop, "spec": {"policy": {"failure": {"mode": "best_effort"}}}}
    state = run_virtually(ended(book("sum", 0, step)))
    assert state.status == "FAILED"
    assert state.error is not None
    assert (state.error["kind"], state.error["code"], state.error["step"]) == ("conflict", "CTX_REDUCER", "start")
    assert "ctx.key text, which the reducer sum cannot take" in state.error["message"]
    assert state.ctx == {"key": 0}


def test_a_sum_beyond_every_float_fails_the_run() -> None:
    state = run_virtually(ended(book("sum", 1.7e308, *chain([sets("t", 1.7e308)], {"kind": "noop"}))))
    assert (state.status, state.error and state.error["code"]) == ("FAILED", "CTX_REDUCER")
    assert state.ctx == {"key": 1.7e308}


def test_what_grows_is_bounded_everywhere() -> None:
    text = json.loads(book("append", [], *chain(*[[sets("t", "x" * 400)]] * 3)))
    text["executor"]["spec"]["policy"] = {"limits": {"max_loop_results_bytes": 1000}}
    state = run_virtually(ended(json.dumps(text)))
    assert (state.status, state.error and state.error["kind"]) == ("FAILED", "limit")
    assert state.error is not None
    assert "ctx.key has grown" in state.error["message"]


def test_an_operator_sets_such_a_key_and_cannot_break_it() -> None:
    steps = chain([sets("t", 1)], [{"name": "hold", "kind": "wait", "signal": "go"}], [sets("t", 1)])

    async def main() -> State:
        async with World(book("sum", 0, *steps)) as world:
            await world.start()
            task = asyncio.ensure_future(world.run())
            await world.clock.sleep(1.0)
            api, run = world.current_life.api, str(world.execution_id)
            refused = await api.signal(run, SignalRequest("UPDATE_PARAMS", data={"key": "text"}))
            assert refused.message == "ctx.key has the reducer sum, which cannot continue from text"
            assert (await api.signal(run, SignalRequest("UPDATE_PARAMS", data={"key": 40}))).accepted
            await api.signal(run, SignalRequest("go"))
            return await task

    assert run_virtually(main()).ctx == {"key": 41}
