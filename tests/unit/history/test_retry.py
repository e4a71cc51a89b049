"""A retry keeps all that succeeded, runs the rest again, and is a run like any other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.model.errors import Conflict, RequestRejected
from arclog.ports.views.api import ForkRequest
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from tests.golden.endings import ENDINGS, run
from tests.unit.history.support import called, log_of, replay_of, went_on

LOOP = """
metadata: {name: items}
workload: {broken: true}
workflow:
  - step: start
    tool: {kind: act, returns: [0, 1, 2]}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(20) }}", iterator: n, spec: SPEC}
    spec: {policy: {failure: {mode: MODE}}}
    tool:
      - {name: first, kind: act, returns: "{{ iter.n }}"}
      - {name: second, kind: act, returns: "{{ iter.n * 10 }}", fail_attempts: "{{ 1 if workload.broken and iter.n in [3, 7, 11] else 0 }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: act, returns: "{{ each.results }}"}}
"""


def looped(spec: str, mode: str = "best_effort") -> str:
    return LOOP.replace("SPEC", spec).replace("MODE", mode)


async def retried(text: str, request: ForkRequest, workload: dict[str, Any] | None = None) -> tuple[Any, ...]:
    async with World(text, workload=workload) as world:
        before = await world.run()
        made = len(world.ledger.calls)
        after = await went_on(world, request)
        again = await replay_of(world, after.execution_id)
        assert again.difference is None
        stored = await log_of(world, after.execution_id)
        assert [one.seq for one in stored] == list(range(1, len(stored) + 1))
        return before, after, called(world, made), called(world)[:made]


SPECS = {
    "sequential": "{mode: sequential}",
    "parallel": "{mode: parallel, max_in_flight: 4}",
    "local": "{mode: parallel, max_in_flight: 4, policy: {exec: local}}",
}


@pytest.mark.parametrize("spec", SPECS)
def test_only_the_failed_items_run_again_from_the_task_that_failed(spec: str) -> None:
    request = ForkRequest(failed=True, workload={"broken": False})
    before, after, calls, _ = run_virtually(retried(looped(SPECS[spec]), request))
    assert before.failed_items == 3
    assert after.status == "COMPLETED"
    assert after.failed_items == 0
    assert [step for step, _ in calls] == ["each", "each", "each", "end"]
    assert {task for step, task in calls if step == "each"} == {"second"}
    assert after.result == [n * 10 for n in range(20)]


NESTED = """
metadata: {name: nested}
workload: {broken: true}
workflow:
  - step: each
    loop: {in: "{{ [0, 1] }}", iterator: a, spec: {mode: sequential}, loop: {in: "{{ [0, 1, 2] }}", iterator: b}}
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: act, takes: 2, returns: 1, fail_attempts: "{{ 1 if workload.broken and iter.b == 1 else 0 }}"}
"""


@pytest.mark.parametrize("text", [*map(looped, SPECS.values()), NESTED], ids=[*SPECS, "nested"])
def test_items_that_run_again_take_no_time_between_the_two_runs(text: str) -> None:
    async def main() -> list[float]:
        async with World(text) as world:
            await world.run()
            await asyncio.sleep(5000)
            after = await went_on(world, ForkRequest(failed=True, workload={"broken": False}))
            log = [stored.event for stored in await log_of(world, after.execution_id)]
            kept = log[0].payload["origin"]["events"]
            return [event.duration_ms for event in log[kept:] if event.duration_ms is not None]

    durations = run_virtually(main())
    assert durations
    assert max(durations) < 60_000


@pytest.mark.parametrize("spec", SPECS)
def test_a_loop_that_failed_fast_goes_on_with_the_items_that_did_not_succeed(spec: str) -> None:
    request = ForkRequest(failed=True, workload={"broken": False})
    before, after, calls, first = run_virtually(retried(looped(SPECS[spec], "fail_fast"), request))
    assert before.status == "FAILED"
    assert after.status == "COMPLETED"
    assert after.result == [n * 10 for n in range(20)]
    assert "start" not in {step for step, _ in calls}
    # Forty tasks of items in all; what failed, or was cut off, is done twice at most.
    done = [call for call in first if call[0] == "each"]
    again = [call for call in calls if call[0] == "each"]
    assert 40 < len(done) + len(again) <= 40 + 4


TASKS = """
metadata: {name: tasks}
workload: {broken: true}
executor: {spec: {ctx: {sum: {reducer: sum, initial: 0}}}}
workflow:
  - step: start
    tool: {kind: act, returns: 1}
    next: {spec: {mode: inclusive}, arcs: [{step: left}, {step: right}]}
  - step: left
    tool:
      - {name: a, kind: act, returns: 1, spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {sum: 5}}}}]}}}
      - {name: b, kind: act, returns: "{{ a.data }}", takes: 2, fail_attempts: "{{ 1 if workload.broken else 0 }}"}
    next: {arcs: [{step: join}]}
  - {step: right, tool: {name: r, kind: act, returns: 3, takes: 1}, next: {arcs: [{step: join}]}}
  - {step: join, spec: {join: all}, tool: {name: j, kind: act, returns: "{{ [left, right, ctx.sum] }}"}}
"""


def test_a_failed_step_goes_on_from_its_failed_task() -> None:
    request = ForkRequest(failed=True, workload={"broken": False})
    before, after, calls, _ = run_virtually(retried(TASKS, request))
    assert before.status == "FAILED"
    assert calls == [("left", "b"), ("join", "j")]
    assert after.status == "COMPLETED"
    assert after.ctx == {"sum": 5}
    assert after.origin == {"execution_id": str(before.execution_id), "seq": before.head, "how": "retry", "events": 21}


def test_a_retry_from_a_step_runs_it_whole_and_what_it_led_to() -> None:
    _, after, calls, _ = run_virtually(retried(TASKS, ForkRequest(step="right"), {"broken": False}))
    assert calls == [("right", "r"), ("join", "j")]
    assert after.status == "COMPLETED"
    assert after.origin is not None
    assert after.origin["step"] == "right"


def test_a_changed_playbook_goes_on_with_what_succeeded() -> None:
    fixed = TASKS.replace('takes: 2, fail_attempts: "{{ 1 if workload.broken else 0 }}"', "takes: 1")
    before, after, calls, _ = run_virtually(retried(TASKS, ForkRequest(failed=True, playbook=fixed)))
    assert calls == [("left", "b"), ("join", "j")]
    assert after.status == "COMPLETED"
    assert before.status == "FAILED"


async def refused(text: str, request: ForkRequest, *, running: bool = False) -> None:
    async with World(text) as world:
        if running:
            await world.start()
        else:
            await world.run()
        await world.here.api.fork(str(world.execution_id), request)


def test_what_cannot_be_retried_is_refused() -> None:
    well = TASKS.replace("broken: true", "broken: false")
    with pytest.raises(RequestRejected, match="nothing in the run failed"):
        run_virtually(refused(well, ForkRequest(failed=True)))
    with pytest.raises(RequestRejected, match=r"step 'nowhere' has not run; steps that have: start, left, right, join"):
        run_virtually(refused(well, ForkRequest(step="nowhere")))
    with pytest.raises(RequestRejected, match="exactly one of"):
        run_virtually(refused(well, ForkRequest(step="left", failed=True)))
    with pytest.raises(Conflict, match="has not ended"):
        run_virtually(refused(well, ForkRequest(failed=True), running=True))
    with pytest.raises(RequestRejected, match="has events 1 to"):
        run_virtually(refused(well, ForkRequest(at=10_000)))


async def retried_ending(name: str) -> None:
    async with await run(ENDINGS[name]) as world:
        if not (await world.state()).terminal or (await world.state()).status == "COMPLETED":
            return
        state = await went_on(world, ForkRequest(failed=True))
        assert state.terminal is not None
        found = await replay_of(world, state.execution_id)
        assert found.difference is None
        # A retry can be retried.
        if state.status != "COMPLETED":
            state = await went_on(world, ForkRequest(failed=True), state.execution_id)
            assert (await replay_of(world, state.execution_id)).difference is None


@pytest.mark.parametrize("name", [name for name in ENDINGS if name != "cancel_child"])
def test_whatever_ended_a_run_it_can_be_retried(name: str) -> None:
    run_virtually(retried_ending(name))
