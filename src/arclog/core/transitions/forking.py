"""Continues a run that began with the events of another one.

Law: what was taken over is complete up to a boundary between tasks. Commands that are open in it have not been offered to
anybody, step runs that ended have not all been routed, and loops may have items that nobody was given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.core.flow import loops, routing

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision


def go_on(decision: Decision) -> None:
    """Offer the open commands, route what has ended, and hand out what is left of loops."""
    state = decision.state
    for command in list(state.commands.values()):
        decision.issue(command.id, command.step, command.run)
    for step_run in list(state.open.values()):
        if state.run_of(step_run.step, step_run.run) is None:
            continue  # what another one led to has ended it
        if step_run.state != "open":
            routing.route(decision, step_run.step, step_run.run, -1)
    if state.terminal is None:
        loops.go_on_with_all(decision)
