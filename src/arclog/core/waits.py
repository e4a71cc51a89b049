"""Waits: tasks that hold no worker. This is the least that signals need of them; branch `waits` has the real one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arclog.model.events import Event

if TYPE_CHECKING:
    from arclog.core.decide import Decision


def resolve(decision: Decision, key: str, record: dict[str, Any], cause: int) -> None:
    """What was waited for has come: the task has its outcome."""
    wait = decision.state.waits[key]
    kind = "task.done" if record["status"] == "ok" else "task.failed"
    index = len(decision.txn.events)
    decision.emit(
        Event(
            kind,
            decision.now,
            step=wait.step,
            run=wait.run,
            iteration=wait.iteration,
            task=wait.task,
            task_run=wait.task_run,
            cause=index - cause if cause >= 0 else 0,
            payload={"outcome": record, "source": "server"},
        )
    )

