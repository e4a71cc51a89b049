"""`limits.max_payload_bytes`: no event is stored above it, whoever wrote it, and what would be ends with kind `limit`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from msgspec.json import encode

from arclog.core.boundary.inputs import WorkReported
from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected, SettingsError
from arclog.model.events import Event
from arclog.model.outcome import Outcome, error, failed
from arclog.plan.build import build
from arclog.ports.tool import TaskContext
from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import SPECS, World
from arclog.testing.laws import check_log
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually

LEAST = 4096
BIG = "x" * 3000
#: Templates that give much more than an event holds, of little text.
HUGE = "{{ 'x' * 500000 }}"


def book(*steps: dict[str, Any], limit: int = LEAST, **spec: Any) -> str:
    spec["policy"] = {"limits": {"max_payload_bytes": limit}}
    return json.dumps({"metadata": {"name": "limits"}, "executor": {"spec": spec}, "workflow": list(steps)})


def step(name: str = "start", tool: Any = None, *arcs: dict[str, Any], **more: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"step": name, "tool": tool or {"kind": "noop"}, **more}
    return {**made, "next": {"arcs": list(arcs)}} if arcs else made


async def ended(text: str, **options: Any) -> State:
    async with World(text, **options) as world:
        state = await world.run()
        stored = await world.stored()
        check_log(stored, state.scope)
        cap = world.program.plan.limits.max_payload_bytes
        sizes = {len(encode(row.event)): row.event.type for row in stored}
        assert max(sizes) <= cap, f"{sizes[max(sizes)]} takes {max(sizes)} bytes"
        return state


RULE = {"else": {"then": {"do": "continue"}}}
WAITS = {"kind": "wait", "for_s": 1}
CASES: dict[str, str] = {
    "next.evaluated: args of an arc": book(step("start", None, {"step": "end", "args": {"a": HUGE}}), step("end")),
    "next.evaluated: a condition": book(
        step("start", None, {"step": "end", "when": "{{ '" + "x" * 5000 + "' != '' }}"}), step("end")
    ),
    "step.scheduled: args": book(step("start", None, args={"a": HUGE})),
    "step.scheduled: items": book(step(loop={"in": "{{ range(2000) | map('string') | list }}", "iterator": "x"})),
    "loop.started: inner items": book(
        step(loop={"in": [1], "iterator": "x", "loop": {"in": "{{ [iter.x] * 5000 }}", "iterator": "y"}})
    ),
    "playbook.finished: result": book(step(), result=HUGE),
    "task.started: config of a task that waits": book(step("start", {"kind": "wait", "signal": HUGE})),
    "policy.task.evaluated: set_ctx": book(
        step("start", {"kind": "noop", "spec": {"policy": {"rules": [{"else": {"then": {"set_ctx": {"a": HUGE}}}}]}}})
    ),
    "policy.task.evaluated: many small keys": book(
        step(
            "start",
            {
                "kind": "noop",
                "spec": {
                    "policy": {"rules": [{"else": {"then": {"set_ctx": {f"k{n}": "x" * 500 for n in range(20)}}}}]}
                },
            },
        )
    ),
    "policy.task.evaluated: the server's": book(
        step("start", {**WAITS, "spec": {"policy": {"rules": [{"else": {"then": {"set_iter": {"a": HUGE}}}}]}}})
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_an_event_cannot_hold_ends_the_run_with_kind_limit(case: str) -> None:
    state = run_virtually(ended(CASES[case]))
    assert state.status == "FAILED", case
    assert state.error is not None
    assert (state.error["kind"], "limits.max_" in state.error["message"]) == ("limit", True), state.error


def test_a_workload_that_no_event_holds_is_a_request_that_cannot_run() -> None:
    state = run_virtually(ended(book(step()), workload={"rows": "x" * 10_000}))
    assert (state.status, state.error and state.error["kind"]) == ("FAILED", "limit")
    assert state.error is not None
    assert "the workload and files of the request" in state.error["message"]
    assert state.step_runs == 0


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        ({"kind": "act", "returns": "x" * 1500}, None),
        ({"kind": "act", "returns": BIG}, BIG),
        ({"kind": "act", "returns": ["x" * 100] * 1000}, None),
        ({"kind": "act", "fail_attempts": 1, "spec": {"policy": {"rules": [
            {"when": "{{ outcome.status == 'error' }}", "then": {"do": "retry", "attempts": 2, "delay": 0}},
            RULE]}}}, None),
        ({"kind": "noop", "data": "x" * 1800}, None),
        (WAITS, None),
    ],
)  # fmt: skip
def test_at_the_floor_ordinary_tasks_work(tool: dict[str, Any], result: Any) -> None:
    state = run_virtually(ended(book(step("start", tool, {"step": "end"}), step("end", {"kind": "act", "returns": 1}))))
    assert (state.status, state.result) == ("COMPLETED", 1)


def test_at_the_floor_inputs_are_shown_as_a_preview() -> None:
    state = run_virtually(ended(book(step("start", {"kind": "act", "returns": {"a": BIG}}))))
    assert state.status == "COMPLETED"


def test_many_values_of_iter_that_no_event_holds_together_are_stored() -> None:
    sets = {"set_iter": {f"k{n}": "x" * 900 for n in range(4)}}
    tool = [
        {"name": "a", "kind": "noop", "spec": {"policy": {"rules": [{"else": {"then": sets}}]}}},
        {"name": "b", "kind": "act", "returns": "{{ iter.k0 ~ iter.k3 | length }}"},
    ]
    state = run_virtually(ended(book(step("start", tool))))
    assert (state.status, state.result) == ("COMPLETED", "x" * 900 + "900")


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_a_loop_with_long_errors_names_as_many_as_fit(mode: str) -> None:
    async def fails(call: Call, context: TaskContext) -> Outcome | None:
        return failed(error("exception", "no " * 5000)) if call.step == "start" else None

    loop = {"in": "{{ range(200) }}", "iterator": "x", "spec": {"mode": mode}}
    arcs = {"step": "end", "when": "{{ event.name == 'loop.done' }}", "args": {"n": "{{ event.payload.failed }}"}}
    many = step("start", {"kind": "act"}, arcs, loop=loop, spec={"policy": {"failure": {"mode": "best_effort"}}})
    state = run_virtually(ended(book(many, step("end", {"kind": "act", "returns": "{{ args.n }}"})), hook=fails))
    assert (state.status, state.result) == ("COMPLETED", 200)


def test_a_long_message_of_a_task_is_cut_and_says_so() -> None:
    async def fails(call: Call, context: TaskContext) -> Outcome | None:
        return failed(error("exception", "why " * 100_000), py={"traceback": "t" * 100_000})

    state = run_virtually(ended(book(step("start", {"kind": "act"})), hook=fails))
    assert state.error is not None
    assert state.error["kind"] == "exception"
    assert "more characters)" in state.error["message"]


def test_a_worker_that_reports_more_ends_the_run() -> None:
    """Whatever a worker sends, and however: nothing above the limit reaches the log."""

    async def main() -> None:
        async with World(book(step("start", {"kind": "act"}, {"step": "end"}), step("end"))) as world:
            await world.start()
            command = (await world.store.commands(world.execution_id))[0]
            outcome = {"status": "ok", "result": "x" * 10_000, "meta": {}}
            at: dict[str, Any] = {"at": world.clock.now(), "step": "start", "run": 1}
            task: dict[str, Any] = {**at, "task": "start_task", "task_run": 1}
            events = [
                Event("step.started", **at),
                Event("task.started", **task),
                Event("task.done", **task, payload={"outcome": outcome}),
                Event("step.done", **at),
            ]
            report = WorkReported(command.command_id, 1, 1, "w", events)
            answer = await world.current_life.engine.put(world.execution_id, report)
            assert answer.refused is not None
            assert "task.done of step start takes" in answer.refused.message
            state = await world.state()
            assert (state.status, state.error and state.error["kind"]) == ("FAILED", "limit")
            assert max(len(encode(row.event)) for row in await world.stored()) < LEAST

    run_virtually(main())


def test_a_signal_that_no_event_holds_is_refused_and_the_run_goes_on() -> None:
    async def main() -> State:
        async with World(book(step("start", {"kind": "wait", "signal": "go"}))) as world:
            await world.start()
            task = asyncio.ensure_future(world.run())
            await world.clock.sleep(1.0)
            with pytest.raises(RequestRejected, match=r"an event holds 2048 \(limits.max_payload_bytes\)"):
                await world.current_life.api.signal(str(world.execution_id), SignalRequest("go", data="x" * 5000))
            await world.current_life.api.signal(str(world.execution_id), SignalRequest("go", data="x" * 100))
            return await task

    assert run_virtually(main()).status == "COMPLETED"


@pytest.mark.parametrize("limit", [1024, LEAST - 1])
def test_a_limit_below_the_floor_is_an_error_with_its_place(limit: int) -> None:
    made = build(book(step(), limit=limit), "p.yaml", SPECS)
    assert [(finding.code, finding.at.line > 0) for finding in made.errors] == [("out-of-range", True)]
    assert "below the lowest value allowed, 4096" in made.errors[0].message


def test_an_operators_ceiling_has_the_same_floor() -> None:
    with pytest.raises(SettingsError, match="4096"):
        Settings({"limits.max_payload_bytes": 1024})
