"""The current task of a pipeline, computed from its plan."""

from __future__ import annotations

from arclog.core.flow.pipeline import next_index
from arclog.model.commands import Pipeline
from arclog.plan.program import StepProgram, TaskProgram


def current_task(step: StepProgram, pipeline: Pipeline | None) -> TaskProgram | None:
    """The task that runs or comes next; None outside a pipeline, behind its last task, and where guards are still to be
    asked.
    """
    if pipeline is None or pipeline.state != "open":
        return None
    at = next_index(pipeline, step)
    return None if at is None or at >= len(step.tasks) else step.tasks[at]


def task_run_of(pipeline: Pipeline, task: TaskProgram) -> int:
    """Which entry into the task it is: a run that has not started yet is counted."""
    before = pipeline.runs.get(task.plan.name, 0)
    return before if pipeline.attempt else before + 1
