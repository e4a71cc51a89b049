"""Signals: requests to a run from people and programs.

Invariant: a signal is recorded (signal.received) before it takes effect, in the same transaction, and once per
signal_id. A signal that cannot be applied is recorded with the reason and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from arclog.core.boundary.inputs import Refused, Signal
from arclog.core.flow import routing, waits
from arclog.core.flow.loops import encoded_size, errors_of
from arclog.core.transitions import closing
from arclog.core.transitions.apply import RETRIED
from arclog.core.transitions.state import Signalled, StepRun, Wait
from arclog.model import status
from arclog.model.config.reducers import unfit
from arclog.model.data.lazy import pattern
from arclog.model.outcome import error
from arclog.model.principal import may_decide

if TYPE_CHECKING:
    from arclog.core.transitions.decide import Decision

__all__ = ["DESTRUCTIVE", "RETRIED", "RULES", "answered", "receive", "settle_pause"]

#: Signals that require a reason.
DESTRUCTIVE = frozenset({"CANCEL", "SKIP_STEP", "EMERGENCY_STOP", "REJECT"})
#: Signals that a run accepts before it has started.
_BEFORE_START = frozenset({"CANCEL", "EMERGENCY_STOP", "APPROVE", "REJECT", "UPDATE_PARAMS"})
_NAME = pattern(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
MAX_ID = 200


def answered(decision: Decision, signal: Signal) -> bool:
    """Return whether this signal_id was received before. If so, answer as before and change nothing."""
    before = decision.state.signals.get(signal.signal_id)
    if before is None:
        return False
    if before.signal != signal.signal:
        message = f"signal_id {signal.signal_id} was used for {before.signal}; use a new id for each signal"
        decision.txn.refused = Refused("signal", message)
    elif before.problem:
        decision.txn.refused = Refused("signal", before.problem)
    else:
        decision.txn.waiting = _was_waited_for(before)
    return True


def receive(decision: Decision, signal: Signal) -> None:
    """Record a signal, and apply it if possible."""
    shape = _misshapen(decision, signal)
    if shape:
        # An invalid signal is not recorded, because its size is not limited.
        decision.txn.refused = Refused("malformed", shape)
        return
    problem = _untimely(decision, signal)
    if problem is None:
        forbidden = _forbidden(decision, signal)
        if forbidden:
            # A forbidden signal is not recorded either: a caller without permission must not be able to fill the log.
            decision.txn.refused = Refused("forbidden", forbidden)
            return
        rule = RULES.get(signal.signal, _deliver)
        problem = rule(decision, signal)
    if problem:
        _record(decision, signal, error={"kind": "conflict", "message": problem, "code": "SIGNAL", "retryable": False})
        decision.txn.refused = Refused("signal", problem)


def settle_pause(decision: Decision) -> None:
    """Pause a pausing run once no worker holds any of its commands."""
    state = decision.state
    if state.terminal is not None or state.pause is None or state.paused_at is not None:
        return
    if all(command.held for command in state.commands.values()):
        payload: dict[str, Any] = {"signal_id": state.pause.signal_id, "cycle": state.pauses + 1}
        if state.pause.reason:
            payload["reason"] = state.pause.reason
        decision.record("playbook.paused", payload, cause=len(decision.txn.events) - 1)


def _misshapen(decision: Decision, signal: Signal) -> str:
    if not _NAME.fullmatch(signal.signal):
        return f"{signal.signal[:100]!r} is no signal's name: letters, digits and _ . : - (at most 128), a letter first"
    if not signal.signal_id or len(signal.signal_id) > MAX_ID:
        return f"a signal_id has 1 to {MAX_ID} characters"
    size, cap = encoded_size({"data": signal.data, "reason": signal.reason}), decision.event_room
    if size > cap:
        return f"the signal takes {size} bytes; an event holds {cap} (limits.max_payload_bytes)"
    return ""


def _untimely(decision: Decision, signal: Signal) -> str | None:
    """Run the checks that apply to every signal. Returns the problem, or None."""
    if signal.signal in DESTRUCTIVE and not signal.reason.strip():
        return f"{signal.signal} needs a reason"
    if decision.state.status == status.PENDING and signal.signal in RULES and signal.signal not in _BEFORE_START:
        return "the run has not started yet"
    return None


def _record(decision: Decision, signal: Signal, *, step: str = "", run: int = 0, **more: Any) -> int:
    payload: dict[str, Any] = {"signal": signal.signal, "signal_id": signal.signal_id}
    fields = {"reason": signal.reason, "by": signal.by, "step": signal.step, "data": signal.data}
    payload.update({key: value for key, value in fields.items() if value not in ("", None)})
    payload.update(more)
    bad = "error" if "error" in more else ""
    index = decision.record("signal.received", payload, step=step, run=run, event_status=bad)
    decision.txn.waiting = _was_waited_for(decision.state.signals[signal.signal_id])
    return index


def _was_waited_for(signal: Signalled) -> bool:
    """Return whether a task, or the start of the run, was waiting for the signal."""
    own = signal.signal in RULES and signal.signal not in ("APPROVE", "REJECT")
    return not (own or signal.kept or signal.problem)


# -- pause and resume -------------------------------------------------------------------------------------------------


def _pause(decision: Decision, signal: Signal) -> str | None:
    state = decision.state
    if state.pause is not None:
        return "the run is paused already" if state.paused_at is not None else "the run is being paused already"
    idle = [state.commands[command_id] for command_id in signal.idle if command_id in state.commands]
    held = [command.id for command in idle]
    if encoded_size({"held": held}) > decision.event_room:
        return f"{len(held)} commands are open, which is more than one event can name (limits.max_payload_bytes)"
    _record(decision, signal, held=held)
    # They are not claimed: the stored fence is one less than that of the next holder.
    decision.txn.hold += [(command.id, command.fence - 1) for command in idle]
    return None


def _resume(decision: Decision, signal: Signal) -> str | None:
    state = decision.state
    if state.pause is None:
        return "the run is not paused"
    was_paused, cycle = state.paused_at is not None, state.pauses
    decision.txn.unhold += [command.id for command in state.commands.values() if command.held]
    index = _record(decision, signal)
    if was_paused:
        payload: dict[str, Any] = {"signal_id": signal.signal_id, "cycle": cycle}
        if signal.reason:
            payload["reason"] = signal.reason
        decision.record("playbook.resumed", payload, cause=index)
    return None


# -- ends -------------------------------------------------------------------------------------------------------------


def _cancel(decision: Decision, signal: Signal) -> str | None:
    decision.cancel(signal.reason, _record(decision, signal))
    return None


def _emergency_stop(decision: Decision, signal: Signal) -> str | None:
    decision.cancel(signal.reason, _record(decision, signal), code="EMERGENCY_STOP")
    return None


# -- approval ---------------------------------------------------------------------------------------------------------


def _approve(decision: Decision, signal: Signal) -> str | None:
    state = decision.state
    if state.pending_for == "approval":
        index = _record(decision, signal)
        if not state.pending_for:
            decision.begin(index)
        return None
    return _decide_task(decision, signal, {"status": "ok", "result": _verdict(signal, approved=True)})


def _reject(decision: Decision, signal: Signal) -> str | None:
    problem = error("cancelled", f"rejected: {signal.reason}", code="REJECTED").as_dict()
    if decision.state.pending_for == "approval":
        decision.fail_execution(problem, _record(decision, signal))
        return None
    record = {"status": "error", "result": _verdict(signal, approved=False), "error": problem}
    return _decide_task(decision, signal, record)


def _forbidden(decision: Decision, signal: Signal) -> str:
    """Return why the sender may not decide about a pending approval (`approvers`), or ''."""
    if signal.roles is None or signal.signal not in ("APPROVE", "REJECT", "SKIP_STEP"):
        return ""
    for wait in _waiting(decision, signal, "approval"):
        approvers = wait.config.get("approvers")
        if approvers and not may_decide(signal.by, signal.roles, approvers):
            return f"{signal.by} may not decide about {wait.key}; its approvers are {', '.join(approvers)}"
    return ""


def _decide_task(decision: Decision, signal: Signal, record: dict[str, Any]) -> str | None:
    approvals = _waiting(decision, signal, "approval")
    if not approvals:
        return f"nothing waits for an approval{f' in step {signal.step}' if signal.step else ''}"
    if len(approvals) > 1:
        # Several iterations of a step can wait at the same time, so the step's name may be ambiguous.
        steps = sorted({wait.step for wait in approvals})
        which = steps if len(steps) == len(approvals) else [wait.key for wait in approvals]
        more = f", and {len(which) - 10} more" if len(which) > 10 else ""
        choice = "the step" if which is steps else "one"
        return f"{len(approvals)} tasks wait for an approval ({', '.join(which[:10])}{more}); name {choice}"
    waits.resolve(decision, approvals[0].key, record, _record(decision, signal))
    return None


def _verdict(signal: Signal, *, approved: bool) -> dict[str, Any]:
    return {"approved": approved, "by": signal.by, "comment": signal.reason, "data": signal.data}


def _deliver(decision: Decision, signal: Signal) -> str | None:
    """Deliver a signal with a custom name: it ends the waits for that name, or is stored for the next one."""
    waiting = _waiting(decision, signal, "wait")
    if not waiting:
        kept_count = len(decision.state.kept_signals)
        if kept_count >= signal.most_kept:
            return (
                f"nothing waits for signal {signal.signal}, and the run keeps {kept_count} signals already (signals.max_kept); "
                "send it again when a task waits for it"
            )
        _record(decision, signal, kept=True)
        return None
    index = _record(decision, signal)
    for wait in waiting:
        waited_ms = max(0, decision.now - wait.since) // 1000
        waits.resolve(decision, wait.key, waits.signalled(signal.signal, signal.data, waited_ms), index)
    return None


def _waiting(decision: Decision, signal: Signal, kind: str) -> list[Wait]:
    """Return the waits for this signal, oldest first. All matching of signals and waits happens here."""
    return [
        wait
        for wait in decision.state.waits.values()
        if wait.kind == kind
        and signal.step in ("", wait.step, wait.key)
        and (kind != "wait" or wait.config.get("signal") == signal.signal)
    ]


# -- steps ------------------------------------------------------------------------------------------------------------


def _retry_step(decision: Decision, signal: Signal) -> str | None:
    state = decision.state
    problem = _unknown_step(decision, signal)
    if problem:
        return problem
    step_run = _latest_open(decision, signal.step)
    if step_run is None:
        failure = state.failures.get(signal.step)
        if failure is None:
            return f"the latest run of step {signal.step} has not failed and is not open"
        token = state.tokens_made + 1
        decision.made[token] = _record(decision, signal, step=signal.step, token=token)
        return None
    place = (step_run.step, step_run.run)
    commands = [command for command in state.commands.values() if (command.step, command.run) == place]
    suspended = [wait for wait in state.waits.values() if (wait.step, wait.run) == place]
    if not commands and not suspended:
        return f"no attempt of step {signal.step} is running"
    under_way = [
        (path, pipeline, pipeline.attempt) for path, pipeline in step_run.open_pipelines() if pipeline.in_flight
    ]
    index = _record(decision, signal, step=step_run.step, run=step_run.run)
    for path, pipeline, attempt in under_way:
        ended = error("cancelled", closing.clipped(f"RETRY_STEP: {signal.reason}"), retryable=True)
        closing.end_attempt(decision, step_run, path, pipeline, ended, index, "step_retried", attempt)
    for command in commands:
        if command.held:
            continue
        if command.id in signal.idle:
            # It is not claimed; holding it makes the commit fail if a worker claims it meanwhile.
            decision.txn.hold.append((command.id, command.fence - 1))
            decision.txn.unhold.append(command.id)
        else:
            decision.reissue(command, {"reason": "retry", "signal": len(decision.txn.events) - index})
    for wait in suspended:
        waits.resume(decision, wait, index)
    return None


def _skip_step(decision: Decision, signal: Signal) -> str | None:
    problem = _unknown_step(decision, signal)
    if problem:
        return problem
    step_run = _latest_open(decision, signal.step)
    if step_run is None:
        return f"step {signal.step} has no open run"
    step, run = step_run.step, step_run.run
    index = _record(decision, signal, step=step, run=run)
    for command in [held for held in decision.state.commands.values() if (held.step, held.run) == (step, run)]:
        decision.withdraw(command, f"skipped: {signal.reason}", cause=index)
    reason = closing.Reason("step_skipped", closing.clipped(f"step {step} was skipped: {signal.reason}"))
    closing.end_parts(decision, step_run, reason, index)
    _end_loop(decision, step_run, index)
    done = decision.record(
        "step.done",
        {"source": "server", "reason": signal.reason},
        step=step,
        run=run,
        cause=index,
        event_status="skipped",
    )
    routing.route(decision, step, run, done)
    return None


def _end_loop(decision: Decision, step_run: StepRun, cause: int) -> None:
    """End the loop of a skipped step: arcs of a loop step wait for loop.done."""
    loop = step_run.loop
    if loop is None:
        return
    step, run = step_run.step, step_run.run
    if not step_run.started:
        decision.record("step.started", {"source": "server"}, step=step, run=run, cause=cause)
        mode = decision.program.steps[step].loop.mode
        decision.record("loop.started", {"total": loop.total, "mode": mode}, step=step, run=run, cause=cause)
    left = loop.total - loop.ok - loop.failed
    payload: dict[str, Any] = {"total": loop.total, "ok": loop.ok, "failed": loop.failed, "skipped": left}
    payload["cancelled"] = loop.cancelled
    payload |= errors_of(decision, loop)
    decision.record("loop.done", payload, step=step, run=run, cause=cause)


def _unknown_step(decision: Decision, signal: Signal) -> str | None:
    if not signal.step:
        return f"{signal.signal} needs the name of a step"
    if signal.step not in decision.program.steps:
        return f"the playbook has no step {signal.step[:128]!r}"
    if not decision.state.runs.get(signal.step):
        return f"step {signal.step} has not run yet"
    return None


def _latest_open(decision: Decision, step: str) -> StepRun | None:
    return decision.state.run_of(step, decision.state.runs[step])


def _update_params(decision: Decision, signal: Signal) -> str | None:
    if not isinstance(signal.data, dict) or not signal.data:
        return "UPDATE_PARAMS needs data: a map of ctx keys and their new values"
    for key, reducer in decision.program.names.reducers.items():
        wrong = unfit(reducer, signal.data.get(key))
        if wrong:
            return f"ctx.{key} has the reducer {reducer}, which cannot continue from {wrong}"
    _record(decision, signal)
    return None


Rule = Callable[["Decision", Signal], str | None]

#: Signal → function that records and applies it, and returns the reason if it cannot be applied. Other names are custom
#: signals.
RULES: dict[str, Rule] = {
    "PAUSE": _pause,
    "RESUME": _resume,
    "CANCEL": _cancel,
    "EMERGENCY_STOP": _emergency_stop,
    "APPROVE": _approve,
    "REJECT": _reject,
    "RETRY_STEP": _retry_step,
    "SKIP_STEP": _skip_step,
    "UPDATE_PARAMS": _update_params,
}
