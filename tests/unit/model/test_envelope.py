"""The envelope that readers see: what is derived from the lean event."""

from __future__ import annotations

from typing import Any

import pytest

from arclog.model.envelope import Subject, widen
from arclog.model.events import Event
from arclog.model.ids import EPOCH_MS, compose, moved

SUBJECT = Subject(5, "demo")
BASE = compose(EPOCH_MS + 5_000, 7, 100)


def wide(kind: str, *, event_id: int = BASE, **more: Any) -> dict[str, Any]:
    return widen(
        Event(kind, 1_800_000_000_000_000, step="a", run=1, **more), SUBJECT, 3, event_id, 1_800_000_000_000_000
    )


def outcome(**meta: Any) -> dict[str, Any]:
    return {"outcome": {"status": "ok", "result": 1, "meta": meta}}


def test_a_task_event_has_its_attempt() -> None:
    task: dict[str, Any] = {"task": "t", "task_run": 1}
    assert wide("task.started", **task)["attempt"] == 1
    assert wide("task.done", **task, payload=outcome(attempt=3))["attempt"] == 3
    assert wide("task.failed", **task, payload=outcome())["attempt"] == 1
    assert wide("task.attempt.started", **task, attempt=2)["attempt"] == 2
    assert wide("task.done", **task, attempt=2, payload=outcome(attempt=2))["attempt"] == 2
    assert "attempt" not in wide("step.done")
    assert "attempt" not in wide("task.done", **task, payload=outcome(), informative=True), "nothing is made up"


@pytest.mark.parametrize(("stored", "expected"), [(12, 12), (12.6, 13), (0.2, 0), (0, 0)])
def test_a_duration_is_a_whole_number_whatever_the_log_has(stored: float, expected: int) -> None:
    task = wide("task.done", task="t", task_run=1, payload=outcome(duration_ms=stored))
    for duration in (task["duration_ms"], task["payload"]["outcome"]["meta"]["duration_ms"]):
        assert (duration, type(duration)) == (expected, int)
    step = wide("step.done", duration_ms=stored)
    assert (step["duration_ms"], type(step["duration_ms"])) == (expected, int)


def test_a_cause_may_be_of_the_millisecond_before() -> None:
    first = compose(EPOCH_MS + 5_000, 7, 4_000)
    for distance in (1, 96, 5_000):
        assert wide("step.scheduled", event_id=moved(first, distance), cause=distance)["cause_id"] == str(first)
