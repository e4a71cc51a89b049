"""What follows when a timer comes due. Never before its time: `now` is the engine's clock, read for this decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from arclog.core.boundary.inputs import Refused, TimerFired
from arclog.core.flow import waits
from arclog.core.flow.wait_configs import is_over
from arclog.core.transitions import closing
from arclog.core.transitions.state import Wait
from arclog.core.transitions.timers import DEADLINE, EXECUTION, TIMEOUT, WAIT
from arclog.model.commands import TOO_LONG
from arclog.model.outcome import Outcome, error, failed

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision


def fire(decision: Decision, fired: TimerFired) -> None:
    """Record that the timer fired, and what that means."""
    timer_id = fired.timer_id
    due = decision.state.timers.get(timer_id)
    if due is None:
        decision.txn.refused = Refused("closed", f"there is no open timer {timer_id}")
        return
    if decision.now < due:
        decision.txn.refused = Refused("early", f"timer {timer_id} is not due yet")
        return
    cause = decision.record("timer.fired", {"timer": timer_id, "due": due})
    if timer_id == EXECUTION:
        limit = decision.program.plan.timeout_s
        message = f"the execution took longer than {limit:g} s (executor.spec.timeout_s)"
        decision.fail_execution(error("timeout", message).as_dict(), cause)
    elif timer_id.startswith((TIMEOUT, DEADLINE)):
        _step_is_late(decision, timer_id, cause)
    else:
        _end_wait(decision, decision.state.waits[timer_id.removeprefix(WAIT)], cause)


def _step_is_late(decision: Decision, timer_id: str, cause: int) -> None:
    which, _, key = timer_id.partition(":")
    step_run = decision.state.open[key]
    plan = decision.program.steps[step_run.step].plan
    if which == "timeout":
        message = f"step {step_run.step} took longer than {plan.timeout_s:g} s (lifecycle.timeout_s)"
    else:
        message = f"step {step_run.step} was not over {plan.deadline_s:g} s after the run began (lifecycle.deadline_s)"
    problem = error("timeout", message)
    decision.withdraw_commands(TOO_LONG, (step_run.step, step_run.run), cause=cause)
    if step_run.pipeline is not None:
        # The task in progress is where the time went: its outcome says so, and arcs see it.
        closing.end_task(decision, step_run, None, step_run.pipeline, problem, cause)
    else:
        closing.end_parts(decision, step_run, closing.Reason("step_late", message), cause)
    decision.fail_step(step_run.step, step_run.run, problem.as_dict(), cause)


def _end_wait(decision: Decision, wait: Wait, cause: int) -> None:
    if wait.kind == waits.RETRY:
        waits.resume(decision, wait, cause)
        return
    waited_ms = max(0, decision.now - wait.since) // 1000
    outcome = Outcome(result={"waited_ms": waited_ms})
    if not is_over(wait, decision.now):
        signal = wait.config.get("signal")
        missed = f"signal {signal!r} did not come" if signal else "it was not over"
        what = {"wait": missed, "approval": "nobody decided", "playbook": "the child did not end"}[wait.kind]
        message = f"task {wait.task}: {what} within {waited_ms / 1000:g} s"
        outcome = failed(error("timeout", message))
    waits.resolve(decision, wait.key, outcome.as_record(), cause)
