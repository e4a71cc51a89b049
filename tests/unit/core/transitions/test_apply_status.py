"""The status contract's testing checklist: only lifecycle events change an execution's state, and nothing below them does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.dialects.lifecycle import TABLE, LifecycleReader
from arclog.dialects.wire import PRODUCER
from arclog.dialects.wire_incoming import parse_event
from arclog.engine.views.api import _LIFECYCLE_TERMINAL
from arclog.model import status
from arclog.model.envelope import Subject, widen
from arclog.model.errors import InvariantBroken
from arclog.model.events import REGISTRY, TERMINAL, Event, status_of
from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from tests.unit.core.support import NOW, Core, done, event

TWO = """
metadata: {name: two}
workflow:
  - {step: start, tool: {name: t, kind: noop}, next: {arcs: [{step: end}]}}
  - {step: end, tool: {name: t, kind: noop}}
"""
LOOP = """
metadata: {name: loop}
workflow:
  - step: start
    loop: {in: [1, 2], iterator: i}
    tool: {name: t, kind: noop}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {name: t, kind: noop}}
"""
FAN = """
metadata: {name: fan}
workflow:
  - {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}, {step: d}]}}
  - {step: a, tool: {kind: act, takes: 10}}
  - {step: b, tool: {kind: act, takes: 10}}
  - {step: c, tool: {kind: act, takes: 10}}
  - {step: d, tool: {kind: act, takes: 10}}
"""
FAILS = "metadata: {name: bad}\nworkflow: [{step: start, tool: {kind: act, fail_attempts: 9}}]\n"

#: what the state of an execution is after a lifecycle event; no other event is in here
AFTER = {
    ("playbook.started", "in_progress"): "RUNNING",
    ("playbook.finished", "success"): "COMPLETED",
    ("playbook.finished", "error"): "FAILED",
    ("execution.cancelled", "error"): "CANCELLED",
}


def two_steps() -> Core:
    """Run to its end, by hand."""
    core = Core(TWO)
    work = core.start()
    (last,) = core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work)).issue
    core.report(last, event("step.started", last), *done(last, "t"), event("step.done", last))
    assert core.state.status == "COMPLETED"
    return core


def states_of(core: Core) -> list[tuple[Event, str]]:
    """The state after each event."""
    state, states = State(execution_id=1), []
    for emitted in core.events:
        apply(core.program, state, emitted)
        states.append((emitted, state.status))
    return states


def with_facts(core: Core, *facts: Event) -> set[tuple[str, str]]:
    """States that the run is in after each of its events but the terminal one, with these events put in behind it."""
    wrong = set()
    for end in range(len(core.events)):
        state = State(execution_id=1)
        for emitted in core.events[:end]:
            apply(core.program, state, emitted)
        before = state.status
        for fact in facts:
            apply(core.program, state, fact)
            if state.status != before:
                wrong.add((fact.type, state.status))
    return wrong


def test_only_lifecycle_events_change_the_state() -> None:
    for core in (two_steps(), looped()):
        before = "PENDING"
        for emitted, after in states_of(core):
            assert after == AFTER.get((emitted.type, status_of(emitted)), before), emitted.type
            before = after


# -- positive -----------------------------------------------------------------------------------------------------------


def test_an_execution_remains_running_while_commands_continue_to_be_issued() -> None:
    core = Core(TWO)
    work = core.start()
    assert core.state.status == "RUNNING"
    txn = core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work))
    assert txn.issue
    assert core.state.status == "RUNNING"


@pytest.mark.parametrize(
    ("text", "signal", "state", "name"),
    [
        (TWO.replace("noop", "act"), "", "COMPLETED", "playbook.completed"),
        (FAILS, "", "FAILED", "playbook.failed"),
        (FAN, "CANCEL", "CANCELLED", "execution.cancelled"),
    ],
)
def test_an_execution_ends_only_with_its_lifecycle_event(text: str, signal: str, state: str, name: str) -> None:
    """COMPLETED only after playbook.completed, FAILED after playbook.failed, CANCELLED after execution.cancelled."""

    async def main() -> None:
        async with World(text) as world:
            life = world.begin_life()
            await world.start()
            life.start_sweeper()
            life.start_worker()
            if signal:
                await asyncio.sleep(5)
                await life.api.signal(str(world.execution_id), SignalRequest(signal, "s", "because"))
            await life.api.ended(str(world.execution_id), timeout_s=1000)
            summary = await life.api.status(str(world.execution_id))
            assert (summary.state, summary.terminal_event, summary.completion_inferred) == (state, name, False)
            folded, seen = State(execution_id=world.execution_id), []
            reader = LifecycleReader()
            for entry in await world.stored():
                apply(world.program, folded, entry.event)
                full = widen(entry.event, Subject(1, "x"), entry.seq, entry.event_id, entry.persisted_at)
                seen += [(rendered.name, folded.status) for rendered in reader.render(full) if not rendered.derived]
            at = [rendered for rendered, _ in seen].index(name)
            assert all(rendered in ("PENDING", "RUNNING") for _, rendered in seen[:at])
            assert {rendered for _, rendered in seen[at:]} == {state}

    run_virtually(main())


def test_terminal_events_have_their_lifecycle_names() -> None:
    names = {(row.canonical, row.state): row.name for row in reversed(TABLE)}
    assert names["playbook.finished", "COMPLETED"] == "playbook.completed"
    assert names["playbook.finished", "FAILED"] == "playbook.failed"
    assert names["execution.cancelled", "CANCELLED"] == "execution.cancelled"
    assert all(names[key] == name for key, name in _LIFECYCLE_TERMINAL.items())


# -- negative -----------------------------------------------------------------------------------------------------------


def test_command_completed_on_the_final_visible_step_does_not_force_completed() -> None:
    core = two_steps()
    last = next(event for event in reversed(core.events) if event.type == "step.scheduled")
    fact = Event("command.completed", NOW, step=last.step, run=last.run, command_id=last.command_id, informative=True)
    assert with_facts(core, fact) == set()
    # The last step is done in the log two events before the run is.
    after = {emitted.type: state for emitted, state in states_of(core) if emitted.step in ("", "end")}
    assert (after["step.done"], after["next.evaluated"], after["workflow.finished"]) == ("RUNNING",) * 3


def looped() -> Core:
    core = Core(LOOP)
    work = core.start()
    core.report(work, event("step.started", work))
    for index in range(2):
        at: dict[str, Any] = {"iteration": (index,)}
        txn = core.report(
            work,
            event("loop.iteration.started", work, **at),
            *done(work, "t", **at),
            event("loop.iteration.done", work, **at),
        )
        assert core.state.status == "RUNNING", f"iteration {index} closed the execution"
    (last,) = txn.issue
    core.report(last, event("step.started", last), *done(last, "t"), event("step.done", last))
    assert core.state.status == "COMPLETED"
    return core


def test_the_end_of_an_iteration_or_of_a_task_in_a_sequence_does_not_force_completed() -> None:
    core = looped()
    for emitted, state in states_of(core):
        if emitted.type.startswith(("loop.", "task.", "step.")):
            assert state == "RUNNING", emitted.type


def outside(**body: Any) -> Event:
    """An event as an outside producer posts it."""
    return parse_event({"execution_id": 1, **body}, PRODUCER, NOW).event


def test_batch_completed_with_nothing_pending_does_not_force_completed() -> None:
    fact = outside(event_type="batch.completed", payload={"pending_count": 0}, status="COMPLETED")
    assert with_facts(two_steps(), fact) == set()
    applied = Event("batch.completed", NOW, payload={"pending_count": 0})
    assert with_facts(two_steps(), applied) == set(), "also one that is not marked as informative"


@pytest.mark.parametrize("word", ["completed", "COMPLETED", "Completed", "failed", "FAILED", "Failed"])
def test_mixed_case_step_status_values_do_not_change_the_state(word: str) -> None:
    facts = [outside(event_type="step.exit", step=step, status=word) for step in ("start", "end")]
    assert {fact.type for fact in facts} == {"step.failed" if word.lower() == "failed" else "step.done"}
    assert with_facts(two_steps(), *facts) == set()


@pytest.mark.parametrize("kind", ["call.done", "call.error", "step.exit", "tool.processed", "playbook_completed"])
def test_nothing_from_outside_closes_an_execution(kind: str) -> None:
    assert with_facts(two_steps(), outside(event_type=kind, step="end")) == set()


# -- layers ---------------------------------------------------------------------------------------------------------------

_LIFECYCLE: dict[str, list[tuple[str, str, str]]] = {
    "playbook": [("playbook.started", "", "RUNNING"), *((kind, word, after) for (kind, word), after in AFTER.items())],
    "workflow": [
        ("workflow.finished", "success", "COMPLETED"),
        ("workflow.finished", "error", "FAILED"),
    ],
}


@pytest.mark.parametrize(
    ("layer", "before", "kind", "word", "after"),
    [
        (layer, before, kind, word, after)
        for layer, events in _LIFECYCLE.items()
        for before in status.TRANSITIONS[layer]
        for kind, word, after in events
    ],
)
def test_a_transition_outside_the_table_is_refused(layer: str, before: str, kind: str, word: str, after: str) -> None:
    core = Core(TWO)
    core.start()
    state = core.replayed()
    if layer == "playbook":
        state.status = before
    else:
        state.workflow = before
    fact = Event(kind, NOW, status=word)
    if status.may(layer, before, after):
        apply(core.program, state, fact)
        assert (state.status if layer == "playbook" else state.workflow) == after
    else:
        with pytest.raises(InvariantBroken, match=f"{layer} may not go from {before} to {after}"):
            apply(core.program, state, fact)


def test_a_workflow_starts_once() -> None:
    core = Core(TWO)
    core.start()
    with pytest.raises(InvariantBroken, match="workflow may not go from RUNNING to RUNNING"):
        apply(core.program, core.state, Event("workflow.started", NOW, payload={"token": 9}))


def test_a_step_run_that_is_over_does_not_end_again() -> None:
    core = Core(TWO)
    work = core.start()
    core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work))
    for kind in ("step.started", "step.done", "step.failed"):
        with pytest.raises(InvariantBroken):
            apply(core.program, core.replayed(), Event(kind, NOW, step="start", run=1))


def test_every_terminal_event_is_of_the_playbooks_layer() -> None:
    listed = {event for exits in status.TRANSITIONS["playbook"].values() for event in exits.values()}
    assert listed == {"playbook.started", *TERMINAL}
    assert all(REGISTRY[name].entity == "playbook" for name in listed)


def test_completion_is_emitted_exactly_once_under_concurrency() -> None:
    """Four branches end at the same moment on four workers."""

    async def main() -> None:
        async with World(FAN, workers=4) as world:
            await world.run()
            types = [event.type for event in await world.events()]
            assert await world.terminal_events() == ["playbook.finished"]
            assert types.count("workflow.finished") == 1

    run_virtually(main())
