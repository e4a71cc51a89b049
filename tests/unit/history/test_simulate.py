"""A changed playbook against recorded outcomes: no tool is called, and what would have gone another way is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from arclog.core.boundary.inputs import Request
from arclog.history.path_comparison import Compared, compared
from arclog.history.simulate import Limits, Simulated, simulate
from arclog.model.events import Event
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.program import Program
from arclog.testing.harness import SPECS, World
from arclog.testing.playbooks import by_seed
from arclog.testing.virtual import run_virtually
from tests.golden.endings import ENDINGS
from tests.golden.endings import run as run_ending
from tests.unit.history.test_replay import CASES, GOLDEN

ORDER = """
metadata: {name: order}
workload: {limit: 10}
workflow:
  - step: price
    tool: {kind: act, returns: {total: 25}}
    next:
      spec: {mode: exclusive}
      arcs:
        - {step: review, when: "{{ price.total > 100 }}"}
        - {step: ship}
  - step: review
    tool: {kind: act, returns: reviewed}
    next: {arcs: [{step: ship}]}
  - step: ship
    tool: {kind: act, returns: "{{ price.total }}"}
"""


async def tried(
    text: str,
    changed: str,
    *,
    workload: Mapping[str, Any] | None = None,
    renamed: Mapping[str, str] | None = None,
    strict: bool = False,
    **world: Any,
) -> tuple[Simulated, Compared, int]:
    """Run a playbook, then simulate a changed one; how many calls the simulation made, too."""
    async with World(text, **world) as original:
        await original.run()
        calls = len(original.ledger.calls)
        events = await original.events()
        body = net.encode(build_or_raise(changed, "changed.yaml", SPECS, original.settings))
        program = Program(net.decode(body), net.digest(body))
        payload = events[0].payload
        request = Request(payload["path"], 1, {**(payload.get("workload") or {}), **(workload or {})}, payload["scope"])
        simulation = simulate(
            program, original.execution_id, events, original.program, request, renamed or {}, Limits(), strict=strict
        )
        return (
            simulation,
            compared(await original.events(), simulation, renamed or {}),
            len(original.ledger.calls) - calls,
        )


def test_an_unchanged_playbook_takes_the_same_path_and_calls_nothing() -> None:
    simulated, beside, calls = run_virtually(tried(ORDER, ORDER))
    assert (beside.verdict, beside.parting, calls) == ("same", None, 0)
    assert (simulated.unanswered, simulated.assumed, simulated.state.status) == ([], [], "COMPLETED")
    assert beside.simulated.result == 25


def test_a_changed_condition_is_said_with_the_call_that_has_no_answer() -> None:
    simulated, beside, _ = run_virtually(tried(ORDER, ORDER.replace("> 100", "> 20")))
    assert beside.verdict == "path"
    assert beside.parting is not None
    assert (beside.parting.step, beside.parting.what) == ("price", "routing")
    assert beside.parting.cause == "after step price the run went to ship; it would go to review"
    assert [(call.step, call.task, call.reason) for call in simulated.unanswered] == [
        ("review", "review_task", "no such call was recorded")
    ]
    assert beside.simulated.state == "OPEN"


def test_the_result_of_the_same_path_may_differ() -> None:
    changed = ORDER.replace("workflow:", 'executor: {spec: {result: "{{ price.total * 2 }}"}}\nworkflow:')
    _, beside, _ = run_virtually(tried(ORDER, changed))
    assert (beside.verdict, beside.recorded.result, beside.simulated.result) == ("result", 25, 50)


def test_a_call_with_other_inputs_is_answered_and_said_and_has_no_answer_when_that_is_strict() -> None:
    changed = ORDER.replace('returns: "{{ price.total }}"', 'returns: "{{ price.total + 1 }}"')
    simulated, beside, _ = run_virtually(tried(ORDER, changed))
    assert [(call.task, call.reason, call.inputs) for call in simulated.assumed] == [
        ("ship_task", "its inputs were others then", {"returns": 26})
    ]
    assert beside.verdict == "same"
    simulated, beside, _ = run_virtually(tried(ORDER, changed, strict=True))
    assert (beside.verdict, [call.task for call in simulated.unanswered]) == ("unanswered", ["ship_task"])


@pytest.mark.parametrize("name", ["name: ship_task, ", ""])
def test_steps_that_were_renamed_keep_their_answers(name: str) -> None:
    """Also where a task has no name and is called after its step."""
    tool = 'tool: {kind: act, returns: "{{ price'
    changed = ORDER.replace("step: ship", "step: send").replace(tool, tool.replace("{kind", f"{{{name}kind"))
    simulated, beside, _ = run_virtually(tried(ORDER, changed, renamed={"ship": "send"}))
    assert (beside.verdict, simulated.unanswered) == ("same", [])


RETRIED = """
metadata: {name: retried}
workflow:
  - step: start
    tool:
      - name: call
        kind: act
        fail_attempts: 2
        returns: fine
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 1}}]}}
    next: {arcs: [{step: rest}]}
  - step: rest
    tool:
      - {name: pause, kind: wait, for_s: 3600}
      - {name: last, kind: act, returns: "{{ start.data }}"}
"""


def test_attempts_and_waits_have_their_recorded_outcomes() -> None:
    simulated, beside, _ = run_virtually(tried(RETRIED, RETRIED))
    assert (beside.verdict, beside.simulated.result, simulated.assumed) == ("same", "fine", [])
    fewer = RETRIED.replace("attempts: 3", "attempts: 2")
    _, beside, _ = run_virtually(tried(RETRIED, fewer))
    assert beside.parting is not None
    assert (beside.verdict, beside.parting.what) == ("path", "end_of_step")


LOOP = """
metadata: {name: loop}
workload: {limit: 3}
workflow:
  - step: each
    loop: {in: "{{ range(6) }}", iterator: n, spec: {mode: parallel, max_in_flight: 2}}
    spec: {policy: {failure: {mode: best_effort}}}
    tool:
      - {name: get, kind: act, returns: "{{ iter.n }}"}
      - {name: check, kind: assert, that: "{{ get.data < workload.limit }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: "{{ each.results | length }}"}}
"""


def test_items_have_their_own_answers() -> None:
    _, beside, _ = run_virtually(tried(LOOP, LOOP))
    assert beside.verdict == "same"
    _, beside, _ = run_virtually(tried(LOOP, LOOP, workload={"limit": 4}))
    assert beside.parting is not None
    assert beside.parting.cause == "3 items of step each failed; 2 would fail"
    simulated, beside, _ = run_virtually(tried(LOOP, LOOP.replace("range(6)", "range(7)")))
    assert [call.item for call in simulated.unanswered] == [(6,)]


def test_a_run_without_an_end_is_cut() -> None:
    endless = """
metadata: {name: order}
workflow:
  - step: a
    tool: {kind: noop}
    next: {arcs: [{step: b}]}
  - step: b
    tool: {kind: noop}
    next: {arcs: [{step: a}]}
"""

    async def go() -> Simulated:
        async with World(ORDER) as world:
            await world.run()
            events = await world.events()
            body = net.encode(build_or_raise(endless, "x.yaml", SPECS, world.settings))
            program = Program(net.decode(body), net.digest(body))
            limits = Limits(max_events=500)
            return simulate(program, world.execution_id, events, world.program, Request("x", 1, {}), {}, limits)

    outcome = run_virtually(go())
    assert outcome.is_cut
    assert len(outcome.events) < 1500


def again(program: Program, execution_id: int, events: list[Event]) -> Compared:
    """Simulate the playbook that ran."""
    payload = events[0].payload
    request = Request(payload["path"], int(payload["version"]), payload.get("workload") or {}, payload["scope"])
    simulation = simulate(program, execution_id, events, program, request, {}, Limits())
    assert simulation.assumed == []
    return compared(events, simulation, {})


async def recorded(text: str) -> tuple[Program, int, list[Event]]:
    async with World(text) as world:
        await world.run()
        return world.program, world.execution_id, await world.events()


@pytest.mark.parametrize("name", CASES)
def test_the_playbook_that_ran_takes_the_path_that_it_took(name: str) -> None:
    text = (GOLDEN / f"{name}.yaml").read_text(encoding="utf-8")
    assert again(*run_virtually(recorded(text))).verdict == "same"


@pytest.mark.parametrize("group", range(4))
def test_so_does_any_playbook(group: int) -> None:
    for seed in range(group * 20, group * 20 + 20):
        simulated = again(*run_virtually(recorded(by_seed(seed).text)))
        assert simulated.verdict == "same", (seed, simulated)


async def ended(name: str) -> list[tuple[Program, int, list[Event]]]:
    async with await run_ending(ENDINGS[name]) as world:
        logs = []
        for record in await world.store.executions(limit=100):
            program = await world.current_life.engine.live.program(record.new.plan)
            stored = await world.store.events(record.execution_id, limit=100_000)
            logs.append((program, record.execution_id, [entry.event for entry in stored]))
        return logs


@pytest.mark.parametrize("name", ENDINGS)
def test_signals_and_time_limits_of_the_log_are_taken_over(name: str) -> None:
    for run in run_virtually(ended(name)):
        # What broke outside of the playbook has no answer.
        assert again(*run).verdict == ("unanswered" if name in ("abort", "poison") else "same")
