"""The wire format: what `POST /api/events` takes, as what, and what it refuses; and how stored events are told in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arclog.dialects import legacy, lifecycle, run, wire
from arclog.dialects.names import DIALECTS, MEANINGS, asked_for
from arclog.dialects.wire import PRODUCER, SERVER, WORKER, result_of
from arclog.dialects.wire_incoming import Incoming, Refusal, parse_batch, parse_event
from arclog.model.envelope import Subject, widen
from arclog.model.errors import NotAllowed, RequestRejected
from arclog.model.events import REGISTRY, Event
from arclog.model.ids import MAX_ID, timestamp
from tests.unit.dialects.support import NAMES, log_of, records, rendered_log

NOW = 1_790_000_000_000_000
ID = 321079436235509760
BODY: dict[str, Any] = {"execution_id": str(ID), "event_type": "task.done", "step": "fetch"}


def parsed(principal: str = WORKER, /, **more: Any) -> Incoming:
    return parse_event({**BODY, **more}, principal, NOW)


def refused(principal: str = WORKER, /, **more: Any) -> str:
    with pytest.raises(RequestRejected) as problem:
        parsed(principal, **more)
    return str(problem.value)


# -- ids: an integer or its string --------------------------------------------------------------------------------------


def test_event_request_accepts_integer_execution_id() -> None:
    assert parsed(execution_id=ID).execution_id == ID


def test_event_request_accepts_string_execution_id() -> None:
    assert parsed(execution_id=str(ID)).execution_id == ID


def test_event_request_accepts_integer_event_id() -> None:
    assert parsed(event_id=ID + 1).event.own_id == ID + 1
    assert parsed(event_id=str(ID + 1)).event.own_id == ID + 1


def test_event_request_event_id_null_is_none() -> None:
    assert parsed(event_id=None).event.own_id == 0
    assert parsed().event.own_id == 0


def test_batch_event_request_accepts_integer_execution_id() -> None:
    item = {"event_type": "task.done", "step": "fetch"}
    for given_id in (ID, str(ID)):
        (answer,) = parse_batch({"execution_id": given_id, "events": [item]}, WORKER, NOW, most=10)
        assert isinstance(answer, Incoming)
        assert answer.execution_id == ID


@pytest.mark.parametrize("bad", [[], {}, [1], {"a": 1}, 1.0, 1.5, True, "", "abc", "1e3", "-1", 0, "0", MAX_ID + 1])
def test_event_request_rejects_garbage_execution_id(bad: Any) -> None:
    assert "execution_id" in refused(execution_id=bad)
    assert "event_id" in refused(event_id=bad)


def test_an_event_without_an_execution_id_is_refused() -> None:
    with pytest.raises(RequestRejected, match="execution_id"):
        parse_event({"event_type": "task.done", "step": "s"}, WORKER, NOW)
    assert "execution_id" in refused(execution_id=None)


# -- there and back -----------------------------------------------------------------------------------------------------


def test_ee4_a_stored_event_is_told_in_the_wire_shape_with_string_ids() -> None:
    """ee4_executor_event_converts_into_event_request"""
    rendered = records("wire", "chain")
    for record in rendered:
        assert isinstance(record["execution_id"], str)
        assert isinstance(record["event_id"], str)
        assert {"step", "event_type", "payload", "meta", "worker_id", "status", "created_at"} <= record.keys()
        assert record["status"] in {"STARTED", "COMPLETED", "FAILED", "PAUSED", "CANCELLED"}
        assert "actionable" not in record
    assert {"playbook.initialized", "step.enter", "call.done", "step.exit", "command.completed"} <= {
        record["event_type"] for record in rendered
    }


@pytest.mark.parametrize("name", NAMES)
def test_ee4_what_was_told_can_be_posted_and_means_the_same_event(name: str) -> None:
    """ee4_event_request_converts_into_executor_event: nothing is lost on the way there and back."""
    log = {event["seq"]: event for event in log_of(name)}
    for record in records("wire", name):
        if record["meta"].get("derived"):
            continue
        source = log[record["meta"]["seq"]]
        principal = SERVER if SERVER in REGISTRY[source["event_type"]].emitters else WORKER
        incoming = parse_event(record, principal, NOW)
        workflow = source["workflow_run_id"].removeprefix("workflow:").removesuffix(":run:1")
        back = widen(incoming.event, Subject(incoming.execution_id, workflow), source["seq"], 0, NOW)
        assert incoming.warnings == ()
        for key in ("event_type", "timestamp", "execution_id", "step", "task", "step_run_id", "task_run_id", "attempt",
                    "iteration_id", "command_id", "fence", "worker_id", "event_id", "source"):  # fmt: skip
            assert back.get(key) == source.get(key), f"{source['event_type']}: {key}"
        assert back["status"] == source["status"]
        assert {**back["payload"], "meta": None} == {**source["payload"], "meta": None}


def test_ee4_missing_status_and_created_at_are_filled_in() -> None:
    """ee4_try_from_event_request_fills_defaults_for_missing_status_and_created_at"""
    event = parsed(event_type="task.failed").event
    assert event.at == NOW
    assert widen(event, Subject(ID, "x"), 1, 5, NOW)["status"] == "error"
    assert parsed(PRODUCER, event_type="tool.processed").event.type == "task.done"
    assert parsed(SERVER, event_type="playbook.completed").event.type == "playbook.finished"
    assert parsed(SERVER, event_type="playbook.failed").event.status == "error"
    assert parsed(SERVER, event_type="playbook.finished", payload={"error": {"kind": "x"}}).event.status == "error"
    assert parsed(created_at="2026-02-05T23:11:22Z").event.at == 1_770_333_082_000_000


def test_ee4_a_non_numeric_execution_id_is_an_error_and_never_zero() -> None:
    """ee4_try_from_event_request_rejects_non_numeric_execution_id"""
    assert "'exec_01JH'" in refused(execution_id="exec_01JH")


# -- aliases, places, fallbacks -----------------------------------------------------------------------------------------


def test_aliases_lead_to_the_same_event() -> None:
    plain = parse_event({**BODY, "payload": {"a": 1}}, WORKER, NOW)
    other = {"execution_id": ID, "name": "task.done", "node_name": "fetch", "context": {"a": 1}}
    assert parse_event(other, WORKER, NOW) == plain


def test_two_spellings_of_a_field_may_not_contradict_each_other() -> None:
    assert "same field" in refused(name="task.failed")
    assert parsed(name="task.done").event.type == "task.done"


@pytest.mark.parametrize("kind", ["task.started", "step.done", "loop.iteration.done", "call.done", "step.exit"])
def test_events_of_steps_tasks_and_loops_name_their_step(kind: str) -> None:
    with pytest.raises(RequestRejected, match="`step`"):
        parse_event({"execution_id": ID, "event_type": kind}, WORKER, NOW)


def test_a_batch_of_outside_producers_needs_no_step() -> None:
    assert parse_event({"execution_id": ID, "event_type": "batch.completed"}, PRODUCER, NOW).event.informative


def test_fields_may_stand_at_the_top_or_in_meta() -> None:
    more = {"task": "get", "iteration": 3, "attempt": 2, "command_id": "77", "fence": 4}
    top, inside = parsed(**more), parsed(meta=more)
    assert (top.event.task, top.event.iteration, top.event.attempt) == ("get", (3,), 2)
    assert (top.event.command_id, top.event.fence) == (77, 4)
    assert top.digest == inside.digest


@pytest.mark.parametrize(("written", "path"), [(3, (3,)), ("3.1", (3, 1)), ([3, 1], (3, 1)), (0, (0,))])
def test_an_iteration_is_an_index_or_a_path(written: Any, path: tuple[int, ...]) -> None:
    assert parsed(iteration=written).event.iteration == path


@pytest.mark.parametrize(
    "more",
    [
        {"iteration": -1}, {"iteration": "x"}, {"iteration": True}, {"iteration": [1, "a"]}, {"iteration": []},
        {"attempt": 0}, {"attempt": "2"}, {"attempt": True}, {"fence": -1}, {"fence": 1.5}, {"command_id": "x"},
        {"created_at": "yesterday"}, {"created_at": "2026-01-01T00:00:00"}, {"created_at": 5}, {"meta": []},
        {"step": 5}, {"step": ""}, {"worker_id": {}}, {"event_type": ""}, {"event_type": 7}, {"status": 1},
        {"step_run_id": "step:other:run:1"}, {"step_run_id": "x"},
        {"payload": {"s": "\ud800"}},
    ],
)  # fmt: skip
def test_a_malformed_field_is_refused_by_name(more: dict[str, Any]) -> None:
    (field,) = more
    expected = "cannot be stored" if field == "payload" else field.removesuffix("_run_id")
    assert expected in refused(**more)


def test_unknown_keys_are_ignored_with_a_warning() -> None:
    incoming = parsed(colour="red")
    assert incoming.warnings == ("unknown key 'colour' is ignored",)
    assert incoming.digest == parsed().digest
    many = parsed(**{f"k{number}": 1 for number in range(50)}).warnings
    assert (len(many), many[-1]) == (11, "so are 40 more unknown keys")


def test_meta_and_the_payloads_own_meta_are_two_things() -> None:
    event = parsed(PRODUCER, payload={"meta": {"a": 1}, "b": 2}, meta={"c": 3, "producer": "forged"}).event
    assert event.payload == {"meta": {"a": 1}, "b": 2}
    assert event.sent["meta"] == {"c": 3, "producer": ""}
    full = widen(event, Subject(ID, "x"), 1, 5, NOW)
    assert (full["meta"], full["payload"]["meta"]) == (event.sent["meta"], {"a": 1})


def test_a_producers_payload_that_is_no_object_is_kept_as_a_value() -> None:
    assert parsed(PRODUCER, payload=[1, 2]).event.payload == {"value": [1, 2]}
    assert parsed(PRODUCER, payload=None).event.payload == {}


@pytest.mark.parametrize(
    ("payload", "outcome"),
    [
        ({"rows": 3}, {"status": "ok", "result": {"rows": 3}}),
        ([1, 2], {"status": "ok", "result": [1, 2]}),
        ("text", {"status": "ok", "result": "text"}),
        (0, {"status": "ok", "result": 0}),
        ({}, {"status": "ok", "result": {}}),
        (None, {"status": "ok"}),
        ({"result_ref": {"ref": "x"}}, {"status": "ok", "result_ref": {"ref": "x"}}),
        (
            {"result_ref": {"ref": "x"}, "extracted": {"n": 1}, "more": 2},
            {"status": "ok", "result_ref": {"ref": "x"}, "extracted": {"n": 1}, "result": {"more": 2}},
        ),
        ({"outcome": {"status": "ok", "result": 5}}, {"status": "ok", "result": 5}),
    ],
)
def test_a_workers_plain_payload_is_an_ok_outcome(payload: Any, outcome: Any) -> None:
    assert parsed(WORKER, event_type="call.done", payload=payload).event.payload == {"outcome": outcome}


@pytest.mark.parametrize(
    ("payload", "problem", "result"),
    [
        ({"error": "boom"}, {"kind": "exception", "message": "boom", "code": None, "retryable": False}, None),
        (
            {"error": {"kind": "timeout", "code": 504, "hint": "later"}, "body": "…"},
            {
                "kind": "timeout",
                "message": "the worker reported the error without a message",
                "code": "504",
                "retryable": True,
                "hint": "later",
            },
            {"body": "…"},
        ),
        (
            {"error": {"kind": "http", "message": "503", "retryable": True}},
            {"kind": "http", "message": "503", "code": None, "retryable": True},
            None,
        ),
        (
            None,
            {
                "kind": "exception",
                "message": "the worker reported the error without a message",
                "code": None,
                "retryable": False,
            },
            None,
        ),
    ],
)
def test_a_workers_plain_error_is_an_error_outcome_without_gaps(payload: Any, problem: Any, result: Any) -> None:
    outcome = parsed(WORKER, event_type="call.error", payload=payload).event.payload["outcome"]
    assert outcome == {"status": "error", "error": problem, **({} if result is None else {"result": result})}


def test_depth_is_bounded() -> None:
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    assert "nested deeper" in refused(payload={"a": deep})


@pytest.mark.parametrize("body", [None, [], "x", 5, True])
def test_a_body_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(RequestRejected):
        parse_event(body, WORKER, NOW)
    with pytest.raises(RequestRejected):
        parse_batch(body, WORKER, NOW, most=10)


# -- status -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "kind", "status"),
    [
        ("STARTED", "task.started", "in_progress"),
        ("running", "step.enter", "in_progress"),
        ("Completed", "step.exit", "success"),
        ("failed", "step.exit", "error"),
        ("PAUSED", "playbook.paused", "paused"),
        ("CANCELLED", "execution.cancelled", "error"),
        ("cancelled", "command.cancelled", "error"),
        ("CANCELLED", "step.exit", "error"),
        ("CASE_HANDLED", "step.exit", "success"),
        ("success", "step.exit", "success"),
        ("error", "call.error", "error"),
        ("in_progress", "step.enter", "in_progress"),
        ("paused", "playbook.paused", "paused"),
        ("skipped", "step.done", "skipped"),
    ],
)
def test_a_status_may_be_written_in_any_case(word: str, kind: str, status: str) -> None:
    event = parsed(SERVER, event_type=kind, status=word).event
    assert widen(event, Subject(ID, "x"), 1, 5, NOW)["status"] == status


@pytest.mark.parametrize("word", ["ok", "DONE", "", "CANCELED", "handled", "skipped"])
def test_any_other_status_is_refused(word: str) -> None:
    assert "status" in refused(event_type="step.exit", status=word)


@pytest.mark.parametrize("word", ["CASE_HANDLED", "CANCELLED", "RUNNING", "success", "SKIPPED"])
def test_a_status_comes_back_as_it_was_sent(word: str) -> None:
    kind = {"RUNNING": "step.enter", "CANCELLED": "execution.cancelled"}.get(word, "step.done")
    event = parsed(PRODUCER, event_type=kind, status=word).event
    (record,) = rendered_log("wire", [widen(event, Subject(ID, "x"), 1, 5, NOW)])
    assert record.record["status"] == word.upper()


def test_a_cancelled_run_is_told_as_cancelled() -> None:
    last = next(record for record in records("wire", "cancelled") if record["event_type"] == "execution.cancelled")
    assert (last["status"], last["result"]["status"]) == ("CANCELLED", "CANCELLED")
    commands = [record for record in records("wire", "cancelled") if record["event_type"] == "command.cancelled"]
    assert {command["status"] for command in commands} == {"CANCELLED"}


def test_only_the_server_says_that_something_was_skipped() -> None:
    assert parsed(SERVER, event_type="step.done", meta={"skipped": True}).event.status == "skipped"
    assert parsed(WORKER, event_type="step.done", meta={"skipped": True}).event.status == ""
    assert parsed(SERVER, event_type="task.done", meta={"skipped": True}).event.status == ""


def test_a_status_that_contradicts_the_name_is_refused() -> None:
    assert "cannot have status FAILED" in refused(event_type="task.done", status="FAILED")
    assert "cannot have status STARTED" in refused(PRODUCER, event_type="tool.processed", status="STARTED")
    assert "cannot have status COMPLETED" in refused(event_type="call.error", status="COMPLETED")


# -- results ------------------------------------------------------------------------------------------------------------


SENT_RESULTS: list[dict[str, Any]] = [
    {"result_kind": "ref", "result_uri": "noetl://x", "payload": {"a": 1}},
    {"result_kind": "refs", "event_ids": ["5", "6"]},
    {"payload": {"a": 1, "b": [2]}},
    {"result_uri": "s3://bucket/key", "payload": {}},
]


@pytest.mark.parametrize("sent", SENT_RESULTS)
def test_a_result_comes_back_as_it_was_sent(sent: dict[str, Any]) -> None:
    full = widen(parsed(PRODUCER, **sent).event, Subject(ID, "x"), 1, 5, NOW)
    (event,) = rendered_log("wire", [full])
    record = event.record
    assert {key: record[key] for key in sent} == sent
    kind = sent.get("result_kind", "data")
    assert record["result_kind"] == (kind if "result_kind" in sent or "result_uri" not in sent else "ref")
    reference = {"uri": "noetl://x"} if kind == "ref" else {"event_ids": ["5", "6"]}
    if kind != "data":
        assert record["result"] == {"status": "COMPLETED", "reference": reference}
    elif "result_uri" not in sent:
        assert record["result"] == {"status": "COMPLETED", "context": sent["payload"]}
    again = parse_event(record, PRODUCER, NOW)
    assert (again.warnings, again.event.sent.get("result_uri")) == ((), sent.get("result_uri"))


@pytest.mark.parametrize(
    ("payload", "told_as"),
    [
        ({"a": 1, "meta": {"legacy_type": "step_completed"}}, {"meta": {"legacy_type": "step_completed"}}),
        (
            {"result": {"status": "COMPLETED", "reference": {"uri": "s3://x"}}},
            {"result_kind": "ref", "result_uri": "s3://x"},
        ),
        (
            {"result": {"status": "COMPLETED", "reference": {"event_ids": ["5"]}}},
            {"result_kind": "refs", "event_ids": ["5"]},
        ),
        ({"result": 5}, {"result_kind": "data"}),
    ],
)
def test_what_earlier_releases_stored_is_told_in_the_same_way(payload: dict[str, Any], told_as: dict[str, Any]) -> None:
    """They kept in the payload what came beside an event, and no name of a producer."""
    old = Event("step.done", NOW, step="fetch", informative=True, own_id=5, payload=payload)
    full = widen(old, Subject(ID, "x"), 1, 5, NOW)
    assert (full["source"], full["payload"]) == ("producer", payload)
    (record,) = rendered_log("wire", [full])
    meta = told_as.pop("meta", {})
    assert {key: record.record[key] for key in told_as} == told_as
    assert meta.items() <= record.record["meta"].items()
    late = Event("step.done", NOW, step="fetch", informative=True, command_id=7, fence=1, worker_id="w")
    assert widen(late, Subject(ID, "x"), 1, 5, NOW)["source"] == "worker"


def test_references_are_checked() -> None:
    by_events = parsed(result_kind="refs", event_ids=[5, "6"]).event.sent
    assert by_events["event_ids"] == ["5", "6"]
    assert result_of("data", "FAILED", {"error": {"kind": "x"}}) == {
        "status": "FAILED",
        "context": {"error": {"kind": "x"}},
    }


@pytest.mark.parametrize(
    "more",
    [
        {"result_kind": "ref"},
        {"result_kind": "refs"},
        {"result_kind": "refs", "event_ids": []},
        {"result_kind": "blob"},
        {"event_ids": 5},
        {"result_uri": 5},
    ],
)
def test_a_reference_needs_what_it_refers_to(more: dict[str, Any]) -> None:
    refused(**more)


def test_a_reference_that_the_payload_has_already_is_the_same_event() -> None:
    payload = {"result_ref": {"kind": "data", "store": "files", "ref": "noetl://x"}}
    plain = parsed(PRODUCER, payload=payload)
    assert parsed(PRODUCER, result_kind="ref", result_uri="noetl://x", payload=payload).digest == plain.digest
    assert parsed(PRODUCER, result_kind="ref", result_uri="noetl://y", payload=payload).digest != plain.digest


def test_digests_of_earlier_releases_still_fit() -> None:
    """An event that was accepted before an update is known when it is sent again after it."""
    names: dict[str, dict[str, Any]] = {
        "20f6b769": {"payload": {"a": 1}, "meta": {"x": 1}},
        "41d24f1f": {"result_kind": "ref", "result_uri": "noetl://x", "payload": {"a": 1}},
        "6aed2184": {"result_kind": "refs", "event_ids": [5, "6"]},
        "ca262ceb": {"worker_id": "w-1", "attempt": 2, "task": "t", "fence": 3},
    }
    incoming = [parsed(PRODUCER, **more).digest[:8] for more in names.values()]
    assert incoming == list(names)


def test_a_terminal_error_stands_at_result_context_error() -> None:
    (last,) = [record for record in records("wire", "unhandled_failure") if record["event_type"] == "playbook.failed"]
    assert last["status"] == "FAILED"
    assert last["result"]["context"]["error"]["message"]


# -- authority ----------------------------------------------------------------------------------------------------------

KEPT = ("playbook.", "workflow.", "step.scheduled", "next.", "execution.", "policy.admit.", "signal.", "timer.")


@pytest.mark.parametrize("kind", REGISTRY)
def test_a_worker_may_not_send_what_belongs_to_the_control_plane(kind: str) -> None:
    if kind.startswith(KEPT):
        with pytest.raises(NotAllowed, match="worker may not send"):
            parsed(WORKER, event_type=kind)
    elif "worker" in REGISTRY[kind].emitters:
        assert parsed(WORKER, event_type=kind).grant.needs_lease


@pytest.mark.parametrize("kind", REGISTRY)
def test_a_producers_events_are_informative_whatever_their_type(kind: str) -> None:
    for name in (kind, kind.replace(".", "_"), REGISTRY[kind].alias, kind.upper(), kind.replace(".", "-")):
        incoming = parse_event({**BODY, "event_type": name}, PRODUCER, NOW, sender="etl")
        assert (incoming.event.type, incoming.event.informative, incoming.grant.needs_lease) == (kind, True, False)
        full = widen(incoming.event, Subject(ID, "x"), 1, 5, NOW)
        assert (full["source"], full["meta"]["producer"]) == ("producer", "etl")
        assert full["meta"].get("legacy_type", kind) == name


@pytest.mark.parametrize("name", [row.name for row in lifecycle.TABLE] + [row.name for row in run.TABLE])
def test_names_of_every_dialect_are_a_producers_to_use(name: str) -> None:
    incoming = parsed(PRODUCER, event_type=name)
    assert any(record.canonical == incoming.event.type for record in MEANINGS[name])
    assert incoming.event.informative


def test_a_lifecycle_name_does_not_get_around_the_authority() -> None:
    for name in ("playbook.completed", "workflow.failed", "execution.cancelled", "playbook.initialized"):
        with pytest.raises(NotAllowed):
            parsed(WORKER, event_type=name)
    for name in ("RunCompleted", "PlaybookFinished", "playbook-finished"):
        assert "no event type" in refused(WORKER, event_type=name)


def test_nobody_else_may_send_anything() -> None:
    with pytest.raises(NotAllowed, match="viewer"):
        parsed("viewer")
    assert set(wire.GRANTS) == {SERVER, WORKER, PRODUCER}


def test_unknown_types_are_refused_with_the_nearest_name() -> None:
    assert "did you mean task.done?" in refused(event_type="task.don")


def test_actionable_and_informative_are_the_servers_to_say() -> None:
    incoming = parsed(WORKER, actionable=False, informative=True)
    assert incoming.actionable
    assert not incoming.event.informative
    assert len(incoming.warnings) == 2
    from_server = parsed(SERVER, actionable=False, informative=True)
    assert not from_server.actionable
    assert from_server.event.informative
    assert "actionable" in refused(SERVER, actionable="no")


# -- legacy -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "payload", "kind"),
    [
        ("tool.started", None, {}, "task.started"),
        ("tool.processed", "COMPLETED", {}, "task.done"),
        ("tool.processed", "FAILED", {}, "task.failed"),
        ("tool.processed", None, {"error": {"kind": "x"}}, "task.failed"),
        ("retry.started", None, {}, "task.attempt.started"),
        ("retry.processed", None, {}, "task.attempt.done"),
        ("retry.processed", "FAILED", {}, "task.attempt.failed"),
        ("sink.started", None, {}, "task.started"),
        ("sink.processed", "FAILED", {}, "task.failed"),
        ("case.evaluated", None, {"selected": []}, "next.evaluated"),
        ("case.evaluated", None, {"action": {"do": "retry"}}, "policy.task.evaluated"),
        ("playbook_started", None, {}, "playbook.started"),
        ("step_completed", "COMPLETED", {}, "step.done"),
        ("step_failed", "failed", {}, "step.failed"),
    ],
)
def test_names_of_older_executors_are_normalised(name: str, status: Any, payload: Any, kind: str) -> None:
    incoming = parsed(PRODUCER, event_type=name, status=status, payload=payload)
    assert incoming.event.type == kind
    assert incoming.event.sent["meta"]["legacy_type"] == name
    assert incoming.event.informative


@pytest.mark.parametrize(
    ("name", "status", "kind"),
    [
        ("sink.flushed", None, "task.done"),
        ("sink.batch.written", "FAILED", "task.failed"),
        ("sink_begin", None, "task.started"),
        ("sink.write.error", None, "task.failed"),
        ("case.handled", "STARTED", "policy.task.evaluated"),
        ("case.condition.matched", "FAILED", "policy.task.evaluated"),
    ],
)
def test_every_verb_of_sink_and_case_is_known(name: str, status: Any, kind: str) -> None:
    incoming = parsed(PRODUCER, event_type=name, status=status)
    assert (incoming.event.type, incoming.event.sent["meta"]["legacy_type"]) == (kind, name)
    with pytest.raises(NotAllowed):
        parsed(WORKER, event_type=name, status=status)


@pytest.mark.parametrize("name", ["sink", "sink.", "case..x", "sinks.done", "sink.DONE!", "sink." + "x" * 200])
def test_what_only_looks_like_one_of_them_is_not(name: str) -> None:
    assert "no event type" in refused(PRODUCER, event_type=name)


@pytest.mark.parametrize("name", legacy.BY_NAME)
def test_our_own_components_may_not_send_an_old_name(name: str) -> None:
    for principal in (WORKER, SERVER):
        with pytest.raises(NotAllowed, match=r"older executors.*instead"):
            parsed(principal, event_type=name)


def test_no_name_means_two_things() -> None:
    own = {row.name for row in lifecycle.TABLE} - REGISTRY.keys()
    assert not own & legacy.BY_NAME.keys()
    assert not REGISTRY.keys() & legacy.BY_NAME.keys()


# -- batches and repetitions --------------------------------------------------------------------------------------------


def test_items_of_a_batch_inherit_and_are_answered_one_by_one() -> None:
    body = {
        "execution_id": str(ID),
        "worker_id": "w1",
        "events": [
            {"event_type": "task.started", "step": "a"},
            {"event_type": "task.done", "step": "a", "execution_id": ID + 1, "worker_id": "w2"},
            {"event_type": "playbook.finished"},
            {"event_type": "nonsense", "step": "a"},
            5,
        ],
    }
    first, second, *others = parse_batch(body, WORKER, NOW, most=5)
    assert isinstance(first, Incoming)
    assert isinstance(second, Incoming)
    assert (first.execution_id, first.event.worker_id) == (ID, "w1")
    assert (second.execution_id, second.event.worker_id) == (ID + 1, "w2")
    assert [(record.index, record.status) for record in others if isinstance(record, Refusal)] == [
        (2, 403),
        (3, 422),
        (4, 422),
    ]


def test_a_batch_that_cannot_be_one_is_refused_whole() -> None:
    bodies: tuple[Any, ...] = ({}, {"events": {}}, {"events": [BODY] * 3}, {"execution_id": [], "events": []})
    for body in bodies:
        with pytest.raises(RequestRejected):
            parse_batch(body, WORKER, NOW, most=2)


def test_a_repetition_has_the_same_digest_whatever_its_time_and_meta() -> None:
    record = parsed(event_id=5, payload={"a": 1, "b": 2}, created_at="2026-01-01T00:00:00Z", meta={"try": 1})
    same = parsed(event_id=5, payload={"b": 2, "a": 1}, created_at=timestamp(NOW), meta={"try": 2})
    assert record.digest == same.digest


@pytest.mark.parametrize(
    "more",
    [{"payload": {"a": 2}}, {"step": "other"}, {"event_type": "task.started"}, {"worker_id": "w"}, {"attempt": 2},
     {"task": "t"}, {"iteration": 1}, {"fence": 3}, {"execution_id": ID + 1}],
)  # fmt: skip
def test_other_content_has_another_digest(more: dict[str, Any]) -> None:
    assert parsed(**{"payload": {"a": 1}, **more}).digest != parsed(payload={"a": 1}).digest


def test_a_payload_that_readers_could_not_read_is_refused() -> None:
    payloads: tuple[dict[str, Any], ...] = (
        {"outcome": 5},
        {"outcome": {}},
        {"outcome": {"status": "fine"}},
        {"outcome": {"status": "ok", "meta": []}},
        {"outcome": {"status": "ok", "meta": {"duration_ms": "long"}}},
        {"outcome": {"status": "ok", "data_at": ["x"]}},
        {"error": 5},
        {"result_ref": "noetl://x"},
    )
    for payload in payloads:
        assert "payload." in refused(payload=payload), payload
    assert "payload.action" in refused(event_type="policy.task.evaluated", payload={"action": "retry"})


def test_null_in_a_payload_is_the_same_as_absent_where_a_value_is_expected() -> None:
    assert parsed(PRODUCER, payload={"outcome": None, "error": None, "own": None}).event.payload == {"own": None}
    rule = {"matched_rule_index": None, "action": {"do": "continue"}}
    assert parsed(event_type="policy.task.evaluated", payload=rule).event.payload == rule


def test_an_error_in_plain_text_becomes_an_errors_message() -> None:
    incoming = parsed(PRODUCER, event_type="tool.processed", payload={"error": "it broke"}).event
    assert (incoming.type, incoming.payload["error"]) == ("task.failed", {"kind": "exception", "message": "it broke"})


def test_nobody_else_can_say_that_the_server_wrote_an_event() -> None:
    for principal, source in ((WORKER, "worker"), (PRODUCER, "producer")):
        event = parsed(principal, event_type="step.done", payload={"source": "server", "a": 1}).event
        assert widen(event, Subject(ID, "x"), 1, 5, NOW)["source"] == source
    assert parsed(WORKER, event_type="step.done", payload={"source": "server", "a": 1}).event.payload == {"a": 1}
    assert widen(parsed(SERVER, meta={"source": "server"}).event, Subject(ID, "x"), 1, 5, NOW)["source"] == "server"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_KEYS = [
    "outcome",
    "error",
    "action",
    "result_ref",
    "result",
    "meta",
    "source",
    "status",
    "duration_ms",
    "data_at",
    "do",
]
_PAYLOAD = st.dictionaries(st.sampled_from(_KEYS), _JSON | st.dictionaries(st.sampled_from(_KEYS), _JSON), max_size=4)
_FIELDS = st.sampled_from([
    "execution_id", "event_id", "event_type", "name", "step", "node_name", "payload", "context", "meta", "worker_id",
    "status", "created_at", "result_kind", "result_uri", "event_ids", "task", "iteration", "iteration_id", "attempt",
    "command_id", "fence", "step_run_id", "task_run_id", "actionable", "informative", "x",
])  # fmt: skip


@given(
    body=st.dictionaries(_FIELDS, _JSON, max_size=6),
    payload=_PAYLOAD,
    kind=st.sampled_from([*REGISTRY, *legacy.BY_NAME, "call.done", "step.exit"]),
    principal=st.sampled_from([SERVER, WORKER, PRODUCER]),
)
def test_any_body_is_refused_or_can_be_read_in_every_dialect(
    body: dict[str, Any], payload: dict[str, Any], kind: str, principal: str
) -> None:
    for given_body in (body, {**BODY, **body}, {**BODY, "event_type": kind, "payload": payload}):
        try:
            incoming = parse_event(given_body, principal, NOW)
        except RequestRejected:
            continue
        full = widen(incoming.event, Subject(incoming.execution_id, "x"), 1, 5, NOW)
        if incoming.event.informative:
            for dialect in DIALECTS:
                for record in rendered_log(dialect, [full, full]):
                    asked_for(record, ["StepFailed"])
