"""What the language's newer keys do to a run: assertions, messages, delays, ends, joins, inputs, and when it began."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.model.errors import InputsRefused
from arclog.model.events import Event
from arclog.ports.views.api import ExecuteRequest
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually


def book(*steps: dict[str, Any], **spec: Any) -> str:
    return json.dumps({"metadata": {"name": "p", "path": "p"}, "executor": {"spec": spec}, "workflow": list(steps)})


def step(name: str, *tasks: dict[str, Any], to: list[Any] | None = None, **more: Any) -> dict[str, Any]:
    arcs = [{"step": arc} if isinstance(arc, str) else arc for arc in to or []]
    made = {"step": name, "tool": list(tasks) or [{"kind": "noop"}], **more}
    return {**made, "next": {"spec": {"mode": "inclusive"}, "arcs": arcs}} if arcs else made


async def ended(text: str, **options: Any) -> tuple[State, list[Event]]:
    async with World(text, **options) as world:
        state = await world.run()
        stored = await world.stored()
        check_log(stored, state.scope)
        again = State(execution_id=world.execution_id)
        for row in stored:
            apply(world.program, again, row.event)
        assert again == (await world.current_life.engine.live.folded(world.execution_id)).state
        return state, [row.event for row in stored]


def ran(text: str, **options: Any) -> tuple[State, list[Event]]:
    return run_virtually(ended(text, **options))


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtually(main())


FAILED = {"step": "clean", "when": "event.name == 'step.failed'"}
BROKEN = {"name": "broken", "kind": "assert", "that": "false", "message": "boom"}


def test_an_assertion_that_holds_is_an_ok_outcome() -> None:
    task = {"name": "sure", "kind": "assert", "that": ["workload.n == 1", "{{ not b }}", True], "message": "{{ b.x }}"}
    text = json.loads(book(step("start", task), step("b"), result="{{ start.data.checked }}"))
    state, _ = ran(json.dumps({**text, "workload": {"n": 1}}))
    assert (state.status, state.result) == ("COMPLETED", 3)


def test_an_assertion_that_does_not_hold_says_which() -> None:
    task = {"name": "sure", "kind": "assert", "that": ["1 == 1", "1 == 2", "2 == 3"]}
    state, _ = ran(book(step("start", task)))
    assert state.error is not None
    assert (state.error["kind"], state.error["code"]) == ("exception", "ASSERT")
    assert state.error["message"] == "does not hold: 1 == 2; 2 == 3"


def test_a_failing_rule_gives_the_error_its_message_and_keeps_the_cause() -> None:
    rule = {"else": {"then": {"do": "fail", "message": "no rows: {{ outcome.error.message }}", "code": "EMPTY"}}}
    task = {"name": "a", "kind": "act", "fail_attempts": 9, "spec": {"policy": {"rules": [rule]}}}
    state, _ = ran(book(step("start", task)))
    assert state.error is not None
    assert state.error["message"] == "no rows: attempt 1 of a fails as scripted"
    assert (state.error["code"], state.error["cause"]["message"]) == ("EMPTY", "attempt 1 of a fails as scripted")


def test_a_message_that_cannot_be_rendered_fails_the_policy() -> None:
    rule = {"else": {"then": {"do": "fail", "message": "{{ outcome.data.x.y }}"}}}
    state, _ = ran(book(step("start", {"name": "a", "kind": "act", "spec": {"policy": {"rules": [rule]}}})))
    assert state.error is not None
    assert state.error["kind"] == "template"


def test_delays_are_taken_one_by_one_and_the_last_repeats() -> None:
    task = {"name": "a", "kind": "act", "fail_attempts": 3, "error": "timeout"}
    text = book(step("start", task), retry={"attempts": 4, "delays": [1, 5]})
    state, events = ran(text)
    assert state.status == "COMPLETED"
    waits = [event.payload["due"] - event.at for event in events if "due" in event.payload]
    assert waits == [1_000_000, 5_000_000, 5_000_000]


def test_a_long_delay_is_a_durable_timer() -> None:
    task = {
        "name": "a",
        "kind": "act",
        "fail_attempts": 1,
        "spec": {"retry": {"delays": [7000], "on": ["exception"], "max_delay": 7000}},
    }
    state, events = ran(book(step("start", task)))
    assert state.status == "COMPLETED"
    assert any(event.payload.get("suspended") for event in events)


def test_what_an_ok_outcome_sets_is_not_set_by_an_error() -> None:
    task = {"name": "a", "kind": "act", "returns": 5, "spec": {"set_ctx": {"n": "{{ outcome.data }}"}}}
    state, _ = ran(book(step("start", task), result="{{ ctx.n }}"))
    assert state.result == 5
    state, _ = ran(book(step("start", {**task, "fail_attempts": 9})))
    assert (state.status, state.ctx) == ("FAILED", {})


def test_a_step_that_ends_the_run_as_failed_names_what_was_handled() -> None:
    text = book(step("start", BROKEN, to=[FAILED]), step("clean", to=["last"]), step("last", spec={"end": "failed"}))
    state, events = ran(text)
    assert state.status == "FAILED"
    assert state.error is not None
    assert state.error["message"] == "step last ends the run as failed: step start: boom"
    assert (state.error["code"], state.error["cause"]["step"]) == ("END", "start")
    (end,) = [event.payload["end"] for event in events if "end" in event.payload]
    assert end["state"] == "failed"


def test_other_branches_go_on_when_a_step_ends_the_run_as_failed() -> None:
    slow = step("slow", {"kind": "act", "takes": 50})
    state, events = ran(book(step("start", to=["bad", "slow"]), step("bad", spec={"end": "failed"}), slow))
    assert state.status == "FAILED"
    assert [event.step for event in events if event.type == "step.done"] == ["start", "bad", "slow"]


def test_a_step_that_ends_the_run_as_completed_decides() -> None:
    best = {"policy": {"failure": {"mode": "best_effort"}}}
    late = step("late", {"kind": "act", "takes": 5}, spec={"end": "completed"})
    state, _ = ran(book(step("start", to=["bad", "late"]), step("bad", BROKEN, spec=best), late))
    assert (state.status, state.error) == ("COMPLETED", None)
    state, _ = ran(book(step("start", to=["bad", "late"]), step("bad", BROKEN, spec=best), {**late, "spec": {}}))
    assert state.status == "FAILED"


def joined(branch: dict[str, Any], **more: Any) -> list[str]:
    both = step("both", spec={"join": "all_ok"})
    state, events = ran(book(step("start", to=["a", "b"]), step("a", to=["both"]), branch, both, step("clean"), **more))
    assert state.status == "COMPLETED", state.error
    skipped = [
        event.payload["reason"] for event in events if event.type == "policy.admit.evaluated" and event.step == "both"
    ]
    return skipped or [event.type for event in events if event.step == "both" and event.type == "step.done"]


DENIED = {"policy": {"admit": {"rules": [{"when": "false", "then": {"allow": True}}]}}}


def test_a_join_of_branches_that_must_be_ok() -> None:
    assert joined(step("b", to=["both"])) == ["step.done"]
    assert joined(step("b", to=[{"step": "both", "when": "false"}])) == ["step.done"]  # not chosen is not a failure
    assert joined(step("b", BROKEN, to=["both", FAILED])) == ["join all_ok: step b failed"]
    assert joined(step("b", BROKEN, to=[{"step": "both", "when": "event.name == 'step.failed'"}])) == [
        "join all_ok: step b failed"
    ]
    assert joined(step("b", to=["both"], spec=DENIED)) == ["join all_ok: step b was denied"]


def test_every_template_knows_when_the_run_began() -> None:
    task = {"name": "a", "kind": "act", "returns": "{{ run.started_at }}"}
    arcs = [{"step": "next", "args": {"at": "{{ run.started_at | date }}"}}]
    steps = [step("start", task, to=arcs), step("next", {"kind": "act", "returns": "{{ args.at }}"})]
    state, events = ran(book(*steps, result="{{ [start.data, next.data, run.started_at] }}"))
    (begun,) = [event.at for event in events if event.type == "playbook.started"]
    inside, day, outside = state.result
    assert inside == outside
    assert (day, state.started_at) == (inside[:10], begun)


def test_a_step_called_run_goes_before_it() -> None:
    text = book(step("start", to=["run"]), step("run", {"kind": "act", "returns": 7}), result="{{ run.data }}")
    assert ran(text)[0].result == 7
    text = book(
        step("start", {"kind": "act", "returns": "{{ 'yes' if run else 'no' }}"}, to=["run"]),
        step("run"),
        result="{{ start.data }}",
    )
    assert ran(text)[0].result == "no"


# -- inputs ---------------------------------------------------------------------------------------------------------------

TYPED = book(
    step("start"),
    inputs={"n": {"type": "integer", "required": True}, "day": {"type": "date"}},
    result="{{ [workload.n, day] }}",
)


def test_a_request_that_breaks_its_inputs_makes_no_run() -> None:
    async def main() -> None:
        async with World(book(step("start"))) as world:
            api = world.begin_life().api
            with pytest.raises(InputsRefused) as refused:
                await api.execute(ExecuteRequest(TYPED, workload={"n": "x", "m": 1}))
            assert [path for path, _ in refused.value.faults] == ["n", "m"]
            assert await world.store.executions(limit=10) == []

    run(main)


def test_a_request_is_converted_before_it_is_written() -> None:
    async def main() -> None:
        async with World(book(step("start"))) as world:
            api = world.begin_life().api
            first = await api.execute(ExecuteRequest(TYPED, workload={"n": "5"}, idempotency_key="k"))
            again = await api.execute(ExecuteRequest(TYPED, workload={"n": 5}, idempotency_key="k"))
            assert (first.execution_id, first.created, again.created) == (again.execution_id, True, False)
            (event,) = await world.store.events(int(first.execution_id), limit=1)
            assert event.event.payload["workload"] == {"n": 5}

    run(main)


def test_a_key_that_nothing_reads_is_a_warning() -> None:
    async def main() -> None:
        async with World(book(step("start"))) as world:
            api = world.begin_life().api
            text = json.dumps(
                {**json.loads(book(step("start"), result="{{ workload.region }}")), "workload": {"region": "a"}}
            )
            started = await api.execute(ExecuteRequest(text, workload={"reigon": "b"}))
            assert started.warnings == ["workload.reigon: nothing in the playbook reads this key; did you mean region?"]
            started = await api.execute(ExecuteRequest(text, workload={"region": "b"}))
            assert not started.warnings

    run(main)


def test_a_child_whose_inputs_do_not_fit_fails_and_says_why() -> None:
    async def main() -> None:
        call = {"name": "call", "kind": "playbook", "path": "child", "args": {"n": "many"}}
        child = json.loads(TYPED)
        child["metadata"] = {"name": "child", "path": "child"}
        async with World(book(step("start", call))) as world:
            await world.register(json.dumps(child))
            state = await world.run()
            assert state.error is not None
            assert "n: expected an integer, found 'many'" in state.error["message"]
            records = [record for record in await world.store.executions(limit=10) if record.new.name == "child"]
            events = await world.store.events(records[0].execution_id, limit=100)
            assert [row.event.type for row in events][:3] == [
                "playbook.execution.requested", "playbook.request.evaluated", "playbook.finished",
            ]  # fmt: skip
            assert events[2].event.payload["error"]["code"] == "INPUTS"

    run(main)
