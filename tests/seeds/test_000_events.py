"""Document 000, the runtime event model: names, envelope, taxonomy, who emits what, and the example events."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from arclog.core.boundary.inputs import WorkReported
from arclog.dialects.wire import PRODUCER
from arclog.dialects.wire_incoming import parse_event
from arclog.model.config.settings import Settings
from arclog.model.events import REGISTRY, STATUSES
from arclog.model.ids import micros
from arclog.testing.harness import World
from tests.seeds.support import Ran, errors, once, playbook, ran, signal
from tests.unit.core.support import Core
from tests.unit.core.support import event as worker_event

#: A retry that succeeds, and arcs with conditions and args.
CHAIN = """
metadata: {name: chain, path: flows/chain}
workload: {limit: 3}
workflow:
  - step: start
    spec: {policy: {admit: {rules: [{when: "{{ workload.limit > 1 }}", then: {allow: true}}]}}}
    tool:
      - name: fetch_page
        kind: act
        fail_attempts: 1
        error: connection
        returns: {page: 1}
        takes: 2
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' }}"
                then: {do: retry, attempts: 10, backoff: exponential, delay: 2.0}
              - else: {then: {do: continue}}
    next:
      spec: {mode: exclusive}
      arcs:
        - {step: nowhere, when: "{{ outcome.data.page > 5 }}"}
        - {step: store, when: "{{ event.name == 'step.done' }}", args: {page: "{{ outcome.data.page }}"}}
        - {step: nowhere}
  - {step: store, tool: {kind: act, returns: "{{ args.page }}"}}
  - {step: nowhere, tool: {kind: noop}}
"""
#: Both ends of an iteration, with every optional event.
LOOP = """
metadata: {name: loop}
executor: {spec: {policy: {emit: {events: [full]}}}}
workflow:
  - step: start
    spec: {policy: {failure: {mode: best_effort}}}
    loop: {in: [0, 1], iterator: bad}
    tool: {name: work, kind: act, fail_attempts: "{{ iter.bad }}"}
"""
FAILS = """
metadata: {name: fails}
workflow:
  - {step: start, tool: {name: broken, kind: act, fail_attempts: 9, error: connection}}
"""
LARGE = """
metadata: {name: large}
workflow:
  - step: start
    tool: {name: fetch_page, kind: act, returns: {has_more: true, rows: "{{ ['x' * 1000] * 200 }}"}}
    next: {arcs: [{step: each, when: "{{ outcome.data.has_more }}"}]}
  - {step: each, loop: {in: "{{ start.rows }}", iterator: row}, tool: {name: look, kind: peek}}
"""
SLOW = """
metadata: {name: slow}
workflow:
  - {step: start, tool: [{name: first, kind: act, takes: 10}, {name: second, kind: act}]}
"""


async def pause_and_resume(world: World) -> None:
    await asyncio.sleep(5)
    await signal(world, "PAUSE")
    await asyncio.sleep(50)
    await signal(world, "RESUME")


#: event type → (its alias, a run that has it)
TAXONOMY: dict[str, tuple[str, str]] = {
    "playbook.execution.requested": ("PlaybookExecutionRequested", CHAIN),
    "playbook.request.evaluated": ("PlaybookRequestEvaluated", CHAIN),
    "playbook.started": ("PlaybookStarted", CHAIN),
    "playbook.paused": ("PlaybookPaused", SLOW),
    "playbook.finished": ("PlaybookFinished", CHAIN),
    "playbook.processed": ("PlaybookProcessed", CHAIN),
    "workflow.started": ("WorkflowStarted", CHAIN),
    "workflow.finished": ("WorkflowFinished", CHAIN),
    "step.scheduled": ("StepScheduled", CHAIN),
    "step.started": ("StepStarted", CHAIN),
    "step.done": ("StepDone", CHAIN),
    "step.failed": ("StepFailed", FAILS),
    "task.started": ("TaskStarted", CHAIN),
    "task.attempt.started": ("TaskAttemptStarted", CHAIN),
    "task.attempt.done": ("TaskAttemptDone", CHAIN),
    "task.attempt.failed": ("TaskAttemptFailed", CHAIN),
    "task.done": ("TaskDone", CHAIN),
    "task.failed": ("TaskFailed", FAILS),
    "loop.started": ("LoopStarted", LOOP),
    "loop.iteration.scheduled": ("LoopIterationScheduled", LOOP),
    "loop.iteration.started": ("LoopIterationStarted", LOOP),
    "loop.iteration.done": ("LoopIterationDone", LOOP),
    "loop.iteration.failed": ("LoopIterationFailed", LOOP),
    "loop.done": ("LoopDone", LOOP),
    "policy.admit.evaluated": ("PolicyAdmitEvaluated", CHAIN),
    "policy.task.evaluated": ("PolicyTaskEvaluated", CHAIN),
    "next.evaluated": ("NextEvaluated", CHAIN),
    "result.stored": ("ResultStored", LARGE),
    "result.manifest.updated": ("ResultManifestUpdated", LARGE),
}
#: who emits a type in these runs
SERVER_TYPES = (
    "playbook.execution.requested", "playbook.request.evaluated", "playbook.started", "playbook.paused",
    "playbook.finished", "playbook.processed", "workflow.started", "workflow.finished", "step.scheduled",
    "policy.admit.evaluated", "next.evaluated", "loop.started", "loop.done", "loop.iteration.scheduled",
)  # fmt: skip


def run_of(text: str) -> Ran:
    return once(text, pause_and_resume if text == SLOW else None)


def every_run() -> list[Ran]:
    return [run_of(text) for text in (CHAIN, LOOP, FAILS, LARGE, SLOW)]


def every_event() -> list[dict[str, Any]]:
    return [event for run in every_run() for event in run.log]


# -- 1: names ---------------------------------------------------------------------------------------------------------


def test_event_types_are_lower_case_dotted_and_end_in_a_verb() -> None:
    verbs = {"requested", "evaluated", "scheduled", "started", "done", "failed", "finished", "paused", "processed"}
    # Stored and updated stand in the document's own taxonomy; the others belong to types that it does not have.
    more = {
        "stored",
        "updated",
        "issued",
        "claimed",
        "completed",
        "cancelled",
        "resumed",
        "received",
        "fired",
        "refused",
    }
    for name, row in REGISTRY.items():
        assert re.fullmatch(r"[a-z]+(\.[a-z]+){1,2}", name)
        first, *_, verb = name.split(".")
        assert verb in verbs | more
        assert first in (row.entity, "policy", "execution", "batch"), name
        if name in TAXONOMY and not name.startswith("result."):
            assert verb in verbs, name


def test_boundaries_close_with_done_or_failed_decisions_with_evaluated_and_runs_with_finished() -> None:
    ends = {"step": {"done", "failed"}, "task": {"done", "failed"}, "loop.iteration": {"done", "failed"}}
    for entity, expected in ends.items():
        assert expected <= {name.removeprefix(f"{entity}.") for name in REGISTRY if name.startswith(f"{entity}.")}
    assert [name for name in REGISTRY if name.endswith(".finished")] == ["playbook.finished", "workflow.finished"]
    assert {name for name in REGISTRY if name.endswith(".evaluated")} == {
        "playbook.request.evaluated", "policy.admit.evaluated", "policy.task.evaluated", "next.evaluated",
    }  # fmt: skip


@pytest.mark.parametrize("event_type", TAXONOMY)
def test_every_type_of_the_taxonomy_is_in_a_real_log_with_its_alias_and_source(event_type: str) -> None:
    alias, text = TAXONOMY[event_type]
    events = run_of(text).of(event_type)
    assert events
    for event in events:
        assert event["event_alias"] == alias
        assert event["entity_type"] == event_type.partition(".")[0]
        assert event["status"] in STATUSES
        if event["source"] == "server":
            # A loop's step is ended by the server, which counts its items.
            assert event_type in SERVER_TYPES or (event_type, text) == ("step.done", LOOP) or text == LARGE
        else:
            assert event_type not in SERVER_TYPES


def test_there_are_no_case_retry_or_sink_events_and_playbooks_with_them_are_refused() -> None:
    assert not [name for name in REGISTRY if name.partition(".")[0] in ("case", "retry", "sink", "tool")]
    assert not [row for row in REGISTRY.values() if row.entity in ("case", "retry", "sink", "tool")]
    for key in ("case: []", "retry: 3", "sink: {}"):
        assert "legacy-form" in errors(playbook(f"tool: {{kind: noop}}\n{key}"))


# -- 2: envelope ------------------------------------------------------------------------------------------------------


def test_required_fields() -> None:
    for run in every_run():
        assert len({event["event_id"] for event in run.log}) == len(run.log)
        assert len({event["execution_id"] for event in run.log}) == 1
    for event in every_event():
        for key in ("event_id", "event_type", "timestamp", "execution_id"):
            assert isinstance(event[key], str)
            assert event[key]
        assert event["event_type"] in REGISTRY
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event["timestamp"])
        assert micros(event["timestamp"]) <= micros(event["persisted_at"])


def test_ids_are_decimal_strings_of_positive_64_bit_numbers() -> None:
    for event in every_event():
        for key in ("event_id", "execution_id"):
            assert event[key].isdecimal()
            assert 0 < int(event[key]) < 1 << 63


def test_entities_nest_from_the_workflow_to_the_step_to_the_task() -> None:
    run = run_of(CHAIN)
    assert run.only("workflow.started")["parent_id"] == f"playbook:{run.log[0]['execution_id']}"
    step = run.of("step.started")[0]
    assert (step["entity_id"], step["parent_id"]) == ("start", "workflow:chain:run:1")
    task = run.of("task.started")[0]
    assert (task["entity_id"], task["parent_id"]) == ("fetch_page", step["step_run_id"])
    policy = run.of("policy.task.evaluated")[0]
    assert (policy["entity_id"], policy["parent_id"]) == ("task:fetch_page", task["task_run_id"])
    loop = run_of(LOOP).only("loop.started")
    assert (loop["entity_id"], loop["parent_id"]) == ("loop:start", "step:start:run:1")


def test_entity_types_are_the_documents_and_three_more() -> None:
    assert {row.entity for row in REGISTRY.values()} == {
        "playbook", "workflow", "step", "task", "loop", "next", "policy", "result", "command", "signal", "timer",
    }  # fmt: skip


def test_seq_counts_the_events_of_an_execution() -> None:
    for run in every_run():
        assert [event["seq"] for event in run.log] == list(range(1, len(run.log) + 1))


def test_runs_of_workflow_step_and_task_have_names() -> None:
    for event in run_of(LOOP).of("task.started", "task.done", "task.failed"):
        assert event["workflow_run_id"] == "workflow:loop:run:1"
        assert event["step_run_id"] == "step:start:run:1"
        assert event["task_run_id"] == "task:work:run:1"


def test_iterations_have_an_index_and_a_stable_id() -> None:
    iterations = run_of(LOOP).of("loop.iteration.started", "loop.iteration.done", "loop.iteration.failed")
    assert {(event["iteration"], event["iteration_id"]) for event in iterations} == {
        (0, "step:start:run:1:iter:0"),
        (1, "step:start:run:1:iter:1"),
    }


def test_attempts_are_counted_from_1() -> None:
    attempts = [(event["event_type"], event["attempt"]) for event in run_of(CHAIN).of(
        "task.attempt.started", "task.attempt.done", "task.attempt.failed"
    )]  # fmt: skip
    assert attempts == [("task.attempt.failed", 1), ("task.attempt.started", 2), ("task.attempt.done", 2)]


def test_five_statuses() -> None:
    assert STATUSES == ("in_progress", "success", "error", "skipped", "paused")
    denied = ran(CHAIN.replace("limit > 1", "limit > 5"))
    statuses = {event["status"] for event in (*every_event(), *denied.log)}
    assert statuses == set(STATUSES)


def test_task_started_has_the_rendered_inputs_and_caps_them() -> None:
    store = next(event for event in run_of(CHAIN).of("task.started") if event["task"] == "store_task")
    assert store["payload"]["inputs"] == {"returns": 1}
    large = next(event for event in run_of(LARGE).of("task.started") if event["task"] == "fetch_page")
    inputs = large["payload"]["inputs"]
    assert inputs["truncated"] is True
    assert inputs["bytes"] > 200_000
    assert re.fullmatch(r"[0-9a-f]{64}", inputs["sha256"])
    assert len(inputs["preview"]) <= 4096


def test_a_task_ends_with_one_outcome() -> None:
    done = run_of(CHAIN).of("task.done")[0]["payload"]["outcome"]
    assert (done["status"], done["result"], done["data"], done["error"]) == ("ok", {"page": 1}, {"page": 1}, None)
    failed = run_of(FAILS).only("task.failed")["payload"]["outcome"]
    assert failed["status"] == "error"
    assert failed["error"].keys() >= {"kind", "message", "code", "retryable"}
    ends = [(event["task_run_id"], event.get("iteration")) for event in run_of(LOOP).of("task.done", "task.failed")]
    assert len(ends) == len(set(ends)) == 2


def test_errors_are_structured() -> None:
    for event in run_of(FAILS).of("step.failed", "workflow.finished", "playbook.finished"):
        error = event["payload"]["error"]
        assert (error["kind"], error["retryable"]) == ("connection", True)
        assert "fails as scripted" in error["message"]


def test_meta_of_an_event_is_free_form() -> None:
    body = {
        "execution_id": 5,
        "event_type": "task.done",
        "step": "s",
        "payload": {"meta": {"any": [1, {"thing": None}]}},
    }
    assert parse_event(body, PRODUCER, 0).event.payload["meta"] == {"any": [1, {"thing": None}]}


# -- 3: who emits what, and when --------------------------------------------------------------------------------------


def test_a_step_is_scheduled_when_its_token_is_taken() -> None:
    run = run_of(CHAIN)
    assert [(event["step"], event["payload"]["tokens"]) for event in run.of("step.scheduled")] == [
        ("start", [1]),
        ("store", [2]),
    ]
    tokens = [arc["token"] for event in run.of("next.evaluated") for arc in event["payload"]["selected"]]
    assert tokens == [2]


def test_workers_report_the_start_and_end_of_steps_and_the_server_stores_them() -> None:
    for event in run_of(CHAIN).of("step.started", "step.done"):
        assert event["source"] == "worker"
    assert {event["worker_id"] for event in run_of(CHAIN).of("step.started")} == {"worker-a"}
    assert run_of(FAILS).only("step.failed")["source"] == "worker"


def test_the_server_ends_a_step_where_no_worker_can() -> None:
    late = """
metadata: {name: late}
workflow:
  - {step: start, spec: {policy: {lifecycle: {timeout_s: 5}}}, tool: {kind: act, takes: 100}}
"""
    failed = ran(late).only("step.failed")
    assert (failed["source"], failed["payload"]["error"]["kind"]) == ("server", "timeout")
    assert run_of(LOOP).only("step.done")["source"] == "server"


def test_a_retry_is_several_attempts_of_one_task_run_and_one_final_outcome() -> None:
    own = [event for event in run_of(CHAIN).log if event.get("task") == "fetch_page"]
    assert [event["event_type"] for event in own] == [
        "task.started",
        "task.attempt.failed",
        "policy.task.evaluated",
        "task.attempt.started",
        "task.attempt.done",
        "task.done",
        "policy.task.evaluated",
    ]
    assert {event["task_run_id"] for event in own} == {"task:fetch_page:run:1"}


def test_without_a_retry_there_are_no_attempt_events_unless_they_are_asked_for() -> None:
    assert not run_of(FAILS).of("task.attempt.started", "task.attempt.done", "task.attempt.failed")
    assert run_of(LOOP).of("task.attempt.started", "task.attempt.done", "task.attempt.failed")


def test_loops_begin_and_end_around_their_iterations() -> None:
    kinds = [event["event_type"] for event in run_of(LOOP).log if event["event_type"].startswith(("loop.", "step."))]
    assert kinds == [
        "step.scheduled",
        "step.started",
        "loop.started",
        "loop.iteration.scheduled",
        "loop.iteration.scheduled",
        "loop.iteration.started",
        "loop.iteration.done",
        "loop.iteration.started",
        "loop.iteration.failed",
        "loop.done",
        "step.done",
    ]


def test_admission_records_which_rule_allowed_or_denied() -> None:
    allowed = run_of(CHAIN).only("policy.admit.evaluated")
    assert (allowed["source"], allowed["status"]) == ("server", "success")
    assert allowed["payload"]["allow"] is True
    assert allowed["payload"]["matched_rule_index"] == 0
    denied = ran(CHAIN.replace("limit > 1", "limit > 5")).only("policy.admit.evaluated")
    assert (denied["status"], denied["payload"]["allow"], denied["payload"]["matched_rule_index"]) == (
        "skipped",
        False,
        None,
    )


@pytest.mark.parametrize("do", ["retry, attempts: 2, delay: 0", "jump, to: last", "continue", "break", "fail"])
def test_a_policy_records_which_rule_matched_and_what_it_did(do: str) -> None:
    text = f"""
metadata: {{name: p}}
workflow:
  - step: start
    tool:
      - name: first
        kind: act
        fail_attempts: 1
        spec: {{policy: {{rules: [{{when: false, then: {{do: fail}}}}, {{when: "{{{{ outcome.status == 'error' }}}}", then: {{do: {do}}}}}]}}}}
      - {{name: last, kind: act}}
"""
    evaluated = ran(text).of("policy.task.evaluated")[0]
    assert (evaluated["source"], evaluated["task"]) == ("worker", "first")
    assert evaluated["payload"]["matched_rule_index"] == 1
    assert evaluated["payload"]["action"]["do"] == do.partition(",")[0]


def test_routing_records_which_arcs_matched_and_which_were_fired() -> None:
    fan = """
metadata: {name: fan}
workflow:
  - step: start
    tool: {kind: noop}
    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b, when: "{{ false }}"}, {step: c, when: "{{ 1 < 2 }}"}]}
  - {step: a, tool: {kind: noop}}
  - {step: b, tool: {kind: noop}}
  - {step: c, tool: {kind: noop}}
"""
    routed = ran(fan).of("next.evaluated")[0]
    assert (routed["source"], routed["payload"]["mode"]) == ("server", "inclusive")
    assert routed["payload"]["matched"] == [{"step": "a"}, {"step": "c", "when": "{{ 1 < 2 }}"}]
    assert [arc["step"] for arc in routed["payload"]["selected"]] == ["a", "c"]


def test_a_payload_that_is_stored_outside_the_log_is_announced_before_the_task_ends() -> None:
    run = run_of(LARGE)
    kinds = [event["event_type"] for event in run.log if event.get("task") == "fetch_page"]
    assert kinds == ["task.started", "result.stored", "task.done"]
    assert run.of("result.manifest.updated")


# -- 5: control plane and data plane ----------------------------------------------------------------------------------


def test_the_server_writes_a_run_from_its_request_to_its_end() -> None:
    run = run_of(CHAIN)
    server = [event["event_type"] for event in run.log if event["source"] == "server"]
    assert server == [
        "playbook.execution.requested",
        "playbook.request.evaluated",
        "playbook.started",
        "workflow.started",
        "policy.admit.evaluated",
        "step.scheduled",
        "next.evaluated",
        "step.scheduled",
        "next.evaluated",
        "workflow.finished",
        "playbook.finished",
        "playbook.processed",
    ]


def test_admission_is_evaluated_before_each_scheduling_of_a_step_that_has_rules() -> None:
    text = """
metadata: {name: again}
workflow:
  - step: start
    spec: {policy: {admit: {rules: [{when: "{{ (args.lap | default(1)) < 3 }}", then: {allow: true}}]}}}
    tool: {kind: noop}
    next: {arcs: [{step: start, args: {lap: "{{ (args.lap | default(1)) + 1 }}"}}]}
"""
    run = ran(text)
    decisions = [
        event["event_type"] for event in run.log if event["event_type"] in ("policy.admit.evaluated", "step.scheduled")
    ]
    assert decisions == ["policy.admit.evaluated", "step.scheduled"] * 2 + ["policy.admit.evaluated"]


def test_workers_report_what_they_do() -> None:
    worker = [event["event_type"] for event in run_of(CHAIN).log if event["source"] == "worker"]
    assert worker == [
        "step.started",
        "task.started",
        "task.attempt.failed",
        "policy.task.evaluated",
        "task.attempt.started",
        "task.attempt.done",
        "task.done",
        "policy.task.evaluated",
        "step.done",
        "step.started",
        "task.started",
        "task.done",
        "step.done",
    ]
    iterations = run_of(LOOP).of("loop.iteration.started", "loop.iteration.done", "loop.iteration.failed")
    assert {event["source"] for event in iterations} == {"worker"}


def test_a_pause_is_written_by_the_server() -> None:
    assert run_of(SLOW).only("playbook.paused")["source"] == "server"


def test_a_worker_cannot_start_a_step() -> None:
    core = Core(
        "metadata: {name: p}\nworkflow:\n  - {step: start, tool: {kind: noop}}\n  - {step: other, tool: {kind: noop}}\n"
    )
    work = core.start()
    core.report(work, worker_event("step.started", work))
    before = list(core.types)
    for kind in ("step.scheduled", "next.evaluated"):
        refused = core.put(WorkReported(work.command_id, 1, 2, "w", [worker_event(kind, work)])).refused
        assert refused is not None
        assert refused.reason == "malformed"
    assert core.types == before


# -- 6: subjects ------------------------------------------------------------------------------------------------------


def test_the_subject_of_a_published_event_is_its_type_behind_noetl_events() -> None:
    assert Settings().text("bus.events_subject") == "noetl.events"


# -- 7: example events ------------------------------------------------------------------------------------------------


def test_example_of_an_attempt_that_failed() -> None:
    event = run_of(CHAIN).only("task.attempt.failed")
    assert event["source"] == "worker"
    assert (event["entity_type"], event["entity_id"]) == ("task", "fetch_page")
    assert (event["parent_id"], event["task_run_id"]) == ("step:start:run:1", "task:fetch_page:run:1")
    assert (event["attempt"], event["status"]) == (1, "error")
    outcome = event["payload"]["outcome"]
    assert outcome["status"] == "error"
    assert (outcome["error"]["kind"], outcome["error"]["retryable"]) == ("connection", True)
    assert outcome["meta"]["duration_ms"] == 2000
    assert event["duration_ms"] == 2000
    assert isinstance(event["duration_ms"], int)


def test_an_attempt_that_ended_well_has_its_outcome() -> None:
    event = run_of(CHAIN).of("task.attempt.done")[0]
    assert event["payload"]["outcome"]["status"] == "ok"
    assert isinstance(event["payload"]["outcome"]["meta"]["duration_ms"], int)


def test_example_of_a_policy_that_retries() -> None:
    event = run_of(CHAIN).of("policy.task.evaluated")[0]
    assert (event["entity_type"], event["entity_id"]) == ("policy", "task:fetch_page")
    assert (event["parent_id"], event["status"]) == ("task:fetch_page:run:1", "success")
    assert event["payload"]["matched_rule_index"] == 0
    assert event["payload"]["action"] == {"do": "retry", "attempts": 10, "backoff": "exponential", "delay": 2.0}


def test_example_of_a_stored_result() -> None:
    event = run_of(LARGE).of("result.stored")[0]
    assert (event["source"], event["status"]) == ("worker", "success")
    assert (event["entity_type"], event["entity_id"]) == ("result", "task:fetch_page:attempt:1")
    assert event["parent_id"] == "task:fetch_page:run:1"
    ref = event["payload"]["result_ref"]
    assert ref.keys() >= {"store", "ref", "meta"}
    assert ref["kind"] == "result_ref"
    assert ref["ref"].startswith(f"noetl://execution/{event['execution_id']}/")
    assert ref["meta"]["bytes"] > 200_000
    assert re.fullmatch(r"[0-9a-f]{64}", ref["meta"]["sha256"])


def test_example_of_routing() -> None:
    event = run_of(CHAIN).of("next.evaluated")[0]
    assert (event["source"], event["status"]) == ("server", "success")
    assert (event["entity_type"], event["entity_id"]) == ("next", "step:start")
    assert event["parent_id"] == "step:start:run:1"
    assert event["payload"]["mode"] == "exclusive"
    assert event["payload"]["matched"] == [{"step": "store", "when": "{{ event.name == 'step.done' }}"}]
    (arc,) = event["payload"]["selected"]
    assert (arc["step"], arc["args"]) == ("store", {"page": 1})


# -- 8: jobs elsewhere ------------------------------------------------------------------------------------------------

JOB = """
metadata: {name: job}
workflow:
  - step: sweep
    loop: {in: [0.1, 0.2], iterator: angle}
    tool:
      - name: submit
        kind: act
        returns: {job_ref: "job-{{ iter.index }}"}
      - name: poll
        kind: act
        fail_attempts: 2
        returns: {job: "{{ submit.job_ref }}", counts: [1, 2]}
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 5, delay: 30}}]}}
"""


def test_a_job_elsewhere_is_submitted_polled_and_swept_over_in_one_trace() -> None:
    run = ran(JOB)
    assert run.state.status == "COMPLETED"
    refs = [
        event["payload"]["outcome"]["data"]["job_ref"] for event in run.of("task.done") if event["task"] == "submit"
    ]
    assert refs == ["job-0", "job-1"]
    assert [event["attempt"] for event in run.of("task.attempt.failed")] == [1, 2, 1, 2]
    assert [event["payload"]["action"]["do"] for event in run.of("policy.task.evaluated")][:2] == ["retry", "retry"]
    assert len(run.of("loop.iteration.done")) == 2
    assert len({event["execution_id"] for event in run.log}) == 1
