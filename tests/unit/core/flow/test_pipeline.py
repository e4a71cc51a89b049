"""Pipelines: the worker's side and the server's side fold the same events to the same place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from arclog.core.flow import pipeline as core
from arclog.core.flow.pipeline import Frame, Over, Run
from arclog.model.commands import Captured, Pipeline
from tests.unit.core.support import NOW, Core

FRAME = Frame("1", {}, Captured(), "start", 1)
OK: dict[str, Any] = {"status": "ok", "result": {"n": 1}, "meta": {"attempt": 1}}
BAD: dict[str, Any] = {
    "status": "error",
    "error": {"kind": "connection", "message": "gone", "code": None, "retryable": True},
}


def step(policy: str) -> Any:
    text = f"""
metadata: {{name: p}}
workflow:
  - step: start
    tool:
      - {{name: a, kind: act, spec: {{policy: {{rules: {policy}}}}}}}
      - {{name: b, kind: act}}
"""
    return Core(text).program.steps["start"]


def go(pipeline: Pipeline, program: Any, record: dict[str, Any], now: int = NOW, roll: float = 0.0) -> list[Any]:
    """One attempt with this outcome; the events that it gives, folded."""
    move = core.next_move(pipeline, program, 100)
    assert isinstance(move, Run)
    copy = msgspec.convert(msgspec.to_builtins(pipeline), Pipeline)
    events = [] if move.repeated else core.started(move, FRAME, now, None)
    for event in events:
        core.fold(pipeline, program, event)
    concluded = core.conclude(pipeline, move, FRAME, record, now, roll, 1000)
    for event in concluded:
        core.fold(pipeline, program, event)
    for event in [*events, *concluded]:
        core.fold(copy, program, event)
    assert copy == pipeline, "the server's fold differs from the worker's"
    return [*events, *concluded]


@pytest.mark.parametrize("backoff, delays", [("none", [2, 2, 2]), ("linear", [2, 4, 5]), ("exponential", [2, 4, 5])])
def test_delays_grow_up_to_their_bound(backoff: str, delays: list[float]) -> None:
    program = step(f"[{{else: {{then: {{do: retry, attempts: 4, delay: 2, backoff: {backoff}, max_delay: 5}}}}}}]")
    pipeline = Pipeline()
    for attempt, delay in enumerate(delays, 1):
        events = go(pipeline, program, BAD)
        assert events[-1].payload["due"] == NOW + delay * 1_000_000
        assert (pipeline.attempt, pipeline.in_flight, pipeline.due) == (attempt + 1, False, events[-1].payload["due"])
    events = go(pipeline, program, BAD)
    assert [event.type for event in events] == [
        "task.attempt.started",
        "task.attempt.failed",
        "task.failed",
        "policy.task.evaluated",
    ]
    assert core.next_move(pipeline, program, 100) == Over(pipeline.error)
    assert pipeline.error is not None
    assert "used all 4 attempts" in pipeline.error["message"]


def test_retry_after_is_a_floor_and_jitter_only_adds() -> None:
    program = step("[{else: {then: {do: retry, attempts: 9, delay: 2, jitter: 0.5}}}]")
    failure = {**BAD, "meta": {"retry_after_s": 30}}
    assert go(Pipeline(), program, failure)[-1].payload["due"] == NOW + 30_000_000
    assert go(Pipeline(), program, BAD, roll=0.0)[-1].payload["due"] == NOW + 2_000_000
    assert go(Pipeline(), program, BAD, roll=0.999)[-1].payload["due"] == NOW + 2_999_000


def test_an_ok_that_is_retried_to_the_end_fails_the_task() -> None:
    program = step("[{else: {then: {do: retry, attempts: 2, delay: 0}}}]")
    pipeline = Pipeline()
    assert [event.type for event in go(pipeline, program, OK)] == [
        "task.started",
        "task.attempt.done",
        "policy.task.evaluated",
    ]
    go(pipeline, program, OK)
    assert pipeline.state == "failed"
    assert pipeline.error is not None
    assert pipeline.error["code"] == "ATTEMPTS"


def test_jump_counts_runs_and_is_bounded() -> None:
    program = step("[{else: {then: {do: jump, to: a}}}]")
    pipeline = Pipeline()
    for n in range(1, 4):
        assert go(pipeline, program, OK)[0].task_run == n
    over = core.next_move(pipeline, program, 3)
    assert isinstance(over, Over)
    assert over.error is not None
    assert over.error["code"] == "MAX_TASK_RUNS"


def test_set_values_are_evaluated_before_the_rule_takes_effect() -> None:
    program = step(
        '[{else: {then: {do: continue, set_iter: {x: 1, y: "{{ iter.x | default(0) }}"}, set_ctx: {z: "{{ iter.x | default(5) }}"}}}}]'
    )
    pipeline = Pipeline()
    go(pipeline, program, OK)
    assert (pipeline.iter, pipeline.ctx, pipeline.at) == ({"x": 1, "y": 0}, {"z": 5}, 1)


@pytest.mark.parametrize("do, state, at", [("continue", "open", 1), ("break", "done", 0), ("fail", "failed", 0)])
def test_actions(do: str, state: str, at: int) -> None:
    program = step(f"[{{else: {{then: {{do: {do}, set_ctx: {{k: 1}}}}}}}}]")
    pipeline = Pipeline()
    go(pipeline, program, OK)
    assert (pipeline.state, pipeline.at, pipeline.ctx) == (state, at, {"k": 1})


@pytest.mark.parametrize("record, state", [(OK, "open"), (BAD, "failed")])
def test_without_a_policy_an_error_fails(record: dict[str, Any], state: str) -> None:
    program = step("[{else: {then: {do: continue}}}]")
    pipeline = Pipeline(at=1)
    assert [event.type for event in go(pipeline, program, record)][-1] == (
        "task.done" if state == "open" else "task.failed"
    )
    assert pipeline.state == state


@pytest.mark.parametrize("unmatched, state", [("continue", "open"), ("fail", "failed")])
def test_on_unmatched(unmatched: str, state: str) -> None:
    program = step(f"[{{when: false, then: {{do: break}}}}], on_unmatched: {unmatched}")
    pipeline = Pipeline()
    events = go(pipeline, program, BAD)
    assert events[-1].payload["matched_rule_index"] is None
    assert pipeline.state == state


def test_a_value_too_large_for_ctx_is_an_error() -> None:
    program = step("[{else: {then: {do: continue, set_ctx: {big: \"{{ 'x' * 2000 }}\"}}}}]")
    pipeline = Pipeline()
    go(pipeline, program, OK)
    assert pipeline.error is not None
    assert pipeline.error["code"] == "MAX_CTX_BYTES"
    assert pipeline.ctx == {}
