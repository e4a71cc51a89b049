"""The final step: one last step run when no other work is left, whatever the outcome of the run.

Invariant: it runs once, inside the workflow. Its `step.scheduled` records how the run will end (`final`) and takes the
remaining tokens; from then on the end is in `State.final`. A failed final step fails only a run that would have
succeeded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from arclog.core.transitions import closing
from arclog.core.transitions.state import State, Token
from arclog.model import status
from arclog.model.errors import ExpressionError
from arclog.model.ids import timestamp

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision

#: The value of `event.name` in the templates of the final step.
EVENT = "workflow.finished"
PLACE = "final"


def begin(decision: Decision, final: dict[str, Any], reason: closing.Reason | None, cause: int) -> bool:
    """Start the final step of a run that is about to end as `final` says.

    Returns False if the playbook has no final step or its admission denies it. Open commands must have been withdrawn
    before.
    """
    state, name = decision.state, decision.program.plan.final_step
    if not name or state.final is not None or state.workflow != status.RUNNING:
        return False
    from arclog.core.flow import arrivals

    if reason is not None:
        closing.end_step_runs(decision, reason, cause)
    token = Token(0, PLACE, name, {}, arrival(final, decision.now))
    if cause >= 0:
        decision.made[token.id] = cause
    try:
        allowed = arrivals.admits(decision, token)
    except ExpressionError:
        allowed = True  # an admission rule that cannot be evaluated must not prevent the final step
    if allowed:
        arrivals.schedule(decision, token, {"tokens": closing.tokens_left(state), "final": final})
    return allowed


def arrival(final: dict[str, Any], at: int) -> dict[str, Any]:
    """Return the value of `event` in the templates of the final step."""
    ok = final["state"] == "completed"
    return {
        "name": EVENT,
        "step": "",
        "status": "success" if ok else "error",
        "timestamp": timestamp(at),
        "payload": final,
    }


def names(event: dict[str, Any]) -> dict[str, Any]:
    """Return the additional names of templates of the final step."""
    final = event["payload"]
    problem = final.get("error")
    outcome = {"status": "ok" if problem is None else "error", "state": final["state"], "error": problem}
    return {"event": event, "outcome": outcome, "error": problem}


def is_final(event: Any) -> bool:
    """Return whether a step run is the final one, given its `event`."""
    return bool(event) and event.get("name") == EVENT


# -- folding: called by core.apply only ----------------------------------------------------------------------------------


def fold(state: State, final: dict[str, Any]) -> None:
    """Fold the step.scheduled of the final step: no other work is left."""
    state.final = final
    state.tokens.clear()
    state.waiting.clear()
    state.absorbs.clear()
    state.failures.clear()
    state.pause, state.paused_at = None, None
