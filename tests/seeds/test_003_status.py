"""Document 003, the status transition matrix: five layers, who owns them, and what may not be inferred from below."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from arclog.dialects import lifecycle
from arclog.model import status
from arclog.model.events import REGISTRY
from arclog.testing.harness import World
from tests.seeds.support import Ran, Record, Script, once, ran, signal

ENDS_WELL = """
metadata: {name: ends-well}
workflow:
  - {step: start, tool: [{name: a, kind: act, takes: 5}, {name: b, kind: act, takes: 5}], next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: act, takes: 5}}
"""
FAILS = """
metadata: {name: fails}
workflow:
  - {step: start, tool: {kind: act, fail_attempts: 9}}
"""
HANDLED = """
metadata: {name: handled}
workflow:
  - step: start
    tool: {kind: act, fail_attempts: 9, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
"""
PAGES = """
metadata: {name: pages}
workflow:
  - step: start
    tool:
      - name: page
        kind: act
        spec: {policy: {rules: [{when: "{{ (iter.n | default(0)) < 1 }}", then: {do: jump, to: page, set_iter: {n: 1}}}, {else: {then: {do: break}}}]}}
"""
LOOP = """
metadata: {name: loop}
workflow:
  - {step: start, loop: {in: [1, 2], iterator: n}, tool: [{name: a, kind: act, takes: 5}, {name: b, kind: act, takes: 5}], next: {arcs: [{step: end}]}}
  - {step: end, tool: {kind: act, takes: 5}}
"""


async def cancel(world: World) -> None:
    await asyncio.sleep(2)
    await world.current_life.api.cancel(str(world.execution_id), "enough")


def lifecycle_of(text: str, script: Script | None = None) -> list[Record]:
    return once(text, script).in_dialect("lifecycle")


def names(records: list[Record]) -> list[str]:
    return [record["event_type"] for record in records]


# -- the matrix -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "before", "after", "signal_name"),
    [
        ("playbook", "PENDING", "RUNNING", "playbook.initialized"),
        ("playbook", "RUNNING", "COMPLETED", "playbook.completed"),
        ("playbook", "RUNNING", "FAILED", "playbook.failed"),
        ("playbook", "RUNNING", "CANCELLED", "execution.cancelled"),
        ("workflow", "PENDING", "RUNNING", "workflow.initialized"),
        ("workflow", "RUNNING", "COMPLETED", "workflow.completed"),
        ("workflow", "RUNNING", "FAILED", "workflow.failed"),
        ("step", "RUNNING", "COMPLETED", "step.exit"),
        ("step", "RUNNING", "FAILED", "step.exit"),
        ("step", "RUNNING", "CASE_HANDLED", "step.exit"),
        ("command", "PENDING", "ISSUED", "command.issued"),
        ("command", "ISSUED", "CLAIMED", "command.claimed"),
        ("command", "CLAIMED", "RUNNING", "command.started"),
        ("command", "RUNNING", "COMPLETED", "command.completed"),
        ("command", "RUNNING", "FAILED", "command.failed"),
        ("command", "ISSUED", "CANCELLED", "command.cancelled"),
        ("command", "CLAIMED", "CANCELLED", "command.cancelled"),
        ("tool", "RUNNING", "OK", "call.done"),
        ("tool", "RUNNING", "ERROR", "call.error"),
        ("tool", "RUNNING", "BREAK", "call.done"),
        ("tool", "RUNNING", "NOOP", "call.done"),
    ],
)
def test_each_transition_of_the_matrix_has_its_signal(layer: str, before: str, after: str, signal_name: str) -> None:
    canonical = status.TRANSITIONS[layer][before][after]
    spelled = {row.name for row in lifecycle.TABLE if row.canonical == canonical}
    assert signal_name in spelled


def test_a_step_runs_from_its_scheduling_on_and_is_entered_when_a_worker_begins() -> None:
    assert status.TRANSITIONS["step"]["PENDING"] == {"RUNNING": "step.scheduled"}
    enter = next(record for record in lifecycle_of(ENDS_WELL) if record["event_type"] == "step.enter")
    assert (enter["status"], enter["source"]) == ("RUNNING", "worker")


def test_terminal_states_of_every_layer() -> None:
    assert {layer: set(status.terminal_states(layer)) for layer in status.TRANSITIONS} == {
        "playbook": {"COMPLETED", "FAILED", "CANCELLED"},
        "workflow": {"COMPLETED", "FAILED"},
        "step": {"COMPLETED", "FAILED", "CASE_HANDLED"},
        "command": {"COMPLETED", "FAILED", "CANCELLED"},
        "tool": {"OK", "ERROR", "BREAK", "NOOP"},
    }


def test_a_transition_that_no_layer_has_is_not_legal() -> None:
    for layer, table in status.TRANSITIONS.items():
        for before in table:
            assert not status.may(layer, before, before)
            if before in status.terminal_states(layer):
                assert not any(status.may(layer, before, after) for after in table)


# -- layer by layer ---------------------------------------------------------------------------------------------------


def test_a_run_that_ends_well_in_lifecycle_names() -> None:
    kept = [name for name in names(lifecycle_of(ENDS_WELL)) if name.startswith(("playbook.", "workflow.", "step."))]
    assert [name for name in kept if name not in ("playbook.execution.requested", "playbook.request.evaluated")] == [
        "playbook.initialized",
        "workflow.initialized",
        "step.scheduled",
        "step.enter",
        "step.exit",
        "step.scheduled",
        "step.enter",
        "step.exit",
        "workflow.completed",
        "playbook.completed",
        "playbook.processed",
    ]


def test_the_workflow_fails_before_the_playbook_does() -> None:
    failed = names(lifecycle_of(FAILS))
    assert failed.index("workflow.failed") < failed.index("playbook.failed")


@pytest.mark.parametrize(
    ("text", "call", "state", "exit_status"),
    [
        (ENDS_WELL, "call.done", "OK", "COMPLETED"),
        (FAILS, "call.error", "ERROR", "FAILED"),
        (HANDLED, "call.error", "ERROR", "CASE_HANDLED"),
    ],
    ids=["ok", "error", "handled"],
)
def test_a_tools_outcome_comes_before_the_end_of_its_step(text: str, call: str, state: str, exit_status: str) -> None:
    records = [record for record in lifecycle_of(text) if record.get("step") == "start"]
    last = [record for record in records if record["event_type"] in ("call.done", "call.error", "step.exit")][-2:]
    assert [(record["event_type"], record["status"]) for record in last][1] == ("step.exit", exit_status)
    assert (last[0]["event_type"], last[0]["payload"]["state"]) == (call, state)


def test_a_page_that_jumps_is_a_noop_and_the_last_one_a_break() -> None:
    calls = [record["payload"]["state"] for record in lifecycle_of(PAGES) if record["event_type"] == "call.done"]
    assert calls == ["NOOP", "BREAK"]


def test_a_tool_in_flight_has_no_signal_of_its_own_in_the_lifecycle() -> None:
    assert not [row for row in lifecycle.TABLE if row.layer == "tool" and row.state == "RUNNING"]
    assert "call.started" not in REGISTRY


def test_each_command_goes_from_issued_to_its_end() -> None:
    lives: dict[str, list[str]] = {}
    for record in lifecycle_of(ENDS_WELL):
        if record["event_type"].startswith("command."):
            lives.setdefault(record["command_id"], []).append(record["status"])
    assert list(lives.values()) == [["ISSUED", "CLAIMED", "RUNNING", "COMPLETED"]] * 2


def test_a_cancelled_execution_cancels_its_commands() -> None:
    records = lifecycle_of(ENDS_WELL, cancel)
    assert "command.cancelled" in names(records)
    assert names(records).index("command.cancelled") < names(records).index("execution.cancelled")
    assert next(record for record in records if record["event_type"] == "execution.cancelled")["status"] == "CANCELLED"


def test_all_commands_are_over_while_the_run_goes_on() -> None:
    """Between two steps of a paused run every command has completed, and the state is RUNNING all the same."""

    async def look_between_the_steps(world: World) -> None:
        await asyncio.sleep(7)
        await signal(world, "PAUSE")
        await asyncio.sleep(50)
        assert await world.store.commands(world.execution_id) == []
        assert [step_run.step for step_run in await world.store.step_runs(world.execution_id)] == ["start"]
        assert (await world.current_life.api.status(str(world.execution_id))).state == "RUNNING"
        await signal(world, "RESUME")

    assert ran(ENDS_WELL, look_between_the_steps).status.state == "COMPLETED"


# -- what the status says, and from what ------------------------------------------------------------------------------


def states_while(text: str, script: Script | None = None) -> list[tuple[str, str | None]]:
    """State and current step, asked for again and again while the run goes on."""
    seen: list[tuple[str, str | None]] = []

    async def watch(world: World) -> None:
        if script is not None:
            await script(world)
        for _ in range(200):
            answer = await world.current_life.api.status(str(world.execution_id))
            if not seen or seen[-1] != (answer.state, answer.current_step):
                seen.append((answer.state, answer.current_step))
            if answer.ended_at is not None:
                return
            await asyncio.sleep(0.5)

    ran(text, watch)
    return seen


def test_an_execution_is_running_until_its_terminal_event() -> None:
    assert states_while(ENDS_WELL) == [("RUNNING", "start"), ("RUNNING", "end"), ("COMPLETED", "end")]
    assert states_while(FAILS)[-1] == ("FAILED", "start")


def test_iterations_and_tasks_of_a_sequence_do_not_end_an_execution() -> None:
    assert states_while(LOOP) == [("RUNNING", "start"), ("RUNNING", "end"), ("COMPLETED", "end")]


def test_a_run_that_waits_for_its_approval_is_pending() -> None:
    text = ENDS_WELL.replace("workflow:", "executor: {spec: {policy: {approval: required}}}\nworkflow:", 1)

    async def look_and_approve(world: World) -> None:
        answer = await world.current_life.api.status(str(world.execution_id))
        assert (answer.state, answer.current_step, answer.started_at) == ("PENDING", None, None)
        await signal(world, "APPROVE")

    assert ran(text, look_and_approve).status.state == "COMPLETED"


def test_a_paused_run_is_running_to_the_status() -> None:
    async def pause(world: World) -> None:
        await asyncio.sleep(2)
        await signal(world, "PAUSE")
        await asyncio.sleep(50)
        assert "playbook.paused" in [event.type for event in await world.events()]
        assert (await world.current_life.api.status(str(world.execution_id))).state == "RUNNING"
        await signal(world, "RESUME")

    assert ran(ENDS_WELL, pause).status.state == "COMPLETED"


@pytest.mark.parametrize(
    ("text", "script", "state", "terminal"),
    [
        (ENDS_WELL, None, "COMPLETED", "playbook.completed"),
        (FAILS, None, "FAILED", "playbook.failed"),
        (ENDS_WELL, cancel, "CANCELLED", "execution.cancelled"),
    ],
    ids=["completed", "failed", "cancelled"],
)
def test_the_status_names_times_and_the_terminal_event(
    text: str, script: Script | None, state: str, terminal: str
) -> None:
    run: Ran = once(text, script)
    answer = run.status
    assert (answer.state, answer.terminal_event, answer.completion_inferred) == (state, terminal, False)
    assert answer.execution_id == run.log[0]["execution_id"]
    assert answer.started_at == run.only("playbook.started")["timestamp"]
    ends = next(event for event in run.log if event["event_type"] in ("playbook.finished", "execution.cancelled"))
    assert answer.ended_at == ends["timestamp"]
    assert names(run.in_dialect("lifecycle")).count(terminal) == 1


def test_a_process_that_never_saw_the_run_gives_the_same_status() -> None:
    async def restart(world: World) -> None:
        await asyncio.sleep(7)
        before = await world.current_life.api.status(str(world.execution_id))
        await world.crash()
        life = world.begin_life(cold=True)
        assert await life.api.status(str(world.execution_id)) == before
        await world.free(life)
        life.start_sweeper()
        life.start_worker("worker-b")

    run = ran(ENDS_WELL, restart)
    assert (run.status.state, run.status.terminal_event) == ("COMPLETED", "playbook.completed")


def test_variables_have_a_view_of_their_own() -> None:
    text = """
metadata: {name: variables}
workflow:
  - step: start
    tool: {kind: act, takes: 5, spec: {policy: {rules: [{else: {then: {set_ctx: {total: 12}}}}]}}}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: act, takes: 5}}
"""

    async def look(world: World) -> None:
        await asyncio.sleep(7)
        execution_id = str(world.execution_id)
        assert (await world.current_life.api.summary(execution_id)).ctx == {"total": 12}
        assert "total" not in str(await world.current_life.api.status(execution_id))

    ran(text, look)


def test_lifecycle_statuses_of_steps_are_capitals_whatever_was_stored() -> None:
    for text in (ENDS_WELL, FAILS, HANDLED, LOOP):
        exits = [record["status"] for record in lifecycle_of(text) if record["event_type"] == "step.exit"]
        assert exits
        assert set(exits) <= {"COMPLETED", "FAILED", "CASE_HANDLED"}


def test_states_of_a_layer_follow_each_other_in_every_run() -> None:
    for text in (ENDS_WELL, FAILS, HANDLED, LOOP, PAGES):
        playbook = ["PENDING"] + [
            record["status"]
            for record in lifecycle_of(text)
            if record["event_type"] in ("playbook.initialized", "playbook.completed", "playbook.failed")
        ]
        for before, after in pairwise(playbook):
            assert status.may("playbook", before, after)
