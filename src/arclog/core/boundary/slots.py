"""`executor.spec.concurrency`: how many runs of one playbook there may be at a time.

Law: a run holds a slot from playbook.started to its end. Whether one is free is for the store to say, in the commit that
brings playbook.started; a decision only takes for granted that there is one, and is made again when there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.core.boundary.inputs import Refused, TakeSlot
from arclog.model.outcome import error

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision


def take(decision: Decision, given: TakeSlot) -> None:
    """Start the run; or, all slots being held, refuse it (`on_excess: reject`) or leave it waiting (`queue`)."""
    state, plan = decision.state, decision.program.plan
    if state.pending_for != "slot":
        decision.txn.refused = Refused("closed", "the run does not wait for a concurrency slot")
        return
    if not given.holders:
        if not plan.approval:
            decision.record("playbook.request.evaluated")
        decision.begin(-1)
        decision.txn.slot = True
        return
    message = (
        f"{plan.concurrency} at a time of this playbook may run (executor.spec.concurrency); "
        f"running: {', '.join(map(str, given.holders[:5]))}{', …' if len(given.holders) > 5 else ''}"
    )
    if plan.on_excess == "queue":
        decision.txn.refused = Refused("no_slot", message)
        return
    problem = error("limit", message, code="CONCURRENCY").as_dict()
    if not plan.approval:
        decision.record("playbook.request.evaluated", {"error": problem}, event_status="error")
    decision.fail_execution(problem)
