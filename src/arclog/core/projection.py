"""What a worker gets to see of a state: the body of a command."""

from __future__ import annotations

from msgspec.structs import replace

from arclog.core.state import OpenCommand, State, run_key
from arclog.model.commands import Command, LoopWork
from arclog.plan.program import Program


def command_of(program: Program, state: State, command: OpenCommand, lease_until: int) -> Command:
    """The command as its worker gets it, with all that was done for it before."""
    step_run = state.open[run_key(command.step, command.run)]
    loop = step_run.loop
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
        captured=step_run.captured,
        scope=state.scope,
        started=step_run.started,
        loop=None if loop is None else LoopWork(loop.total, loop.index, loop.total, loop.items[loop.index :]),
        index=0 if loop is None else loop.index,
        iteration_started=loop is not None and pipeline is not None,
        # Folding replaces its maps and never changes them in place, so a shallow copy is a copy.
        pipeline=None if pipeline is None else replace(pipeline),
    )
