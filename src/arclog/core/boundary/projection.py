"""The part of a state that a worker sees: the body of a command."""

from __future__ import annotations

from msgspec.structs import replace

from arclog.core.flow.reducers import is_parallel
from arclog.core.transitions.iterations import loop_at, part
from arclog.core.transitions.state import Chunk, OpenCommand, State, StepRun, path_of, run_key
from arclog.model.commands import Command, Expansion, LoopWork
from arclog.plan.program import Program


def command_of(program: Program, state: State, command: OpenCommand, lease_until: int) -> Command:
    """Build the command for its worker, including the progress of earlier holders."""
    step_run = state.open[run_key(command.step, command.run)]
    pipeline = step_run.pipeline
    return Command(
        command_id=command.id,
        fence=command.fence,
        execution_id=state.execution_id,
        plan=program.digest,
        step=command.step,
        run=command.run,
        lease_until=lease_until,
        args=step_run.args,
        captured=step_run.expanding or step_run.captured,
        scope=state.scope,
        started=step_run.started,
        loop=_loop_work(program, step_run, step_run.chunks.get(command.chunk)),
        expansion=None if step_run.expanding is None else Expansion(step_run.arrival),
        # Folding replaces its maps and never changes them in place, so a shallow copy is enough.
        pipeline=None if pipeline is None else replace(pipeline),
    )


def _loop_work(program: Program, step_run: StepRun, chunk: Chunk | None) -> LoopWork | None:
    """Return the unfinished items of a chunk: those in progress with their pipelines, and those not started."""
    if chunk is None:
        return None
    loop = loop_at(step_run, chunk.path)
    # Most commands are new and have no iteration in progress; skip the scan for them.
    under_way = {
        key: replace(iteration.pipeline)
        for key, iteration in (step_run.iterations.items() if chunk.open else ())
        if path_of(key)[:-1] == chunk.path and chunk.first <= path_of(key)[-1] < chunk.last
    }
    return LoopWork(
        path=chunk.path,
        total=loop.total,
        first=chunk.next,
        last=chunk.last,
        items=part(loop.items, chunk.next, chunk.last),
        at_a_time=program.side_by_side.get(step_run.step, 1),
        carries_ctx=not is_parallel(program, step_run.step),
        parent=loop.parent,
        under_way=under_way,
    )
