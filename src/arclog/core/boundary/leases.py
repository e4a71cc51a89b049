"""Commands that come back: the lease was lost, or the holder gave up or returned the command.

Invariant: the fence in the state decides. An input with another fence is rejected and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from arclog.core.boundary.inputs import GaveUp, GivenBack, LeaseEnded, Reclaimed, Refused
from arclog.core.flow import waits
from arclog.core.transitions import closing
from arclog.core.transitions.state import OpenCommand, run_key
from arclog.model.events import Event
from arclog.model.outcome import as_error, error

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision


def lose(decision: Decision, lost: LeaseEnded) -> None:
    """Offer a command again. A command whose lease was lost too often fails its step."""
    command = _held(decision, lost)
    if command is None:
        return
    losses = command.losses + 1
    message = f"the command's lease was lost {losses} times (leases.max_losses); does its task kill the worker?"
    _lose(decision, command, lost, message, {})


def give_up(decision: Decision, gave_up: GaveUp) -> None:
    """Handle the holder's command.failed: count it as a lost lease, or fail the task if `retryable` is false."""
    command = _held(decision, gave_up)
    if command is None:
        return
    payload = gave_up.event.payload
    problem = as_error(payload.get("error"), "the worker gave the command up")
    is_final = payload.get("retryable", (payload.get("error") or {}).get("retryable")) is False
    event = replace(
        gave_up.event,
        step=command.step,
        run=command.run,
        fence=gave_up.fence,
        worker_id=gave_up.worker_id,
        informative=not is_final,  # otherwise the next holder continues the command
    )
    decision.emit(event)
    decision.txn.digests.update(gave_up.digests)
    if not is_final:
        message = f"the command failed {command.losses + 1} times (leases.max_losses): {problem['message']}"
        _lose(decision, command, gave_up, message, {"error": problem})
        return
    decision.txn.close.append(command.id)
    problem = {**problem, "retryable": False}
    cause = len(decision.txn.events) - 1
    if not waits.fail_task(decision, command, problem, cause):
        reason = closing.Reason("command_failed", closing.clipped(f"the command failed: {problem['message']}"))
        _fail_step(decision, command, reason, problem, cause)


def _lose(
    decision: Decision, command: OpenCommand, lost: LeaseEnded | GaveUp, message: str, more: dict[str, Any]
) -> None:
    """Offer the command again. With `message`, fail it once it was lost too often."""
    losses = command.losses + 1
    if losses < lost.max_losses:
        decision.reissue(command, {"reason": "lease_lost", "losses": losses, "worker_id": lost.worker_id, **more})
        return
    problem = error("poison", message).as_dict()
    payload = {"error": problem, "source": "server"}
    failed = decision.record("command.failed", payload, step=command.step, run=command.run, command_id=command.id)
    decision.txn.close.append(command.id)
    _fail_step(decision, command, closing.Reason("poison", message), problem, failed)


def _fail_step(
    decision: Decision, command: OpenCommand, reason: closing.Reason, problem: dict[str, Any], cause: int
) -> None:
    step, run = command.step, command.run
    decision.withdraw_commands("the step failed", (step, run), cause=cause)
    closing.end_parts(decision, decision.state.open[run_key(step, run)], reason, cause)
    decision.fail_step(step, run, problem, cause)


def take_back(decision: Decision, returned: GivenBack) -> None:
    """Take a command back from a worker that stopped between two tasks, for a pause or because the worker stops."""
    command = _held(decision, returned)
    if command is not None:
        reason = "given_back" if decision.state.pause is None else "paused"
        decision.reissue(command, {"reason": reason, "worker_id": returned.worker_id})


def reclaim(decision: Decision, taken: Reclaimed) -> None:
    """Record that a worker claimed a command that had come back."""
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


def _held(decision: Decision, incoming: LeaseEnded | GaveUp | GivenBack | Reclaimed) -> OpenCommand | None:
    command = decision.state.commands.get(incoming.command_id)
    if command is None or command.fence != incoming.fence:
        message = f"command {incoming.command_id} is over, or no longer held with fence {incoming.fence}"
        decision.txn.refused = Refused("closed", message)
        return None
    return command
