"""Document 001, the wire format of `POST /api/events`: what is not shown by the wire's own tests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from arclog.dialects.wire import PRODUCER
from arclog.dialects.wire_incoming import parse_event
from arclog.model.errors import StoreUnavailable
from arclog.model.ids import MAX_ID, micros
from arclog.ports.storage.store import Append
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually
from tests.seeds.support import Record, errors, once, ran
from tests.servers.arclog import RunningServer

SLOW = """
metadata: {name: slow}
workflow:
  - {step: start, tool: [{name: first, kind: act, takes: 10}, {name: second, kind: act, takes: 10}]}
"""
#: Each fails the same way however often it is tried.
DETERMINISTIC = {
    "a task's template": "tool: {kind: act, returns: '{{ ctx.nothing.here }}'}",
    "a step's args": "args: {x: '{{ ctx.nothing + 1 }}'}\n    tool: {kind: noop}",
    "an admission rule": "tool: {kind: noop}\n    spec: {policy: {admit: {rules: [{when: '{{ ctx.nothing > 1 }}', then: {allow: true}}]}}}",
    "an arc's condition": "tool: {kind: noop}\n    next: {arcs: [{step: start, when: '{{ ctx.nothing > 1 }}'}]}",
    "an arc's args": "tool: {kind: noop}\n    next: {arcs: [{step: start, args: {x: '{{ 1 // 0 }}'}}]}",
}


def wire(text: str) -> list[Record]:
    return once(text).in_dialect("wire")


def test_step_status_and_time_are_fields_of_their_own() -> None:
    for record in wire(SLOW):
        assert record.keys() >= {"step", "status", "created_at", "event_type", "execution_id", "event_id", "payload"}
        assert record["status"] in {"STARTED", "RUNNING", "COMPLETED", "FAILED"}
    steps = {record["event_type"]: record["step"] for record in wire(SLOW)}
    assert (steps["step.enter"], steps["call.done"], steps["step.exit"]) == ("start", "start", "start")


def test_workers_stamp_their_name_and_the_time_where_it_happens() -> None:
    enter = next(record for record in wire(SLOW) if record["event_type"] == "step.enter")
    assert enter["worker_id"] == "worker-a"
    first = next(
        event for event in once(SLOW).log if event.get("task") == "first" and event["event_type"] == "task.done"
    )
    second = next(
        event for event in once(SLOW).log if event.get("task") == "second" and event["event_type"] == "task.started"
    )
    # Both reached the store together or later; each has the moment at which it happened.
    assert micros(first["timestamp"]) == micros(second["timestamp"])
    assert micros(first["persisted_at"]) >= micros(first["timestamp"])


def test_large_ids_are_kept_exactly_as_numbers_and_as_text() -> None:
    for written in (MAX_ID, str(MAX_ID)):
        body = json.loads(json.dumps({"execution_id": written, "event_id": written, "event_type": "batch.completed"}))
        parsed = parse_event(body, PRODUCER, 0)
        assert (parsed.execution_id, parsed.event.own_id) == (MAX_ID, MAX_ID)


def test_names_are_dotted_and_underscored_ones_are_old_names_for_them() -> None:
    for dotted, underscored in (("step.done", "step_completed"), ("step.started", "step_started")):
        body: dict[str, Any] = {"execution_id": 5, "step": "s"}
        assert parse_event({**body, "event_type": dotted}, PRODUCER, 0).event.type == dotted
        assert parse_event({**body, "event_type": underscored}, PRODUCER, 0).event.type == dotted
    for name in ("step.exit", "call.done", "command.completed"):
        assert name in {record["event_type"] for record in wire(SLOW)}


# -- deterministic failures end the run -------------------------------------------------------------------------------


@pytest.mark.parametrize("body", DETERMINISTIC.values(), ids=list(DETERMINISTIC))
def test_a_failure_that_would_repeat_ends_the_run_with_its_error_and_its_trigger(body: str) -> None:
    run = ran(f"metadata: {{name: p}}\nworkflow:\n  - step: start\n    {body}\n")
    assert (run.status.state, run.status.terminal_event) == ("FAILED", "playbook.failed")
    terminal = next(record for record in run.in_dialect("wire") if record["event_type"] == "playbook.failed")
    assert terminal["status"] == "FAILED"
    error = terminal["result"]["context"]["error"]
    assert error["kind"] == "template"
    assert error["message"]
    finished = run.only("playbook.finished")
    assert finished["cause_id"] in {event["event_id"] for event in run.log[: finished["seq"] - 1]}


@pytest.mark.parametrize(
    ("arcs", "code"),
    [
        ("{arcs: [{step: nowhere}]}", "unknown-step"),
        ("{arcs: {step: start}}", "wrong-type"),
        ("{spec: {mode: sideways}, arcs: []}", "bad-value"),
        ("{arcs: [{step: start, when: '{{ 1 + }}'}]}", "template-syntax"),
    ],
)
def test_routing_that_can_never_work_is_refused_before_a_run_starts(arcs: str, code: str) -> None:
    assert code in errors(
        f"metadata: {{name: p}}\nworkflow:\n  - {{step: start, tool: {{kind: noop}}, next: {arcs}}}\n"
    )


def test_a_store_that_is_away_for_a_moment_does_not_end_a_run() -> None:
    failures = [StoreUnavailable("gone for a moment")] * 3

    async def before(_: int, append: Append) -> None:
        if failures and any(event.type == "step.done" for event in append.events):
            raise failures.pop()

    async def main() -> None:
        async with World(SLOW, before=before) as world:
            state = await world.run()
            assert (state.status, failures) == ("COMPLETED", [])
            assert await world.terminal_events() == ["playbook.finished"]

    run_virtually(main())


async def test_a_failed_run_is_listed_and_shown_as_failed(server: RunningServer) -> None:
    text = "metadata: {name: p}\nworkflow: [{step: start, tool: {kind: noop, data: '{{ ctx.nothing.here }}'}}]"
    async with server.client() as client:
        started = (await client.post("/api/execute", json={"playbook": text})).json()
        path = f"/api/executions/{started['execution_id']}"
        async with asyncio.timeout(30):
            while (await client.get(f"{path}/status")).json()["ended_at"] is None:
                await client.get(f"{path}/head", params={"until": "ended", "timeout_s": 20})
        status = (await client.get(f"{path}/status")).json()
        assert (status["state"], status["terminal_event"]) == ("FAILED", "playbook.failed")
        assert (await client.get(path)).json()["state"] == "FAILED"
        listed = (await client.get("/api/executions", params={"state": "FAILED"})).json()["executions"]
        assert [row["execution_id"] for row in listed] == [started["execution_id"]]
