"""The event registry, the status tables and the envelope agree with each other."""

from __future__ import annotations

import pytest

from arclog.model import ids, status
from arclog.model.envelope import Subject, widen
from arclog.model.errors import RequestRejected
from arclog.model.events import BITS, REGISTRY, STATUSES, TERMINAL, Event

SEED_TAXONOMY = """
playbook.execution.requested playbook.request.evaluated playbook.started playbook.paused playbook.finished
playbook.processed workflow.started workflow.finished step.scheduled step.started step.done step.failed task.started
task.attempt.started task.attempt.done task.attempt.failed task.done task.failed loop.started loop.iteration.scheduled
loop.iteration.started loop.iteration.done loop.iteration.failed loop.done policy.admit.evaluated policy.task.evaluated
next.evaluated result.stored result.manifest.updated
"""
ADDED = """
command.refused command.issued command.claimed command.started command.completed command.failed command.cancelled execution.cancelled
playbook.resumed signal.received timer.fired batch.completed
"""


def test_the_registry_is_the_whole_taxonomy_and_nothing_else() -> None:
    assert sorted(REGISTRY) == sorted((SEED_TAXONOMY + ADDED).split())


def test_bits_are_distinct_and_stable() -> None:
    assert [row.bit for row in REGISTRY.values()] == list(range(len(REGISTRY)))
    assert BITS["playbook.execution.requested"] == 1


def test_aliases_are_pascal_case() -> None:
    assert REGISTRY["playbook.execution.requested"].alias == "PlaybookExecutionRequested"
    assert REGISTRY["task.attempt.failed"].alias == "TaskAttemptFailed"


def test_only_two_types_end_an_execution() -> None:
    assert sorted(TERMINAL) == ["execution.cancelled", "playbook.finished"]


def test_workers_may_not_emit_what_belongs_to_the_control_plane() -> None:
    kept = ("playbook.", "workflow.", "next.", "execution.", "policy.admit", "step.scheduled", "signal.", "timer.")
    for name, row in REGISTRY.items():
        assert set(row.statuses) <= set(STATUSES)
        if name.startswith(kept):
            assert "worker" not in row.emitters, name


@pytest.mark.parametrize("layer", status.TRANSITIONS)
def test_every_transition_names_a_registered_event_and_a_state_of_the_layer(layer: str) -> None:
    table = status.TRANSITIONS[layer]
    for exits in table.values():
        for after, event in exits.items():
            assert after in table
            assert event in REGISTRY


def test_terminal_states_are_those_of_the_contract() -> None:
    assert status.terminal_states("playbook") == {"COMPLETED", "FAILED", "CANCELLED"}
    assert status.terminal_states("workflow") == {"COMPLETED", "FAILED"}
    assert status.terminal_states("step") == {"COMPLETED", "FAILED", "CASE_HANDLED"}
    assert status.terminal_states("command") == {"COMPLETED", "FAILED", "CANCELLED"}
    assert status.terminal_states("tool") == {"OK", "ERROR", "BREAK", "NOOP"}


@pytest.mark.parametrize("name", REGISTRY)
def test_every_type_widens_to_an_envelope_with_the_required_fields(name: str) -> None:
    event = Event(name, 1_700_000_000_000_000, step="fetch", run=2, task="get", task_run=1, command_id=7, cause=1)
    full = widen(event, Subject(42, "etl"), seq=5, event_id=1000, persisted_at=1_700_000_000_000_001)
    assert full["event_id"] == "1000"
    assert full["cause_id"] == "999"
    assert full["execution_id"] == "42"
    assert full["timestamp"] == "2023-11-14T22:13:20.000000Z"
    assert full["event_type"] == name
    assert full["event_alias"] == REGISTRY[name].alias
    assert full["source"] in ("server", "worker")
    assert full["status"] == REGISTRY[name].statuses[0]
    assert full["entity_id"]


def test_ids_of_the_envelope_follow_the_seed() -> None:
    event = Event("task.done", 0, step="fetch", run=7, iteration=(3, 1), task="get", task_run=2)
    full = widen(event, Subject(42, "etl"), seq=1, event_id=1, persisted_at=0)
    assert full["step_run_id"] == "step:fetch:run:7"
    assert full["task_run_id"] == "task:get:run:2"
    assert full["iteration_id"] == "step:fetch:run:7:iter:3.1"
    assert full["workflow_run_id"] == "workflow:etl:run:1"
    assert full["parent_id"] == "step:fetch:run:7"


@pytest.mark.parametrize(
    "raw", ["", "abc", "-1", "0", "1.5", "9223372036854775808", " 1", "1e3", 1.0, True, None, [], {}]
)
def test_a_malformed_id_is_refused(raw: object) -> None:
    with pytest.raises(RequestRejected):
        ids.parse_id(raw)


@pytest.mark.parametrize("raw", [1, "1", 9223372036854775807, "9223372036854775807"])
def test_an_id_is_an_integer_or_its_decimal_string(raw: object) -> None:
    assert ids.parse_id(raw) == int(str(raw))


def test_a_snowflake_keeps_its_moment() -> None:
    assert ids.minted_at_ms(ids.compose(1_800_000_000_123, 1023, 4095)) == 1_800_000_000_123


def test_times_round_trip() -> None:
    assert ids.micros(ids.timestamp(1_700_000_000_123_456)) == 1_700_000_000_123_456
    with pytest.raises(RequestRejected):
        ids.micros("2026-01-01T00:00:00")
