"""A state for readers: ids as text, times as RFC 3339, pipelines by the names of their tasks."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from arclog.core.flow.pipeline import next_index
from arclog.core.transitions.state import State, StepRun
from arclog.engine.views.account import step_summaries
from arclog.model.commands import Pipeline
from arclog.model.errors import RequestRejected
from arclog.model.ids import timestamp
from arclog.model.refs import published_form
from arclog.plan.program import Program, StepProgram, TaskProgram
from arclog.ports.storage.store import StoredEvent
from arclog.ports.views.insight import CommandView, LoopView, StateView, StepRunView, TaskView, TokenView


def state_view(program: Program, state: State, head: int, last: StoredEvent | None) -> StateView:
    """Return the state after the event `last`; None if there is no event yet."""
    return StateView(
        execution_id=str(state.execution_id),
        at=state.head,
        head=head,
        event_type=None if last is None else last.event.type,
        timestamp=None if last is None else timestamp(last.event.at),
        state=state.status,
        tokens=[TokenView(token.id, token.place, token.step, token.args) for token in state.tokens.values()],
        step_runs=[_step_run(program, state, step_run) for step_run in state.open.values()],
        commands=[
            CommandView(str(command.id), command.step, command.run, command.losses + 1, command.losses)
            for command in state.commands.values()
        ],
        steps=step_summaries(state),
        ctx=state.ctx,
        result=state.result,
        result_ref=published_form(state.result_ref),
        error=state.error if state.terminal else None,
    )


def _step_run(program: Program, state: State, step_run: StepRun) -> StepRunView:
    loop = step_run.loop
    held = [
        str(command.id)
        for command in state.commands.values()
        if (command.step, command.run) == (step_run.step, step_run.run)
    ]
    return StepRunView(
        step=step_run.step,
        run=step_run.run,
        status=step_run.state if step_run.state != "open" else "running" if step_run.started else "scheduled",
        args=step_run.args,
        scheduled_at=timestamp(step_run.scheduled_at),
        command_ids=held,
        tasks=[_task(program.steps[step_run.step], pipeline) for pipeline in step_run.pipelines()],
        loop=None
        if loop is None
        else LoopView(loop.handed, loop.total, loop.ok, loop.failed, list(step_run.iterations)),
    )


def _task(step: StepProgram, pipeline: Pipeline) -> TaskView:
    task = current_task(step, pipeline)
    if task is None:
        return TaskView("", 0, 0, in_flight=False, since=None, due=None, iter=pipeline.iter)
    return TaskView(
        task=task.plan.name,
        task_run=task_run_of(pipeline, task),
        attempt=pipeline.attempt,
        in_flight=pipeline.in_flight,
        since=timestamp(pipeline.since) if pipeline.in_flight else None,
        due=timestamp(pipeline.due) if pipeline.due else None,
        iter=pipeline.iter,
    )


# The current task of a pipeline, computed from its plan.


def current_task(step: StepProgram, pipeline: Pipeline | None) -> TaskProgram | None:
    """Return the task that runs or comes next; None outside a pipeline, after its last task, and if guards have not
    been evaluated yet.
    """
    if pipeline is None or pipeline.state != "open":
        return None
    at = next_index(pipeline, step)
    return None if at is None or at >= len(step.tasks) else step.tasks[at]


def task_run_of(pipeline: Pipeline, task: TaskProgram) -> int:
    """Return the ordinal of the entry into the task; a run that has not started yet counts."""
    before = pipeline.runs.get(task.plan.name, 0)
    return before if pipeline.attempt else before + 1


# Checks of step and task names that a caller gives. An unknown name is refused with a suggestion.


_LISTED = 20


def require_task(program: Program, step: str, task: str) -> None:
    """Raise if the plan has no such step or task. Both may be '' (any); a task is searched in the step, or in all
    steps.
    """
    if step and step not in program.steps:
        raise RequestRejected(f"the run has no step {step!r}; {_choices('it has', program.steps, step)}")
    within = [program.steps[step]] if step else list(program.steps.values())
    tasks = dict.fromkeys(task.name for run in within for task in run.plan.tasks)
    if task and task not in tasks:
        where = f"step {step}" if step else "the run"
        raise RequestRejected(f"{where} has no task {task!r}; {_choices('it has', tasks, task)}")


def _choices(intro: str, names: Iterable[str], name: str) -> str:
    all_names = list(names)
    near = get_close_matches(name, all_names, n=1)
    rest = f" and {len(all_names) - _LISTED:,} more" if len(all_names) > _LISTED else ""
    return (f"did you mean {near[0]}? " if near else "") + f"{intro} {', '.join(all_names[:_LISTED])}{rest}"
