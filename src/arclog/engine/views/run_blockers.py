"""What holds a run as a whole: a pause, a missing approval, a missing concurrency slot."""

from __future__ import annotations

from collections.abc import Sequence

from arclog.core.transitions.state import State
from arclog.model.ids import timestamp
from arclog.ports.views.insight import Wait


def waits(state: State, slot_holders: Sequence[int]) -> list[Wait]:
    """At most one: why nothing new begins."""
    execution_id = state.execution_id
    if state.pending_for == "approval":
        text = (
            f"the run waits for an approval before it starts (`arclog approve {execution_id}`, "
            f"or `arclog reject {execution_id} --reason …`)"
        )
        return [Wait("approval", text)]
    if state.pending_for == "slot":
        if not slot_holders:
            text = f"a concurrency slot is free (use `arclog resume {execution_id}` if the run's process is gone)"
            return [Wait("slot", text)]
        # Nobody continues with a holder whose process is gone, so say where to look for that.
        by, first = ", ".join(map(str, slot_holders)), slot_holders[0]
        return [Wait("slot", f"the run waits for a concurrency slot held by execution {by} (`arclog why {first}`)")]
    if state.pause is None:
        return []
    return [Wait("pause", _pause_text(state))]


def _pause_text(state: State) -> str:
    pause = state.pause
    if pause is None:
        return ""
    who = f"by {pause.by}, " if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    what = f"{who}signal {pause.signal_id}{why}"
    if state.paused_at is not None:
        return (
            f"the run has been paused since {timestamp(state.paused_at)} ({what}); `arclog resume {state.execution_id}`"
        )
    running = [f"{command.step} (run {command.run})" for command in state.commands.values() if not command.held]
    more = f" and {len(running) - 5} more" if len(running) > 5 else ""
    return f"the run is pausing ({what}); still running: {', '.join(running[:5])}{more}"
