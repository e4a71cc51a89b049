"""Timers and waits in virtual time: never early, once, whatever dies meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.core.boundary.inputs import Signal, TimerFired
from arclog.core.transitions.state import State
from arclog.model.events import Event
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.virtual import START, LoopClock, run_virtually
from tests.simulation.support import EAGER, Mortal

MICROS = 1_000_000


def playbook(tool: str, *, step: str = "", more: str = "", root: str = "") -> str:
    return f"""
metadata: {{name: timed}}
{root}
workflow:
  - step: start
    {step}
    tool:
{tool}
{more}
"""


WAIT = """
      - {name: before, kind: act, returns: 1}
      - {name: rest, kind: wait, for_s: 600}
      - {name: after, kind: act, returns: {n: "{{ before.data + 1 }}", waited: "{{ rest.waited_ms }}"}}
"""


async def ran(text: str, **options: Any) -> tuple[State, list[Event], World]:
    async with World(text, settings=EAGER, **options) as world:
        state = await world.run()
        check_log(await world.stored(), "timed")
        assert await world.state() == state
        assert not state.waits
        assert not state.timers
        assert await world.store.next_due() is None
        return state, await world.events(), world


def at(events: list[Event], kind: str, nth: int = 0) -> float:
    """When an event happened, in seconds of virtual time."""
    return ([event for event in events if event.type == kind][nth].at - START) / MICROS


def test_a_wait_holds_no_worker_and_the_pipeline_goes_on_after_it() -> None:
    state, events, world = run_virtually(ran(playbook(WAIT)))
    assert state.result == {"n": 2, "waited": 600_000}
    assert at(events, "timer.fired") - at(events, "command.completed") == 600
    types = [event.type for event in events]
    assert types[types.index("timer.fired") - 1 :][:5] == [
        "command.completed", "timer.fired", "task.done", "command.issued", "task.started",
    ]  # fmt: skip
    # The tasks around the wait were done once each.
    assert [call.task for call in world.ledger.calls] == ["before", "after"]


@pytest.mark.parametrize(
    ("config", "ends"),
    [
        ("until: '2027-01-15T08:10:00Z'", 600),
        ("until: '2027-01-15T10:10:00+02:00'", 600),
        ("until: '2020-01-01T00:00:00Z'", 0),
        ("for_s: 0", 0),
        ("for_s: 0.25", 0.25),
        ("for_s: '{{ 2 * 30 }}'", 60),
    ],
)
def test_ways_to_wait(config: str, ends: float) -> None:
    state, events, _ = run_virtually(ran(playbook(f"      - {{name: rest, kind: wait, {config}}}")))
    assert state.status == "COMPLETED"
    assert at(events, "timer.fired") == pytest.approx(ends, abs=0.001)
    assert state.result["waited_ms"] == pytest.approx(ends * 1000, abs=1)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("for_s: '{{ \"soon\" }}'", "number of seconds"),
        ("for_s: '{{ -1 }}'", "0 or more"),
        ("for_s: '{{ 10 ** 15 }}'", "at most"),
        ("until: tomorrow", "RFC 3339"),
        ("until: '2027-01-15T08:10:00'", "offset"),
        ("for_s: 1, timeout_s: 5", "timeout_s goes with signal"),
        ("signal: '{{ 3 }}'", "name"),
        ("for_s: '{{ nothing }}'", "nothing"),
    ],
)
def test_a_config_that_cannot_be_waited_for_is_an_error_outcome(config: str, says: str) -> None:
    state, _, _ = run_virtually(ran(playbook(f"      - {{name: rest, kind: wait, {config}}}")))
    assert state.status == "FAILED"
    assert state.error is not None
    assert state.error["kind"] in {"config", "template"}
    assert says in state.error["message"]


@pytest.mark.parametrize("kind", ["kind: wait, signal: go", "kind: approval, prompt: 'go?'"])
def test_what_nobody_answers_times_out(kind: str) -> None:
    policy = "spec: {policy: {rules: [{when: \"{{ outcome.error.kind == 'timeout' }}\", then: {do: jump, to: late}}, {else: {then: {do: fail}}}]}}"
    tool = f"""
      - {{name: ask, {kind}, timeout_s: 30, {policy}}}
      - {{name: late, kind: act, returns: late}}
"""
    state, events, _ = run_virtually(ran(playbook(tool)))
    assert state.result == "late"
    assert at(events, "timer.fired") == 30


def test_a_wait_inside_a_loop_goes_on_where_it_stopped() -> None:
    tool = """
      - {name: a, kind: act, returns: "{{ iter.x }}"}
      - {name: rest, kind: wait, for_s: "{{ iter.x }}", spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {sum: "{{ (ctx.sum | default(0)) + iter.x }}"}}}}]}}}
"""
    text = playbook(tool, step="loop: {in: [10, 20, 30], iterator: x}")
    state, events, world = run_virtually(ran(text))
    assert state.ctx == {"sum": 60}
    assert [event.iteration for event in events if event.type == "loop.iteration.done"] == [(0,), (1,), (2,)]
    assert at(events, "loop.done") == 60
    assert len(world.ledger.calls) == 3


def test_a_long_retry_is_a_timer_and_a_short_one_is_slept() -> None:
    def of(delay: int) -> str:
        policy = f"{{policy: {{rules: [{{when: \"{{{{ outcome.status == 'error' }}}}\", then: {{do: retry, attempts: 3, delay: {delay}}}}}]}}}}"
        return playbook(f"      - {{name: a, kind: act, returns: 1, fail_attempts: 2, spec: {policy}}}")

    _, events, _ = run_virtually(ran(of(60)))
    assert "timer.fired" not in [event.type for event in events]
    state, events, world = run_virtually(ran(of(61)))
    assert (state.status, state.result) == ("COMPLETED", 1)
    assert [event.type for event in events].count("timer.fired") == 2
    assert at(events, "step.done") == 122
    assert [call.attempt for call in world.ledger.calls] == [1, 2, 3]


def test_an_engine_task_is_tried_again() -> None:
    policy = (
        "{policy: {rules: [{when: \"{{ outcome.status == 'error' }}\", then: {do: retry, attempts: 3, delay: 5}}]}}"
    )
    text = playbook(f"      - {{name: ask, kind: wait, signal: go, timeout_s: 10, spec: {policy}}}")
    state, events, _ = run_virtually(ran(text))
    assert state.status == "FAILED"
    assert state.error is not None
    assert state.error["kind"] == "timeout"
    assert [event.attempt for event in events if event.type == "task.attempt.failed"] == [1, 2, 3]
    assert at(events, "step.failed") == 40


# -- late steps and runs -------------------------------------------------------------------------------------------------


SLOW = "      - {name: slow, kind: act, takes: 1000}"
CAUGHT = """    next: {arcs: [{step: caught, when: "{{ event.name == 'step.failed' and event.payload.error.kind == 'timeout' }}"}]}
  - step: caught
    tool: {kind: act, returns: caught}
"""


@pytest.mark.parametrize(
    ("step", "root"),
    [
        ("spec: {policy: {lifecycle: {timeout_s: 50}}}", ""),
        ("spec: {policy: {lifecycle: {deadline_s: 50}}}", ""),
        ("", "executor: {spec: {policy: {defaults: {timeouts: {step_s: 50}}}}}"),
    ],
)
@pytest.mark.parametrize("tool", [SLOW, "      - {name: slow, kind: wait, for_s: 1000}"])
def test_a_late_step_fails_and_is_routed(step: str, root: str, tool: str) -> None:
    state, events, world = run_virtually(ran(playbook(tool, step=step, root=root, more=CAUGHT)))
    assert (state.status, state.result) == ("COMPLETED", "caught")
    assert at(events, "step.failed") == 50
    types = [event.type for event in events]
    if tool == SLOW:
        # The worker was told at once, and its task stopped.
        assert "command.cancelled" in types
        assert not world.ledger.calls[0].answered


def test_a_late_loop_fails_also_under_best_effort() -> None:
    step = "loop: {in: [1, 2, 3], iterator: x}\n    spec: {policy: {lifecycle: {timeout_s: 50}, failure: {mode: best_effort}}}"
    state, events, _ = run_virtually(ran(playbook("      - {kind: act, takes: 30}", step=step, more=CAUGHT)))
    assert state.result == "caught"
    assert "loop.done" not in [event.type for event in events]


def test_a_step_in_time_leaves_no_timer() -> None:
    step = "spec: {policy: {lifecycle: {timeout_s: 50, deadline_s: 100}}}"
    state, events, _ = run_virtually(ran(playbook("      - {kind: act, returns: 1}", step=step)))
    assert state.status == "COMPLETED"
    assert "timer.fired" not in [event.type for event in events]


def test_a_late_run_fails() -> None:
    state, events, _ = run_virtually(ran(playbook(SLOW, root="executor: {spec: {timeout_s: 20}}", more=CAUGHT)))
    assert state.status == "FAILED"
    assert state.error is not None
    assert state.error["kind"] == "timeout"
    assert at(events, "playbook.finished") == 20


# -- faults --------------------------------------------------------------------------------------------------------------


EVERYTHING = playbook(
    """
      - {name: a, kind: act, returns: 1, fail_attempts: 1, spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, delay: 90}}]}}}
      - {name: rest, kind: wait, for_s: 100}
      - {name: ask, kind: wait, signal: never, timeout_s: 30, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
      - {name: b, kind: act, returns: "{{ iter.x }}"}
""",
    step="loop: {in: [1, 2], iterator: x}\n    spec: {policy: {lifecycle: {timeout_s: 3000}}}",
    root="executor: {spec: {timeout_s: 5000, result: '{{ start.results }}'}}",
)


class MortalTimers(Mortal):
    def __init__(self, n: int, when: str) -> None:
        super().__init__(EVERYTHING, n, when)

    async def run(self) -> tuple[State, list[Event]]:
        async with self.world as world:
            state = await world.run()
            check_log(await world.stored(), "timed")
            return state, await world.events()


def test_dying_at_every_commit_changes_nothing_and_fires_each_timer_once() -> None:
    plain = MortalTimers(0, "")
    state, events = run_virtually(plain.run())
    assert (state.status, state.result) == ("COMPLETED", [1, 2])
    fired = sorted(event.payload["timer"] for event in events if event.type == "timer.fired")
    assert len(fired) == len(set(fired)) == 6
    for n in range(1, plain.commits + 1):
        for when in ("before", "after"):
            it = MortalTimers(n, when)
            other, log = run_virtually(it.run())
            assert it.world.lives == 2, (n, when)
            assert (other.status, other.result, other.ctx) == (state.status, state.result, state.ctx), (n, when)
            assert sorted(event.payload["timer"] for event in log if event.type == "timer.fired") == fired, (n, when)
            assert all(event.at >= event.payload["due"] for event in log if event.type == "timer.fired")


class JumpingClock(LoopClock):
    """A wall clock that somebody sets back or forth."""

    def __init__(self) -> None:
        super().__init__()
        self.off = 0

    def now(self) -> int:
        return super().now() + self.off


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_clock_that_jumps_never_makes_a_timer_early_and_fires_it_once(jump_s: int) -> None:
    async def main() -> None:
        clock = JumpingClock()
        async with World(playbook(WAIT), settings=EAGER, clock=clock) as world:
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(300)
            clock.off = jump_s * MICROS
            state = await going
            assert state.result["n"] == 2
            fired = [event for event in await world.events() if event.type == "timer.fired"]
            assert len(fired) == 1
            assert fired[0].at >= fired[0].payload["due"]
            # Back by an hour it takes an hour more; forth by an hour it is late already.
            assert clock.monotonic() == pytest.approx(4200 if jump_s < 0 else 301, abs=2)

    run_virtually(main())


def test_cancel_while_it_waits_ends_it_and_the_timer_comes_to_nothing() -> None:
    async def main() -> None:
        async with World(playbook(WAIT), settings=EAGER) as world:
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(100)
            why = await world.current_life.api.why(str(world.execution_id))
            assert [wait.what for wait in why.waits] == ["timer"]
            assert "rest" in why.summary
            timer = next(iter((await world.state()).timers))
            # Both at once: one wins, the other is refused.
            engine = world.current_life.engine
            cancelled, fired = await asyncio.gather(
                engine.put(world.execution_id, Signal("CANCEL", "stop", "enough")),
                engine.put(world.execution_id, TimerFired(timer)),
            )
            assert cancelled.refused is None
            assert fired.refused is not None
            assert (await going).status == "CANCELLED"
            assert await world.store.next_due() is None

    run_virtually(main())


def test_a_timer_that_is_put_early_or_twice_is_refused_without_events() -> None:
    async def main() -> None:
        async with World(playbook(WAIT), settings=EAGER) as world:
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(100)
            state = await world.state()
            engine, timer = world.current_life.engine, next(iter(state.timers))
            for timer_id, reason in ((timer, "early"), ("wait:nothing", "closed")):
                answer = await engine.put(world.execution_id, TimerFired(timer_id))
                assert answer.refused is not None
                assert answer.refused.reason == reason
            assert (await world.state()) == state
            await going
            check_log(await world.stored(), "timed")

    run_virtually(main())


def test_completion_that_races_a_timeout_ends_the_step_once() -> None:
    step = "spec: {policy: {lifecycle: {timeout_s: 50}}}"
    for takes in (49.999, 50, 50.0001):
        tool = f"      - {{name: slow, kind: act, takes: {takes}, returns: done}}"
        state, events, _ = run_virtually(ran(playbook(tool, step=step, more=CAUGHT)))
        assert state.status == "COMPLETED"
        ends = [event.type for event in events if event.type in {"step.done", "step.failed"} and event.step == "start"]
        assert len(ends) == 1
