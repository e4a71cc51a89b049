"""`state` at every event, and each sentence of `why`, on real runs."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from arclog.engine.views.why import explain
from arclog.model.errors import NotFound, RequestRejected
from arclog.model.ids import micros
from arclog.ports.views.insight import Cause, StateView, Why
from arclog.testing.harness import World
from arclog.testing.playbooks import by_seed
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER, run, seeds

_VIEW = msgspec.json.Decoder(StateView)

LOOP = """
metadata: {name: looped}
workflow:
  - step: start
    args: {a: 1}
    loop: {in: [10, 20, 30], iterator: item}
    tool:
      - {name: look, kind: act, returns: "{{ iter.item }}", takes: 5}
      - name: shake
        kind: act
        takes: 5
        fail_attempts: 1
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 20}}]}}
    next: {arcs: [{step: last, args: {x: 7}}]}
  - step: last
    tool: {kind: act, takes: 1}
"""


async def _paused_at(text: str, seconds: float, look: Any, **more: Any) -> None:
    """Run for a while of virtual time, then look."""
    async with World(text, settings=EAGER, **more) as world:
        life = world.begin_life()
        await world.start()
        life.start_worker("w1")
        await asyncio.sleep(seconds)
        await look(world)


def _why(text: str, seconds: float) -> Why:
    answers: list[Why] = []

    async def look(world: World) -> None:
        answers.append(await world.current_life.api.why(str(world.execution_id)))

    run_virtually(_paused_at(text, seconds, look))
    return answers[0]


def test_the_task_in_flight_and_how_long_it_has_been_running() -> None:
    why = _why(LOOP, 2)
    assert why.waits[0].what == "task"
    assert (
        "step start (run 1), item 1 of 3, task look has been running for 2 s on worker w1, lease until" in why.summary
    )
    assert why.next[0] == f"arclog events {why.execution_id} --follow"


def test_the_second_task_is_named_too() -> None:
    assert "item 1 of 3, task shake has been running for 3 s on worker w1" in _why(LOOP, 8).summary


def test_a_retry_and_when_it_is_due() -> None:
    why = _why(LOOP, 15)
    assert why.waits[0].what == "retry"
    assert "step start (run 1), item 1 of 3, task shake: attempt 2 is due in 15 s, at " in why.summary
    assert why.waits[0].until is not None


def test_a_further_attempt_is_counted() -> None:
    assert "task shake (attempt 2) has been running for 2 s" in _why(LOOP, 32).summary


def test_without_a_worker_it_waits_for_one() -> None:
    async def main() -> None:
        async with World(LOOP) as world:
            world.begin_life()
            await world.start()
            why = await world.current_life.api.why(str(world.execution_id))
            assert why.waits[0].what == "worker"
            assert why.summary == "step start (run 1) waits for a worker that supports act"
            assert why.next[0] == f"arclog resume {why.execution_id}"

    run_virtually(main())


def test_leases_that_are_over_and_holders_that_are_gone() -> None:
    async def main() -> None:
        async with World(LOOP, settings=EAGER) as world:
            life = world.begin_life()
            await world.start()
            life.start_worker("w1")
            await asyncio.sleep(2)
            live = await life.engine.live.get(world.execution_id)
            commands = await world.store.commands(world.execution_id)
            now = world.clock.now()
            gone = explain(live.state, live.program, commands, now, is_alive=lambda _: False)
            assert "is held by worker w1, whose process is gone; its lease ends at" in gone.summary
            there = explain(live.state, live.program, commands, now, is_alive=lambda _: True)
            assert "has been running for 2 s" in there.summary
            late = explain(live.state, live.program, commands, now + 3_600_000_000)
            assert "was held by worker w1, whose lease ended at" in late.summary
            assert "another worker will get it" in late.summary
            # Nobody is left to take it at once.
            for task in life.tasks:
                task.cancel()
            await asyncio.gather(*life.tasks, return_exceptions=True)
            await life.control.end_lease(commands[0])
            again = await life.api.why(str(world.execution_id))
            assert again.waits[0].text.endswith("waits for a worker that supports act, for the second time")
            lost = explain(live.state, live.program, [], now)
            assert lost.waits[0].what == "none"

    run_virtually(main())


def test_a_token_that_nobody_moved_on() -> None:
    async def main() -> None:
        async with World(LOOP, settings=EAGER) as world:
            await world.run()
            seq = next(entry.seq for entry in await world.stored() if entry.event.type == "next.evaluated")
            live = await world.current_life.engine.live.folded(world.execution_id, seq)
            why = explain(live.state, live.program, [], 0)
            assert (why.waits[0].what, why.waits[0].step) == ("token", "last")
            assert why.summary == "step last is ready to start; the engine has not started it yet"
            assert why.next[0] == f"arclog resume {world.execution_id}"
            before = await world.current_life.engine.live.folded(world.execution_id, seq - 1)
            assert explain(before.state, before.program, [], 0).summary == (
                "step start (run 1), item 3 of 3 has ended; its arcs are evaluated next"
            )

    run_virtually(main())


def _cause(text: str) -> tuple[Cause, Why]:
    async def main() -> Why:
        async with World(text) as world:
            await world.run()
            return await world.current_life.api.why(str(world.execution_id))

    why = run_virtually(main())
    assert why.state == "FAILED"
    assert why.waits == []
    assert why.cause is not None
    return why.cause, why


def test_the_root_cause_is_the_task_that_nothing_handled() -> None:
    cause, why = _cause("""
metadata: {name: fails}
workflow:
  - step: start
    tool: {kind: act, fail_attempts: 9, error: timeout}
    next: {arcs: [{step: second, when: "{{ event.name == 'step.failed' }}"}]}
  - step: second
    tool:
      - {name: fine, kind: act}
      - {name: boom, kind: act, fail_attempts: 9, error: connection}
""")
    assert (cause.step, cause.task, cause.kind, cause.attempt) == ("second", "boom", "connection", 1)
    assert cause.at == "10:9"
    assert cause.rule == ""
    assert "FAILED: step second, task boom (fails@1:10:9): connection:" in why.summary


def test_the_root_cause_names_attempts_item_and_rule() -> None:
    cause, why = _cause("""
metadata: {name: fails}
workflow:
  - step: start
    loop: {in: [1, 2, 3], iterator: item}
    tool:
      - name: shaky
        kind: act
        fail_attempts: "{{ 9 if iter.index == 1 else 0 }}"
        spec:
          policy:
            rules:
              - {when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 1}}
""")
    assert (cause.task, cause.attempt, cause.iteration) == ("shaky", 3, "1")
    assert "rule 1 at 13:" in cause.rule
    assert cause.rule.endswith("(when {{ outcome.status == 'error' }}) chose retry, and all 3 attempts were used")
    assert "step start, item 1, task shaky, attempt 3" in why.summary


@pytest.mark.parametrize(
    "spec", ["{mode: parallel, max_in_flight: 5}", "{mode: parallel, max_in_flight: 5, policy: {exec: local}}"]
)
def test_an_item_that_was_cancelled_is_not_the_cause(spec: str) -> None:
    cause, _ = _cause(f"""
metadata: {{name: m}}
workflow:
  - step: start
    loop: {{in: [0, 1, 2, 3, 4], iterator: i, spec: {spec}}}
    tool: {{name: t, kind: act, takes: "{{{{ 3 if iter.i == 2 else 10 }}}}", fail_attempts: "{{{{ 1 if iter.i == 2 else 0 }}}}"}}
""")
    assert (cause.task, cause.iteration, cause.kind) == ("t", "2", "exception")


def test_another_run_of_the_same_step_that_was_cancelled_is_not_the_cause() -> None:
    cause, _ = _cause("""
metadata: {name: m}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: work, args: {n: 1}}, {step: work, args: {n: 2}}]}
  - step: work
    tool: {name: t, kind: act, takes: "{{ 5 * args.n }}", fail_attempts: "{{ 1 if args.n == 1 else 0 }}"}
""")
    assert (cause.step, cause.step_run, cause.task, cause.kind) == ("work", 1, "t", "exception")


def test_a_rule_that_fails_a_good_outcome_is_the_cause() -> None:
    cause, _ = _cause("""
metadata: {name: fails}
workflow:
  - step: start
    tool:
      - name: picky
        kind: act
        returns: 1
        spec: {policy: {rules: [{when: "{{ outcome.data == 2 }}", then: {do: continue}}, {else: {then: {do: fail}}}]}}
""")
    assert cause.task == "picky"
    assert cause.rule.startswith("rule 2")
    assert cause.rule.endswith("(else) chose fail")


def test_rules_that_do_not_match_or_cannot_be_evaluated() -> None:
    base = """
metadata: {name: fails}
workflow:
  - step: start
    tool:
      - name: picky
        kind: act
        returns: 1
        spec: {policy: {on_unmatched: fail, rules: [{when: "{{ %s }}", then: {do: continue}}]}}
"""
    assert _cause(base % "outcome.data == 2")[0].rule == "no rule of its policy matched (on_unmatched: fail)"
    assert _cause(base % "outcome.nothing.at_all > 1")[0].rule.startswith("its policy could not be evaluated: ")


def test_a_failure_of_the_step_itself_has_no_task() -> None:
    cause, _ = _cause("""
metadata: {name: fails}
workflow:
  - step: start
    loop: {in: "{{ 5 }}", iterator: item}
    tool: {kind: noop}
""")
    assert (cause.step, cause.task, cause.code) == ("start", "", "NOT_A_LIST")
    assert cause.at == "4:11"


def test_a_decision_that_failed_belongs_to_no_step() -> None:
    cause, _ = _cause("""
metadata: {name: fails}
executor: {spec: {result: "{{ nothing + 1 }}"}}
workflow:
  - {step: start, tool: {kind: noop}}
""")
    assert (cause.step, cause.kind) == ("", "template")


def test_a_completed_run_has_no_cause() -> None:
    async def main() -> None:
        async with World(LOOP) as world:
            await world.run()
            why = await world.current_life.api.why(str(world.execution_id))
            assert (why.cause, why.waits, why.summary) == (None, [], "the run has ended: COMPLETED")
            assert why.next == [f"arclog show {world.execution_id}"]

    run_virtually(main())


# ── state ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_state_shows_loop_task_and_command_while_it_runs() -> None:
    async def look(world: World) -> None:
        view = await world.current_life.api.state(str(world.execution_id))
        (step_run,) = view.step_runs
        assert (step_run.step, step_run.run, step_run.status, step_run.args) == ("start", 1, "running", {"a": 1})
        assert step_run.tasks
        assert (step_run.tasks[0].task, step_run.tasks[0].attempt, step_run.tasks[0].in_flight) == ("shake", 2, False)
        assert step_run.tasks[0].due is not None
        assert micros(step_run.tasks[0].due) > world.clock.now()
        assert step_run.tasks[0].iter == {"item": 10, "index": 0, "total": 3}
        assert step_run.loop is not None
        assert (step_run.loop.handed, step_run.loop.total, step_run.loop.ok, step_run.loop.failed) == (3, 3, 0, 0)
        (command,) = view.commands
        assert (command.command_id, command.fence, command.losses) == (step_run.command_ids[0], 1, 0)
        assert view.steps["start"].status == "running"

    run_virtually(_paused_at(LOOP, 15, look))


def test_state_at_the_edges() -> None:
    async def main() -> None:
        async with World(LOOP, settings=EAGER) as world:
            state = await world.run()
            api, name = world.current_life.api, str(world.execution_id)
            nothing = await api.state(name, 0)
            assert (nothing.at, nothing.state, nothing.event_type, nothing.timestamp) == (0, "PENDING", None, None)
            assert (nothing.tokens, nothing.step_runs, nothing.ctx) == ([], [], {})
            newest = await api.state(name)
            assert newest == await api.state(name, 10**15)
            assert (newest.at, newest.head, newest.state) == (state.head, state.head, "COMPLETED")
            with pytest.raises(RequestRejected, match="no event -1"):
                await api.state(name, -1)
            with pytest.raises(NotFound):
                await api.state("77", 0)
            routed = next(entry.seq for entry in await world.stored() if entry.event.type == "next.evaluated")
            (token,) = (await api.state(name, routed)).tokens
            assert (token.place, token.step, token.args) == ("arc:start:0", "last", {"x": 7})

    run_virtually(main())


@pytest.mark.parametrize("group", seeds(16, 2, first=900), ids=str)
def test_state_can_be_shown_at_every_event_of_any_run(group: range) -> None:
    async def main(text: str) -> None:
        async with World(text, settings=EAGER.replaced(engine__snapshot_events=20)) as world:
            await world.run()
            api, name = world.current_life.api, str(world.execution_id)
            for entry in await world.stored():
                view = await api.state(name, entry.seq)
                assert (view.at, view.event_type) == (entry.seq, entry.event.type)
                assert _VIEW.decode(msgspec.json.encode(view)) == view
                past = await world.state(at=entry.seq)
                assert (view.ctx, view.state, len(view.step_runs)) == (past.ctx, past.status, len(past.open))
                if past.terminal is None:
                    explain(past, world.program, [], entry.event.at)

    for seed in group:
        drawn = by_seed(seed)
        run(drawn, main(drawn.text))


def test_a_cancelled_run_says_so() -> None:
    async def look(world: World) -> None:
        name = str(world.execution_id)
        await world.current_life.api.cancel(name, "enough")
        why = await world.current_life.api.why(name)
        assert why.summary == "the run has ended: CANCELLED: cancelled: enough"
        assert why.cause is None

    run_virtually(_paused_at(LOOP, 2, look))
