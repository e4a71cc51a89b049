"""Decisions one at a time: leases, cancel, limits, and cascades that must not go on for ever."""

from __future__ import annotations

import json

import msgspec
import pytest

from arclog.core.boundary.inputs import Abort, Continue, LeaseEnded, Reclaimed, Request, Signal
from arclog.core.boundary.projection import command_of
from arclog.core.transitions.decide import EVENTS_PER_DECISION
from arclog.model.events import TERMINAL
from arclog.model.outcome import error
from tests.unit.core.support import Core, done, event

ONE = """
metadata: {name: one}
workflow:
  - step: start
    tool: [{name: a, kind: act}, {name: b, kind: act}]
    next: {arcs: [{step: rescue, when: "{{ event.name == 'step.failed' }}", args: {kind: "{{ event.payload.error.kind }}"}}]}
  - {step: rescue, tool: {kind: noop}}
"""
FAN = """
metadata: {name: fan}
workflow:
  - {step: start, tool: {name: t, kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c}]}}
  - {step: a, tool: {name: t, kind: noop}}
  - {step: b, tool: {name: t, kind: noop}}
  - {step: c, tool: {name: t, kind: noop}}
"""


def same(core: Core) -> None:
    assert msgspec.json.encode(core.replayed()) == msgspec.json.encode(core.state)


def test_a_lost_lease_offers_the_work_again_where_it_stood() -> None:
    core = Core(ONE)
    work = core.start()
    core.report(work, event("step.started", work), *done(work, "a", 7), event("task.started", work, "b"))
    txn = core.put(LeaseEnded(work.command_id, 1, "w", max_losses=5))
    assert [event.type for event in txn.events] == ["command.issued"]
    assert txn.release == [work.command_id]
    assert txn.close == []
    again = command_of(core.program, core.state, core.state.commands[work.command_id], 0)
    assert (again.fence, again.started) == (2, True)
    assert again.pipeline is not None
    assert (again.pipeline.at, again.pipeline.attempt, again.pipeline.in_flight) == (1, 1, True)
    assert again.pipeline.results["a"]["result"] == 7
    claimed = core.put(Reclaimed(work.command_id, 2, "v"))
    assert [(event.type, event.worker_id, event.fence) for event in claimed.events] == [("command.claimed", "v", 2)]
    # Its reports are counted from 1 again.
    assert core.report(work, *done(work, "b")[1:], event("step.done", work), fence=2).refused is None
    assert core.state.status == "COMPLETED"
    same(core)


def test_an_old_lease_ends_nothing() -> None:
    core = Core(ONE)
    work = core.start()
    core.put(LeaseEnded(work.command_id, 1, "w", max_losses=5))
    for stale in (
        LeaseEnded(work.command_id, 1, "w", max_losses=5),
        Reclaimed(work.command_id, 1, "w"),
        LeaseEnded(work.command_id + 9, 1, "w", max_losses=5),
    ):
        txn = core.put(stale)
        assert txn.refused is not None
        assert txn.refused.reason == "closed"
        assert txn.events == []


def test_a_poison_command_fails_its_step_and_is_routed_like_any_failure() -> None:
    core = Core(ONE)
    work = core.start()
    core.report(work, event("step.started", work), event("task.started", work, "a"))
    for fence in (1, 2):
        assert core.put(LeaseEnded(work.command_id, fence, "w", max_losses=3)).release == [work.command_id]
    txn = core.put(LeaseEnded(work.command_id, 3, "w", max_losses=3))
    assert [event.type for event in txn.events] == [
        "command.failed",
        "task.failed",
        "step.failed",
        "next.evaluated",
        "step.scheduled",
    ]
    assert txn.close == [work.command_id]
    assert txn.events[1].payload["outcome"]["error"]["kind"] == "cancelled"
    assert txn.events[2].payload["error"]["kind"] == "poison"
    assert txn.events[-1].payload["args"] == {"kind": "poison"}
    assert core.state.status == "RUNNING"
    same(core)


def test_poison_that_nothing_handles_ends_the_run() -> None:
    core = Core(FAN)
    work = core.start()
    core.put(LeaseEnded(work.command_id, 1, "w", max_losses=1))
    assert core.state.status == "FAILED"
    assert core.state.error is not None
    assert (core.state.error["kind"], core.state.error["step"]) == ("poison", "start")
    same(core)


def test_cancel_withdraws_everything_at_once_and_is_final() -> None:
    core = Core(FAN)
    work = core.start()
    txn = core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work))
    branches = [command.command_id for command in txn.issue]
    cancelled = core.put(Signal("CANCEL", "stop", "not needed"))
    assert [event.type for event in cancelled.events] == [
        "signal.received",
        *["command.cancelled"] * 3,
        *["step.failed"] * 3,
        "workflow.finished",
        "execution.cancelled",
        "playbook.processed",
    ]
    assert cancelled.close == branches
    assert [event.command_id for event in cancelled.events[1:4]] == branches
    assert (core.state.status, core.state.terminal) == ("CANCELLED", "execution.cancelled")
    assert (core.state.commands, core.state.open, core.state.tokens) == ({}, {}, {})
    for late in (
        Signal("CANCEL", "stop again", "again"),
        Continue(),
        Abort(error("internal", "x")),
        Request("test", 1, {}),
        LeaseEnded(branches[0], 1, "w", 5),
        Reclaimed(branches[0], 1, "w"),
    ):
        again = core.put(late)
        assert again.refused is not None
        assert again.refused.reason == "ended"
        assert again.events == []
    same(core)


def test_a_request_that_cannot_run_is_visible() -> None:
    core = Core(ONE)
    core.put(Request("test", 1, {}, problem=error("config", "no such credential")))
    assert core.types == [
        "playbook.execution.requested",
        "playbook.request.evaluated",
        "playbook.finished",
        "playbook.processed",
    ]
    assert core.state.status == "FAILED"
    assert core.state.error is not None
    assert core.state.error["message"] == "no such credential"
    same(core)


def test_abort_ends_the_run_with_the_reason() -> None:
    core = Core(FAN)
    core.start()
    core.put(Abort(error("internal", "our bug")))
    assert core.state.status == "FAILED"
    assert core.state.error is not None
    assert core.state.error["kind"] == "internal"
    assert core.types.count("command.cancelled") == 1
    same(core)


def _until_the_end(core: Core, most: int = 10_000) -> list[int]:
    """Put Continue as the engine does; how many events each decision had."""
    sizes = [len(core.begin().events)]
    while core.state.terminal is None:
        txn = core.put(Continue())
        assert txn.events, "the run stands still"
        sizes.append(len(txn.events))
        assert len(sizes) < most
    return sizes


EMPTY_CYCLE = """
metadata: {name: cycle}
workflow:
  - {step: a, loop: {in: [], iterator: i}, tool: {kind: act}, next: {arcs: [{step: b}]}}
  - {step: b, loop: {in: [], iterator: i}, tool: {kind: act}, next: {arcs: [{step: a}]}}
"""
FAILING_CYCLE = """
metadata: {name: cycle}
workflow:
  - step: a
    args: {x: "{{ ctx.missing + 1 }}"}
    tool: {kind: act}
    next: {arcs: [{step: a, when: "{{ event.name == 'step.failed' }}"}]}
"""


@pytest.mark.parametrize("text", [EMPTY_CYCLE, FAILING_CYCLE], ids=["empty loops", "args that fail"])
def test_a_cycle_without_a_worker_is_cut_into_decisions_and_ends_at_the_limit(text: str) -> None:
    core = Core(text, **{"limits.max_step_runs": 1000})
    sizes = _until_the_end(core)
    assert len(sizes) > 2
    assert max(sizes) < EVENTS_PER_DECISION + 20
    assert core.state.status == "FAILED"
    assert core.state.error is not None
    assert core.state.error["code"] == "MAX_STEP_RUNS"
    assert core.state.step_runs == 1000
    assert len([kind for kind in core.types if kind in TERMINAL]) == 1
    same(core)


def test_max_events_ends_a_cycle_too() -> None:
    core = Core(EMPTY_CYCLE, **{"limits.max_events": 700})
    _until_the_end(core)
    assert core.state.error is not None
    assert core.state.error["code"] == "MAX_EVENTS"
    assert core.state.head < 800


def test_a_wide_fan_is_cut_into_decisions() -> None:
    branches = [{"step": f"b{i}", "tool": {"kind": "noop"}} for i in range(900)]
    start = {
        "step": "start",
        "tool": {"name": "t", "kind": "noop"},
        "next": {"spec": {"mode": "inclusive"}, "arcs": [{"step": branch["step"]} for branch in branches]},
    }
    core = Core(json.dumps({"metadata": {"name": "wide"}, "workflow": [start, *branches]}))
    work = core.start()
    txn = core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work))
    issued = len(txn.issue)
    while txn.more:
        assert len(txn.events) <= EVENTS_PER_DECISION + 20
        txn = core.put(Continue())
        issued += len(txn.issue)
    assert issued == len(core.state.commands) == 900
    same(core)


def test_too_many_items_or_too_large_args_fail_the_step() -> None:
    text = """
metadata: {name: big}
executor: {spec: {policy: {limits: {max_iterations: 3, max_payload_bytes: 4096}}}}
workflow:
  - {step: start, loop: {in: "{{ [workload.items[0]] * (workload.items | length) }}", iterator: i}, tool: {kind: act}}
"""
    for items, code in (([1, 2, 3, 4], "MAX_ITERATIONS"), (["x" * 1500, 1, 1], "MAX_PAYLOAD_BYTES")):
        core = Core(text)
        core.begin(items=items)
        assert core.state.status == "FAILED"
        assert core.state.error is not None
        assert core.state.error["code"] == code
        same(core)


def test_outcome_on_an_arc_is_this_runs() -> None:
    """The second run of the step fails before its first task: its arcs must not see the first run's ok."""
    core = Core("""
metadata: {name: again}
workflow:
  - step: start
    args: {x: "{{ 1 // (args.d | default(1)) }}"}
    tool: {name: t, kind: noop}
    next:
      arcs:
        - {step: wrong, when: "{{ event.name == 'step.failed' and outcome.status == 'ok' }}"}
        - {step: right, when: "{{ event.name == 'step.failed' }}"}
        - {step: start, args: {d: 0}}
  - {step: wrong, tool: {kind: noop}}
  - {step: right, tool: {kind: noop}}
""")
    work = core.start()
    txn = core.report(work, event("step.started", work), *done(work, "t", 1), event("step.done", work))
    assert [command.step for command in txn.issue] == ["right"]


def test_a_failed_admission_names_what_triggered_it() -> None:
    core = Core("""
metadata: {name: gate}
workflow:
  - {step: start, tool: {name: t, kind: noop}, next: {arcs: [{step: gated}]}}
  - {step: gated, spec: {policy: {admit: {rules: [{when: "{{ ctx.no > 1 }}", then: {allow: true}}]}}}, tool: {kind: noop}}
""")
    work = core.start()
    core.report(work, event("step.started", work), *done(work, "t"), event("step.done", work))
    finished = next(event for event in core.events if event.type == "playbook.finished")
    assert finished.cause, "SPEC 4: the terminal failure's cause_id is the trigger"
