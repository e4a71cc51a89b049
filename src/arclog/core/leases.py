"""Commands that come back without a report: their lease was lost, or a worker handed them back; and who takes them next.

Law: only the fence that the state knows counts. Whoever comes with another one is told so, and nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.core import closing
from arclog.core.inputs import GivenBack, LeaseEnded, Reclaimed, Refused
from arclog.core.state import OpenCommand, run_key
from arclog.model.events import Event
from arclog.model.outcome import error

if TYPE_CHECKING:
    from arclog.core.decide import Decision


def lose(decision: Decision, lost: LeaseEnded) -> None:
    """Offer the command again; one that loses every worker is poison and fails its step."""
    command = _held(decision, lost)
    if command is None:
        return
    step, run, losses = command.step, command.run, command.losses + 1
    if losses < lost.max_losses:
        decision.reissue(command, {"reason": "lease_lost", "losses": losses, "worker_id": lost.worker_id})
        return
    message = f"the command's lease was lost {losses} times (leases.max_losses); does its task kill the worker?"
    problem = error("poison", message).as_dict()
    failed = decision.say(
        "command.failed", {"error": problem, "source": "server"}, step=step, run=run, command_id=command.id
    )
    decision.txn.close.append(command.id)
    decision.withdraw_commands("the step failed", (step, run), cause=failed)
    closing.end_parts(decision, decision.state.open[run_key(step, run)], closing.Reason("poison", message), failed)
    decision.fail_step(step, run, problem, failed)


def take_back(decision: Decision, given: GivenBack) -> None:
    """A worker stopped at a task boundary, because the run is to pause or because it leaves itself."""
    command = _held(decision, given)
    if command is not None:
        reason = "given_back" if decision.state.pause is None else "paused"
        decision.reissue(command, {"reason": reason, "worker_id": given.worker_id})


def reclaim(decision: Decision, taken: Reclaimed) -> None:
    """A command that had come back has a worker again."""
    command = _held(decision, taken)
    if command is not None:
        decision.emit(
            Event(
                type="command.claimed",
                at=decision.now,
                step=command.step,
                run=command.run,
                command_id=command.id,
                fence=taken.fence,
                worker_id=taken.worker_id,
            )
        )


def _held(decision: Decision, given: LeaseEnded | GivenBack | Reclaimed) -> OpenCommand | None:
    command = decision.state.commands.get(given.command_id)
    if command is None or command.fence != given.fence:
        message = f"command {given.command_id} is over, or no longer held with fence {given.fence}"
        decision.txn.refused = Refused("closed", message)
        return None
    return command
