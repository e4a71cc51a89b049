"""What a worker may report. A refused report changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from arclog.core.boundary.inputs import NewWork, Signal, WorkReported
from arclog.core.boundary.reports import MAX_REPORT_EVENTS, WORKER_TYPES
from arclog.model.events import REGISTRY, Event
from tests.unit.core.support import NOW, Core, done, event

STEP = """
metadata: {name: step}
workflow:
  - step: start
    tool:
      - {name: a, kind: act}
      - {name: b, kind: act, spec: {policy: {rules: [{else: {then: {do: continue}}}]}}}
    next: {arcs: [{step: after}]}
  - {step: after, tool: {kind: act}}
"""
LOOP = """
metadata: {name: loop}
workflow:
  - step: start
    loop: {in: [1, 2], iterator: n}
    tool: {name: a, kind: act}
"""


def decided(work: NewWork, task: str, do: str = "continue", **more: Any) -> Event:
    """What a task's policy chose."""
    return event("policy.task.evaluated", work, task, payload={"action": {"do": do}, **more})


def assert_refused(core: Core, incoming: WorkReported, reason: str) -> None:
    before = msgspec.json.encode(core.state)
    txn = core.put(incoming)
    assert txn.refused is not None, "it was accepted"
    assert txn.refused.reason == reason, txn.refused
    assert txn.refused.message
    assert (txn.events, txn.issue, txn.close, txn.release) == ([], [], [], [])
    assert msgspec.json.encode(core.state) == before


@pytest.mark.parametrize("kind", sorted(REGISTRY.keys() - WORKER_TYPES))
def test_a_worker_may_not_say_what_is_the_servers_to_say(kind: str) -> None:
    core = Core(STEP)
    work = core.start()
    core.report(work, event("step.started", work))
    assert_refused(core, WorkReported(work.command_id, 1, 2, "w", [event(kind, work)]), "malformed")


def test_the_registry_and_the_check_agree_on_workers() -> None:
    """loop.started, loop.done and command.* stand in the registry for workers of later kinds."""
    may = {name for name, row in REGISTRY.items() if "worker" in row.emitters}
    assert may >= WORKER_TYPES
    assert may - WORKER_TYPES == {"loop.started", "loop.done", "command.started", "command.completed", "command.failed"}


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="nothing"),
        pytest.param([("task.started", "a")], id="a task before step.started"),
        pytest.param([("step.done", "")], id="the end before the start"),
        pytest.param([("step.started", ""), ("step.started", "")], id="started twice"),
        pytest.param([("step.started", ""), ("task.started", "nope")], id="an unknown task"),
        pytest.param([("step.started", ""), ("step.done", ""), ("task.started", "a")], id="after the end"),
        pytest.param([("step.started", ""), ("step.done", ""), ("step.failed", "")], id="ended twice"),
        pytest.param([("step.started", ""), ("loop.iteration.started", "")], id="an iteration of no loop"),
        pytest.param([("nonsense", "")], id="an unknown type"),
    ],
)
def test_events_must_fit_their_place(events: list[tuple[str, str]]) -> None:
    core = Core(STEP)
    work = core.start()
    assert_refused(
        core, WorkReported(work.command_id, 1, 1, "w", [event(kind, work, task) for kind, task in events]), "malformed"
    )


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([("task.started", None)], id="a task outside an iteration"),
        pytest.param([("loop.iteration.started", (1,))], id="not the next iteration"),
        pytest.param([("loop.iteration.started", None)], id="no index"),
        pytest.param([("loop.iteration.started", (0,)), ("loop.iteration.started", (0,))], id="open already"),
        pytest.param([("loop.iteration.done", (0,))], id="not started"),
        pytest.param([("step.done", None)], id="the server ends a loop"),
        pytest.param(
            [(f"loop.iteration.{kind}", (i,)) for i in range(3) for kind in ("started", "done")], id="one item too many"
        ),
    ],
)
def test_events_must_fit_their_place_in_a_loop(events: list[tuple[str, Any]]) -> None:
    core = Core(LOOP)
    work = core.start()
    core.report(work, event("step.started", work))
    sent = [event(kind, work, "a" if kind.startswith("task") else "", iteration=at) for kind, at in events]
    assert_refused(core, WorkReported(work.command_id, 1, 2, "w", sent), "malformed")


def test_another_step_is_none_of_its_business() -> None:
    core = Core(STEP)
    work = core.start()
    for step, run in (("after", 1), ("start", 2), ("", 0)):
        sent = Event(type="step.started", at=NOW, step=step, run=run)
        assert_refused(core, WorkReported(work.command_id, 1, 1, "w", [sent]), "malformed")


def test_a_report_has_a_size() -> None:
    core = Core(STEP)
    work = core.start()
    many = [event("step.started", work), *(event("task.started", work, "a") for _ in range(MAX_REPORT_EVENTS))]
    assert_refused(core, WorkReported(work.command_id, 1, 1, "w", many), "malformed")


def test_order_fence_and_end() -> None:
    core = Core(STEP)
    work = core.start()
    started = [event("step.started", work)]
    assert_refused(core, WorkReported(work.command_id, 2, 1, "w", started), "stale")
    assert_refused(core, WorkReported(work.command_id, 1, 2, "w", started), "gap")
    assert_refused(core, WorkReported(work.command_id + 77, 1, 1, "w", started), "closed")
    core.report(work, *started)
    assert_refused(core, WorkReported(work.command_id, 1, 1, "w", started), "duplicate")
    core.report(work, *done(work, "a"), *done(work, "b"), decided(work, "b"), event("step.done", work))
    assert_refused(core, WorkReported(work.command_id, 1, 2, "w", started), "closed")
    core.put(Signal("CANCEL", "stop", "enough"))
    assert_refused(core, WorkReported(work.command_id, 1, 3, "w", started), "ended")


def failed(work: NewWork, task: str, **more: Any) -> Event:
    problem = {"kind": "exception", "message": "no", "code": None, "retryable": False}
    payload = {"outcome": {"status": "error", "error": problem, "meta": {"attempt": 1}}}
    return event("task.failed", work, task, payload=payload, **more)


def attempted(kind: str, work: NewWork, attempt: int) -> Event:
    return event(f"task.attempt.{kind}", work, "b", attempt=attempt)


def retried(work: NewWork, attempt: int) -> Event:
    payload = {"action": {"do": "retry"}, "due": NOW}
    return event("policy.task.evaluated", work, "b", attempt=attempt, payload=payload)


COURSES: dict[str, Callable[[NewWork], list[Event]]] = {
    "the second task first": lambda work: done(work, "b")[:1],
    "a task run that is not the next": lambda work: done(work, "a", task_run=2)[:1],
    "ended twice": lambda work: [*done(work, "a"), done(work, "a")[1]],
    "failed after its end": lambda work: [*done(work, "a"), failed(work, "a")],
    "ended before its start": lambda work: [done(work, "a")[1]],
    "started twice": lambda work: [done(work, "a")[0], done(work, "a")[0]],
    "an error outcome that went well": lambda work: [
        done(work, "a")[0],
        event("task.done", work, "a", payload=failed(work, "a").payload),
    ],
    "an ok outcome that failed": lambda work: [
        done(work, "a")[0],
        event("task.failed", work, "a", payload=done(work, "a")[1].payload),
    ],
    "a decision without a policy": lambda work: [*done(work, "a"), decided(work, "a")],
    "a decision before the end": lambda work: [*done(work, "a"), done(work, "b")[0], decided(work, "b")],
    "two decisions": lambda work: [*done(work, "a"), *done(work, "b"), decided(work, "b"), decided(work, "b")],
    "an attempt that was not started": lambda work: [*done(work, "a"), attempted("started", work, 2)],
    "a retry while the attempt runs": lambda work: [*done(work, "a"), done(work, "b")[0], retried(work, 1)],
    "the wrong attempt": lambda work: [
        *done(work, "a"),
        done(work, "b")[0],
        attempted("failed", work, 1),
        retried(work, 1),
        attempted("started", work, 3),
    ],
    "the end without the first task": lambda work: [event("step.done", work)],
    "the end without the second task": lambda work: [*done(work, "a"), event("step.done", work)],
    "the end while a task runs": lambda work: [done(work, "a")[0], event("step.done", work)],
    "a failure while a task runs": lambda work: [done(work, "a")[0], event("step.failed", work)],
    "the end without a decision": lambda work: [*done(work, "a"), *done(work, "b"), event("step.done", work)],
    "the end of what failed": lambda work: [done(work, "a")[0], failed(work, "a"), event("step.done", work)],
    "a task behind the end": lambda work: [
        *done(work, "a"),
        *done(work, "b"),
        decided(work, "b", "break"),
        done(work, "b", task_run=2)[0],
    ],
}


@pytest.mark.parametrize("events", COURSES.values(), ids=COURSES.keys())
@pytest.mark.parametrize("split", [False, True], ids=["in one report", "event by event"])
def test_tasks_keep_to_their_transitions(events: Callable[[NewWork], list[Event]], split: bool) -> None:
    core = Core(STEP)
    work = core.start()
    core.report(work, event("step.started", work))
    whole = events(work)
    before, wrong = (whole[:-1], whole[-1:]) if split else ([], whole)
    for accepted in before:
        assert core.report(work, accepted).refused is None
    assert_refused(core, WorkReported(work.command_id, 1, len(before) + 2, "w", wrong), "malformed")


def test_a_retried_task_keeps_to_its_transitions() -> None:
    core = Core(STEP)
    work = core.start()
    events = [
        event("step.started", work), *done(work, "a"), done(work, "b")[0], attempted("failed", work, 1), retried(work, 1),
        attempted("started", work, 2), attempted("done", work, 2), done(work, "b")[1], decided(work, "b"), event("step.done", work),
    ]  # fmt: skip
    for accepted in events:
        assert core.report(work, accepted).refused is None, accepted
    assert core.types.count("task.attempt.started") == 1


REF = {
    "kind": "data",
    "store": "files",
    "ref": f"noetl://execution/1/result/start.a/{'0' * 64}",
    "meta": {"bytes": 1, "sha256": "0" * 64},
}


@pytest.mark.parametrize(
    "ref",
    [
        None,
        {},
        "noetl://execution/1/result/start.a/x",
        {**REF, "ref": "noetl://execution/../../etc/passwd"},
        {**REF, "ref": f"noetl://execution/1/result/%2e%2e/{'0' * 64}"},
        {**REF, "ref": f"noetl://execution/1/result/a\0b/{'0' * 64}"},
        {**REF, "meta": {"bytes": 1, "sha256": "1" * 64}},
    ],
)
def test_a_forged_ref_is_refused(ref: Any) -> None:
    core = Core(STEP)
    work = core.start()
    core.report(work, event("step.started", work), event("task.started", work, "a"))
    stored = core.report(work, event("result.stored", work, "a", payload={"result_ref": ref}))
    done = core.report(work, event("task.done", work, "a", payload={"outcome": {"status": "ok", "result_ref": ref}}))
    assert [txn.refused.reason for txn in (stored, done) if txn.refused] == ["malformed"] * 2


def test_a_report_that_begins_with_a_stored_result_counts() -> None:
    core = Core(STEP)
    work = core.start()
    core.report(work, event("step.started", work), event("task.started", work, "a"))
    core.report(work, event("result.stored", work, "a", payload={"result_ref": REF}))
    assert core.state.commands[work.command_id].report == 2


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param({"kind": "task.done", "payload": {}}, id="an end without its outcome"),
        pytest.param({"kind": "task.done", "payload": {"outcome": {}}}, id="an outcome without its status"),
        pytest.param({"kind": "policy.task.evaluated", "payload": {}}, id="a policy without its action"),
        pytest.param(
            {"kind": "policy.task.evaluated", "payload": {"action": {"do": "jump", "to": "x"}}}, id="a jump nowhere"
        ),
        pytest.param({"kind": "policy.task.evaluated", "payload": {"action": {"do": "retry"}}}, id="a retry never due"),
        pytest.param(
            {"kind": "task.done", "iteration": (3,), "payload": {"outcome": {"status": "ok"}}},
            id="an iteration of no loop",
        ),
    ],
)
def test_what_an_event_says_is_checked_too(bad: dict[str, Any]) -> None:
    """Else decide raises, and the engine ends the whole execution as broken."""
    core = Core(STEP)
    work = core.start()
    core.report(work, event("step.started", work), *done(work, "a"), event("task.started", work, "b"))
    assert_refused(core, WorkReported(work.command_id, 1, 2, "w", [event(work=work, task="b", **bad)]), "malformed")


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param({"report": 41}, id="another report's number"),
        pytest.param({"command_id": 5, "fence": 9}, id="another command"),
        pytest.param({"informative": True}, id="informative"),
        pytest.param({"own_id": 7}, id="an id of its own"),
        pytest.param({"cause": 1000}, id="a cause that is not there"),
        pytest.param({"payload": {"source": "server"}}, id="in the name of the server"),
    ],
)
def test_the_servers_fields_of_an_event_are_not_the_workers(forged: dict[str, Any]) -> None:
    core = Core(STEP)
    work = core.start()
    sent = [event("step.started", work), event("task.started", work, "a", **forged)]
    assert_refused(core, WorkReported(work.command_id, 1, 1, "w", sent), "malformed")


BLOCKS = """
metadata: {name: blocks}
workflow:
  - step: start
    tool:
      - while: {when: true, max: 3, do: [{name: a, kind: act}]}
      - until: {when: true, do: [{name: b, kind: act}]}
"""


@pytest.mark.parametrize(
    "rounds", [{"while_2": 1}, {"until_1": 1}, {"while_1": "1"}, {"while_1": -1}, {"while_1": True}, []]
)
def test_rounds_must_be_those_of_the_steps_blocks(rounds: Any) -> None:
    core = Core(BLOCKS)
    work = core.start()
    core.report(work, event("step.started", work))
    bad = event("task.started", work, "a", task_run=1, payload={"rounds": rounds})
    assert_refused(core, WorkReported(work.command_id, 1, 2, "w", [bad]), "malformed")
    core.report(work, event("task.started", work, "a", task_run=1, payload={"rounds": {"while_1": 1}}))
    step_run = core.state.run_of("start", 1)
    assert step_run is not None
    assert step_run.pipeline is not None
    assert step_run.pipeline.rounds == {"while_1": 1}
