"""`executor.spec.final_step`: one last step run, whatever became of the run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.model.events import Event
from arclog.plan.build import build
from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import SPECS, World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually

SEEN = {"event": "{{ event.name }}", "status": "{{ outcome.status }}", "state": "{{ outcome.state }}"}
TELL = {"name": "tell", "kind": "noop", "data": {**SEEN, "why": "{{ error.message if error else '' }}"}}
LAST = {"step": "last", "tool": [{**TELL, "spec": {"set_ctx": {"seen": "{{ outcome.data }}"}}}]}
BROKEN = {"name": "broken", "kind": "assert", "that": "false", "message": "boom"}


def book(*steps: dict[str, Any], **spec: Any) -> str:
    spec = {"final_step": "last", **spec}
    return json.dumps({"metadata": {"name": "p", "path": "p"}, "executor": {"spec": spec}, "workflow": list(steps)})


async def _ended(text: str, during: Any = None) -> tuple[State, list[Event]]:
    async with World(text) as world:
        state = await world.run() if during is None else await during(world)
        stored = await world.stored()
        check_log(stored, state.scope)
        again = State(execution_id=world.execution_id)
        for row in stored:
            apply(world.program, again, row.event)
        assert again == (await world.current_life.engine.live.folded(world.execution_id)).state
        return state, [row.event for row in stored]


def ran(text: str, during: Any = None) -> tuple[State, list[Event]]:
    return run_virtually(_ended(text, during))


def test_it_runs_after_a_success_and_leaves_the_result_alone() -> None:
    state, events = ran(book({"step": "start", "tool": {"kind": "noop", "data": 7}}, LAST))
    assert (state.status, state.result) == ("COMPLETED", 7)
    assert state.ctx["seen"] == {"event": "workflow.finished", "status": "ok", "state": "completed", "why": ""}
    assert [event.step for event in events if event.type == "step.scheduled"] == ["start", "last"]


def test_it_runs_after_a_failure_and_the_run_still_fails_with_it() -> None:
    beside = {"step": "beside", "tool": {"kind": "wait", "for_s": 3600}}
    start = {
        "step": "start",
        "tool": [{"kind": "noop"}],
        "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": "beside"}, {"step": "bad"}]},
    }
    state, events = ran(book(start, beside, {"step": "bad", "tool": [BROKEN]}, LAST))
    assert state.status == "FAILED"
    assert state.error is not None
    assert state.error["message"] == "boom"
    assert state.ctx["seen"]["status"] == "error"
    assert state.ctx["seen"]["why"] == "boom"
    assert state.latest == {"start": "done", "beside": "cancelled", "bad": "failed", "last": "done"}
    assert state.fault is not None
    assert state.fault.step == "bad"
    assert events[-3].type == "workflow.finished"


def test_its_own_failure_fails_a_run_that_had_succeeded() -> None:
    state, _ = ran(book({"step": "start", "tool": {"kind": "noop"}}, {"step": "last", "tool": [BROKEN]}))
    assert state.status == "FAILED"
    assert state.error is not None
    assert (state.error["message"], state.error["step"]) == ("boom", "last")


@pytest.mark.parametrize("mode", ["fail_fast", "best_effort"])
def test_its_own_failure_leaves_the_error_of_a_failed_run_alone(mode: str) -> None:
    last = {
        "step": "last",
        "spec": {"policy": {"failure": {"mode": mode}}},
        "tool": [{**BROKEN, "message": "later"}],
    }
    state, events = ran(book({"step": "start", "tool": [BROKEN]}, last))
    assert state.status == "FAILED"
    assert state.error is not None
    assert state.error["message"] == "boom"
    assert [event.step for event in events if event.type == "step.failed"] == ["start", "last"]


def test_a_final_step_that_takes_too_long_is_ended() -> None:
    state, _ = ran(
        book({"step": "start", "tool": {"kind": "noop"}}, {"step": "last", "tool": {"kind": "wait", "for_s": 1000}})
    )
    assert state.error is not None
    assert (state.error["kind"], state.error["step"]) == ("timeout", "last")
    assert state.ended_at is not None
    assert state.started_at is not None
    assert state.ended_at - state.started_at < 301 * 1_000_000


def test_the_time_limit_of_the_run_leaves_time_for_it() -> None:
    last = {"step": "last", "tool": [{"kind": "wait", "for_s": 60}, TELL]}
    state, _ = ran(book({"step": "start", "tool": {"kind": "wait", "for_s": 100}}, last, timeout_s=10))
    assert state.error is not None
    assert state.error["kind"] == "timeout"
    assert "last" in state.results
    assert state.results["last"]["status"] == "ok"


def with_signals(*signals: tuple[float, str]) -> Any:
    """Signals at moments of virtual time, and then the end."""

    async def during(world: World) -> State:
        life = world.begin_life()
        await world.start()
        life.start_sweeper()
        life.start_worker()
        for number, (after_s, name) in enumerate(signals):
            await asyncio.sleep(after_s)
            request = SignalRequest(name, f"sig-{number}", "enough")
            assert (await life.api.signal(str(world.execution_id), request)).accepted
        await life.api.ended(str(world.execution_id), timeout_s=5000)
        return await world.state()

    return during


SLOW = {"step": "start", "tool": {"kind": "act", "takes": 1000}}


def test_a_cancelled_run_ends_with_it_and_stays_cancelled() -> None:
    state, events = ran(book(SLOW, LAST), with_signals((5, "CANCEL")))
    assert (state.status, state.ctx["seen"]["state"], state.ctx["seen"]["why"]) == ("CANCELLED", "cancelled", "enough")
    assert [event.step for event in events if event.type == "step.failed"] == ["start"]
    assert events[-2].payload["reason"] == "enough"


def test_a_paused_run_that_is_cancelled_ends_with_it() -> None:
    state, _ = ran(book(SLOW, LAST), with_signals((5, "PAUSE"), (2000, "CANCEL")))
    assert (state.status, state.ctx["seen"]["state"]) == ("CANCELLED", "cancelled")


def test_a_second_cancel_ends_the_final_step_too() -> None:
    last = {"step": "last", "tool": {"kind": "act", "takes": 200}}
    state, _ = ran(book(SLOW, last), with_signals((5, "CANCEL"), (5, "CANCEL")))
    assert (state.status, state.latest["last"]) == ("CANCELLED", "cancelled")


def test_an_emergency_stop_does_not_wait_for_it() -> None:
    state, _ = ran(book(SLOW, LAST), with_signals((5, "EMERGENCY_STOP")))
    assert (state.status, "last" in state.latest) == ("CANCELLED", False)


def test_a_killed_final_step_is_run_again_by_the_next_process() -> None:
    async def main() -> None:
        last = {"step": "last", "tool": {"kind": "act", "takes": 10}}
        async with World(book({"step": "start", "tool": {"kind": "noop"}}, last)) as world:
            life = world.begin_life()
            await world.start()
            life.start_sweeper()
            life.start_worker()
            await asyncio.sleep(5)
            await world.crash()
            state = await world.run()
            assert state.status == "COMPLETED"
            assert [call.task for call in world.ledger.calls] == ["last_task", "last_task"]
            check_log(await world.stored(), "test", one_process=False)

    run_virtually(main())


def test_denied_by_its_admission_it_does_not_run() -> None:
    rules = [{"when": "{{ outcome.status == 'error' }}", "then": {"allow": True}}]
    last = {**LAST, "spec": {"policy": {"admit": {"rules": rules}}}}
    state, events = ran(book({"step": "start", "tool": {"kind": "noop"}}, last))
    assert (state.status, "last" in state.results) == ("COMPLETED", False)
    assert [event.status for event in events if event.type == "policy.admit.evaluated"] == ["skipped"]
    state, _ = ran(book({"step": "start", "tool": [BROKEN]}, last))
    assert (state.status, state.ctx["seen"]["status"]) == ("FAILED", "error")


def test_a_loop_can_be_final() -> None:
    last = {"step": "last", "loop": {"in": "{{ range(3) }}", "iterator": "n"}, "tool": [{"kind": "noop"}]}
    state, _ = ran(book({"step": "start", "tool": [BROKEN]}, last))
    assert (state.status, state.tally["last"].ok) == ("FAILED", 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (book({"step": "start", "tool": {"kind": "noop"}}), "there is no step 'last'"),
        (book({"step": "last", "tool": {"kind": "noop"}}), "is the first step"),
        (
            book({"step": "start", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": "last"}]}}, LAST),
            "an arc leads to",
        ),
        (
            book({"step": "start", "tool": {"kind": "noop"}}, {**LAST, "next": {"arcs": [{"step": "start"}]}}),
            "next has no",
        ),
        (book({"step": "start", "tool": {"kind": "noop"}}, {**LAST, "spec": {"join": "all"}}), "spec.join has no"),
    ],
)
def test_what_cannot_be_final_is_an_error(text: str, message: str) -> None:
    errors = build(text, "p.yaml", SPECS).errors
    assert [message in finding.message for finding in errors] == [True]


def test_a_sequence_leads_past_it() -> None:
    noop = {"kind": "noop"}
    text = book({"step": "a", "tool": noop}, LAST, {"step": "b", "tool": noop}, sequence=True)
    state, events = ran(text)
    assert [event.step for event in events if event.type == "step.scheduled"] == ["a", "b", "last"]
    assert state.status == "COMPLETED"
