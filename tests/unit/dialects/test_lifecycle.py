"""The lifecycle dialect: the table of the status layers, and every command fact."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest

from arclog.dialects import lifecycle
from arclog.model import status
from arclog.model.events import REGISTRY
from arclog.testing.laws import check_commands
from tests.unit.dialects.support import NAMES, log_of, records, rendered_log

#: canonical type and status → name and state, as the contract has them
CONTRACT = {
    ("playbook.started", "in_progress"): ("playbook.initialized", "RUNNING"),
    ("workflow.started", "in_progress"): ("workflow.initialized", "RUNNING"),
    ("workflow.finished", "success"): ("workflow.completed", "COMPLETED"),
    ("workflow.finished", "error"): ("workflow.failed", "FAILED"),
    ("step.started", "in_progress"): ("step.enter", "RUNNING"),
    ("task.done", "success"): ("call.done", "COMPLETED"),
    ("task.failed", "error"): ("call.error", "FAILED"),
    ("step.done", "success"): ("step.exit", "COMPLETED"),
    ("step.done", "skipped"): ("step.exit", "COMPLETED"),
    ("step.failed", "error"): ("step.exit", "FAILED"),
    ("playbook.paused", "paused"): ("playbook.paused", "PAUSED"),
    ("playbook.resumed", "in_progress"): ("playbook.resumed", "RUNNING"),
    ("playbook.finished", "success"): ("playbook.completed", "COMPLETED"),
    ("playbook.finished", "error"): ("playbook.failed", "FAILED"),
    ("execution.cancelled", "error"): ("execution.cancelled", "CANCELLED"),
    ("command.issued", "in_progress"): ("command.issued", "ISSUED"),
    ("command.claimed", "in_progress"): ("command.claimed", "CLAIMED"),
    ("command.started", "in_progress"): ("command.started", "RUNNING"),
    ("command.completed", "success"): ("command.completed", "COMPLETED"),
    ("command.failed", "error"): ("command.failed", "FAILED"),
    ("command.cancelled", "error"): ("command.cancelled", "CANCELLED"),
}


def test_the_table_is_the_contracts() -> None:
    rows = {
        (name, status): (row.name, row.state)
        for name, kind in REGISTRY.items()
        for status in kind.statuses
        if (row := lifecycle.row_of(name, status)) is not None
    }
    assert rows == CONTRACT


def test_a_name_with_its_state_leads_back() -> None:
    for row in lifecycle.TABLE:
        assert lifecycle.meaning_of(row.name, row.state) == row


@pytest.mark.parametrize("name", NAMES)
def test_every_command_goes_through_its_layers_transitions(name: str) -> None:
    """Stored and derived facts together are a legal life of each command, whole, with none told twice."""
    check_commands(rendered_log("lifecycle", log_of(name)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layer", ["workflow", "step"])
def test_workflow_and_steps_go_through_their_layers_transitions(name: str, layer: str) -> None:
    lives: dict[str, list[str]] = defaultdict(list)
    for record in rendered_log("lifecycle", log_of(name)):
        row = lifecycle.row_of(record.source["event_type"], record.source["status"])
        if row is not None and row.layer == layer and not record.derived:
            lives[record.record.get("step_run_id", "")].append(record.record["status"])
    for life in lives.values():
        # A step that fails before anybody works on it has no step.enter.
        whole = ["PENDING", *(["RUNNING"] if life[0] != "RUNNING" else []), *life]
        for before, after in pairwise(whole):
            assert status.may(layer, before, after), f"{layer}: {whole}"


def test_derived_facts_say_so_and_have_an_id_of_their_own() -> None:
    rendered = records("lifecycle", "chain")
    assert len({record["event_id"] for record in rendered}) == len(rendered)
    for record in rendered:
        if record.get("derived"):
            assert record["event_type"].startswith("command.")
            assert record["event_id"].startswith(f"{record['cause_id']}:")
            assert record["tenant_id"] == "tenant"
    started = next(record for record in rendered if record["event_type"] == "command.started")
    assert (started["worker_id"], started["fence"], started["source"]) == ("first", 1, "worker")


def test_a_lost_lease_is_told_once_stored_and_its_new_start_derived() -> None:
    rendered = [
        (record["event_type"], record.get("fence"), record.get("derived", False))
        for record in records("lifecycle", "lost_lease")
        if record["event_type"].startswith("command.")
    ]
    assert rendered == [
        ("command.issued", None, True),
        ("command.claimed", 1, True),
        ("command.started", 1, True),
        ("command.issued", None, False),
        ("command.claimed", 2, False),
        ("command.started", 2, True),
        ("command.completed", 2, True),
    ]


@pytest.mark.parametrize("name", ["parallel_loop", "parallel_loop_of_twelve", "parallel_loop_lost", "loop_ok"])
def test_a_loops_command_completes_with_the_last_item_that_it_covers(name: str) -> None:
    log = log_of(name)
    covers = {}
    for record in log:
        if record["event_type"] == "step.scheduled" and "total" in record["payload"] and "command_id" in record:
            covers[record["command_id"]] = range(record["payload"]["total"])
        elif record["event_type"] == "command.issued" and "items" in record["payload"]:
            covers[record["command_id"]] = range(*record["payload"]["items"][1:])
    ends = {record["iteration"]: record["seq"] for record in log if record["event_type"] == "loop.iteration.done"}
    expected = {command: max(ends[index] for index in items) for command, items in covers.items()}
    completed = {
        record.record["command_id"]: record.seq
        for record in rendered_log("lifecycle", log)
        if record.name == "command.completed"
    }
    assert expected
    assert {command: completed[command] for command in expected} == expected


def test_a_command_that_came_back_unheard_of_was_claimed_all_the_same() -> None:
    rendered = [
        (record["event_type"], record.get("fence"), record.get("derived", False))
        for record in records("lifecycle", "restarted_at_once")
        if record["event_type"].startswith("command.")
    ]
    assert rendered[:4] == [
        ("command.issued", None, True),
        ("command.claimed", 1, True),
        ("command.issued", None, False),
        ("command.claimed", 2, False),
    ]


def test_a_break_and_a_jump_stand_in_the_payload_of_their_call() -> None:
    rendered = [
        record["payload"]["state"] for record in records("lifecycle", "jump") if record["event_type"] == "call.done"
    ]
    assert rendered == ["OK", "NOOP", "OK", "NOOP", "OK", "BREAK"]


def test_a_failed_call_is_an_error_whatever_its_policy_made_of_it() -> None:
    (call,) = [record for record in records("lifecycle", "handled") if record["event_type"] == "call.error"]
    assert (call["status"], call["payload"]["state"]) == ("FAILED", "ERROR")


def test_a_step_whose_last_outcome_was_an_error_is_case_handled() -> None:
    exits = {name: record["status"] for name in ("handled", "chain", "skipped", "retry") for record in _exits(name)}
    assert exits == {"handled": "CASE_HANDLED", "chain": "COMPLETED", "skipped": "COMPLETED", "retry": "FAILED"}


def _exits(name: str) -> list[dict]:
    return [record for record in records("lifecycle", name) if record["event_type"] == "step.exit"]


def test_a_loop_step_exits_once_and_its_counts_stand_in_loop_done() -> None:
    rendered = records("lifecycle", "loop_best_effort")
    assert len([record for record in _exits("loop_best_effort") if record["step"] == "start"]) == 1
    assert [record["payload"]["failed"] for record in rendered if record["event_type"] == "loop.done"] != []


def test_types_outside_the_table_pass_through_as_they_are() -> None:
    for record in rendered_log("lifecycle", log_of("admission")):
        if lifecycle.row_of(record.source["event_type"], record.source["status"]) is None and not record.derived:
            assert record.record == record.source


def test_a_calls_end_waits_for_what_comes_behind_it_and_is_not_lost() -> None:
    log = log_of("chain")
    ends = [record["seq"] for record in log if record["event_type"] == "task.done"]
    cut = [record for record in log if record["seq"] <= ends[0]]
    reader = lifecycle.LifecycleReader()
    rendered = [record for envelope in cut for record in reader.render(envelope)]
    assert "call.done" not in [record.name for record in rendered]
    assert [(record.name, record.seq) for record in reader.held_back()] == [("call.done", ends[0])]
    assert reader.held_back() == []
