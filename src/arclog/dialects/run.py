"""The `run` dialect: the Run Events Contract over the same log. Types without a name in the contract are left out.

A step run is rendered as StepStarted, then StepCompleted or StepFailed; a retry in between as StepFailed(n) and
StepStarted(n+1). Every StepStarted has an end before the end of the run, and every end has a StepStarted before it. A
step that an arc enters again is `name#2`; a step that RETRY_STEP runs again keeps its stepId and gets the next attempt.
A loop step is one pair with a count of its iterations. So every record of a run has a unique idempotencyKey.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from arclog.dialects import run_record as contract
from arclog.dialects.rendering import Envelope, Rendered, is_closing, is_fact_only, iteration_of, result_ref
from arclog.dialects.run_record import Attempts, RunSubject
from arclog.model.events import ERROR, SKIPPED, SUCCESS
from arclog.model.ids import as_uuid

NAME = "run"


class Row(Struct, frozen=True):
    canonical: str
    #: statuses that the row applies to; () for all statuses of the type
    statuses: tuple[str, ...]
    name: str
    #: a condition beyond type and status, in words; '' if none
    only: str = ""


RETRIED = "a retry, outside loops"
RESTARTED = "an attempt that RETRY_STEP restarts, outside loops"
ATTEMPTED_AGAIN = "the attempt that a retry leads to, outside loops"

TABLE: tuple[Row, ...] = (
    Row("playbook.started", (), contract.RUN_STARTED),
    Row("step.started", (), contract.STEP_STARTED),
    Row("step.done", (), contract.STEP_COMPLETED),
    Row("step.failed", (), contract.STEP_FAILED),
    Row("policy.task.evaluated", (SUCCESS,), contract.STEP_FAILED, RETRIED),
    Row("task.attempt.failed", (), contract.STEP_FAILED, RESTARTED),
    Row("task.attempt.started", (), contract.STEP_STARTED, ATTEMPTED_AGAIN),
    Row("playbook.paused", (), contract.RUN_PAUSED),
    Row("playbook.resumed", (), contract.RUN_RESUMED),
    Row("playbook.finished", (SUCCESS,), contract.RUN_COMPLETED),
    Row("playbook.finished", (ERROR,), contract.RUN_FAILED),
    Row("execution.cancelled", (), contract.RUN_CANCELLED),
)


class StepProgress(Struct, omit_defaults=True):
    """The state of an open step run."""

    step_id: str
    step: str
    #: logicalAttemptId of the current attempt
    attempt: int = 1
    #: number of lost leases
    losses: int = 0
    started_at: str = ""
    #: whether StepFailed was rendered for this attempt and a retry follows
    failed: bool = False
    #: whether RETRY_STEP restarts the current attempt, whose end is not in the log
    restarted: bool = False
    #: number of items of the outermost loop; None outside loops
    total: int | None = None
    ok: int = 0
    bad: int = 0
    cancelled: int = 0
    #: result of the last task that ended
    result: Any = None
    result_ref: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    stack: str | None = None


class RunState(Struct):
    """The state of the dialect's reader; `status` and `substatus` are the answer to getRunStatus."""

    status: str = contract.PENDING
    substatus: str | None = None
    started_at: str = ""
    #: number of lost leases of the run
    losses: int = 0
    #: step → number of times that an arc entered it
    entries: dict[str, int] = {}
    #: step → stepId and attempt of its latest failure, from which RETRY_STEP continues
    failures: dict[str, tuple[str, int]] = {}
    #: step → stack of its latest failure
    stacks: dict[str, str] = {}
    #: tokens that RETRY_STEP created
    retry_tokens: list[int] = []
    #: step_run_id → progress
    open: dict[str, StepProgress] = {}


class RunReader:
    """Implements `rendering.Reader`."""

    def __init__(self, subject: RunSubject, state: RunState | None = None) -> None:
        self.subject = subject
        self.state = state or RunState()
        self.needs: frozenset[str] | None = NEEDS

    def render(self, envelope: Envelope) -> list[Rendered]:
        rule = _RULES.get(envelope["event_type"])
        if rule is None or is_fact_only(envelope):
            return []
        rendered: list[Rendered] = []
        records = rule(self.state, envelope) or []
        for number, (name, attempts, payload, step_id) in enumerate(records, 1):
            self.state.status = contract.STATUS_AFTER.get(name, self.state.status)
            if "signalId" in payload:
                payload["signalId"] = as_uuid(payload["signalId"], self.subject.run_id)
            record = contract.record_of(name, envelope, self.subject, attempts, payload, step_id)
            rendered.append(Rendered(name, record, envelope, derived=number < len(records)))
        return rendered

    def held_back(self) -> list[Rendered]:
        return []


#: The records of an event, each with its name, attempts, payload and stepId; the last is its own, the others are
#: implied.
Records = list[tuple[str, Attempts, dict[str, Any], str | None]]


# -- the run ----------------------------------------------------------------------------------------------------------


def _of_run(state: RunState, name: str, payload: dict[str, Any], logical: int = 1) -> Records:
    return [(name, Attempts(logical, 1 + state.losses), payload, None)]


def _evaluated(state: RunState, envelope: Envelope) -> None:
    if envelope["status"] == SUCCESS and not envelope["payload"].get("waits_for"):
        state.status = contract.APPROVED


def _run_started(state: RunState, envelope: Envelope) -> Records:
    state.started_at = envelope["timestamp"]
    return _of_run(state, contract.RUN_STARTED, {})


def _paused(state: RunState, envelope: Envelope) -> Records:
    state.substatus = None
    payload = envelope["payload"]
    return _of_run(state, contract.RUN_PAUSED, contract.signal_payload(payload), payload.get("cycle", 1))


def _resumed(state: RunState, envelope: Envelope) -> Records:
    payload = envelope["payload"]
    return _of_run(state, contract.RUN_RESUMED, contract.signal_payload(payload), payload.get("cycle", 1))


def _finished(state: RunState, envelope: Envelope) -> Records:
    stacks = state.stacks
    _clear(state)
    took = contract.milliseconds_between(state.started_at, envelope["timestamp"])
    payload: dict[str, Any] = {} if took is None else {"durationMs": took}
    if envelope["status"] == ERROR:
        error = envelope["payload"].get("error")
        step = (error or {}).get("step")
        payload |= contract.error_payload(error, stacks.get(step) if step else None)
        if step:
            payload["step"] = step
        return _of_run(state, contract.RUN_FAILED, payload)
    if ref := result_ref(envelope["payload"]):
        payload["resultRef"] = ref
    elif "result" in envelope["payload"]:
        payload["result"] = envelope["payload"]["result"]
    return _of_run(state, contract.RUN_COMPLETED, payload)


def _cancelled(state: RunState, envelope: Envelope) -> Records:
    _clear(state)
    payload = contract.signal_payload(envelope["payload"])
    if envelope["payload"].get("code"):
        payload["errorCode"] = envelope["payload"]["code"]
    return _of_run(state, contract.RUN_CANCELLED, payload)


def _clear(state: RunState) -> None:
    state.substatus = None
    state.open, state.entries, state.failures, state.stacks, state.retry_tokens = {}, {}, {}, {}, []


def _signalled(state: RunState, envelope: Envelope) -> None:
    if envelope["status"] == ERROR:
        return
    payload = envelope["payload"]
    match payload.get("signal"):
        case "PAUSE":
            state.substatus = contract.DRAINING
        case "RESUME":
            state.substatus = None
        case "APPROVE" if state.status == contract.PENDING:
            state.status = contract.APPROVED
        case "RETRY_STEP" if "token" in payload:
            state.retry_tokens.append(payload["token"])
        case "RETRY_STEP":
            step_run = state.open.get(envelope.get("step_run_id", ""))
            if step_run is not None and step_run.started_at:
                step_run.restarted = True


# -- steps ------------------------------------------------------------------------------------------------------------


def _of_step(name: str, step_run: StepProgress, payload: dict[str, Any]) -> Records:
    return [
        (name, Attempts(step_run.attempt, 1 + step_run.losses), {"step": step_run.step, **payload}, step_run.step_id)
    ]


def _scheduled(state: RunState, envelope: Envelope) -> None:
    step = envelope["step"]
    tokens = envelope["payload"].get("tokens") or []
    again = [token for token in tokens if token in state.retry_tokens]
    if again and step in state.failures:
        state.retry_tokens = [token for token in state.retry_tokens if token not in again]
        step_id, attempt = state.failures[step]
        state.open[envelope["step_run_id"]] = StepProgress(step_id, step, attempt + 1)
        return
    entry = state.entries[step] = state.entries.get(step, 0) + 1
    state.open[envelope["step_run_id"]] = StepProgress(step if entry == 1 else f"{step}#{entry}", step)


def _step_started(state: RunState, envelope: Envelope) -> Records | None:
    step_run = state.open.get(envelope["step_run_id"])
    if step_run is None:
        return None
    step_run.started_at = envelope["timestamp"]
    return _of_step(contract.STEP_STARTED, step_run, {})


def _step_ended(state: RunState, envelope: Envelope) -> Records | None:
    step_run = state.open.pop(envelope["step_run_id"], None)
    if step_run is None:
        return None
    began: Records = []
    if not step_run.started_at or step_run.failed:
        if is_closing(envelope):
            return None  # no attempt is in progress
        # It ended before it started, or while it waited for a retry, whose StepFailed was rendered before.
        step_run.attempt += step_run.failed
        began = _of_step(contract.STEP_STARTED, step_run, {})
    took = contract.milliseconds_between(step_run.started_at, envelope["timestamp"])
    payload: dict[str, Any] = {} if took is None else {"durationMs": took}
    if step_run.total is not None:
        payload["iterations"] = {"total": step_run.total, "ok": step_run.ok, "failed": step_run.bad}
        if step_run.cancelled:
            payload["iterations"]["cancelled"] = step_run.cancelled
    if envelope["event_type"] == "step.failed":
        state.failures[step_run.step] = (step_run.step_id, step_run.attempt)
        payload |= contract.error_payload(envelope["payload"].get("error") or step_run.error, step_run.stack)
        if step_run.stack and not is_closing(envelope):
            state.stacks[step_run.step] = step_run.stack
        return began + _of_step(contract.STEP_FAILED, step_run, payload)
    if envelope["status"] == SKIPPED:
        payload["skipped"] = True
    elif step_run.total is None:
        payload |= {"resultRef": step_run.result_ref} if step_run.result_ref else {"result": step_run.result}
    return began + _of_step(contract.STEP_COMPLETED, step_run, payload)


def _task_ended(state: RunState, envelope: Envelope) -> None:
    step_run = state.open.get(envelope.get("step_run_id", ""))
    if step_run is None or is_closing(envelope):
        return
    outcome = envelope["payload"].get("outcome")
    if outcome is None:
        return  # the end of the task has the attempt's outcome
    step_run.error = outcome.get("error")
    step_run.stack = (outcome.get("py") or {}).get("traceback") if step_run.error else None
    if "iteration_id" not in envelope and envelope["event_type"] in ("task.done", "task.failed"):
        step_run.result, step_run.result_ref = outcome.get("data"), result_ref(envelope["payload"])


def _attempt_failed(state: RunState, envelope: Envelope) -> Records | None:
    step_run = state.open.get(envelope.get("step_run_id", ""))
    if not restarts(envelope):
        _task_ended(state, envelope)
        return None
    if step_run is None or "iteration_id" in envelope:
        return None
    step_run.failed, step_run.restarted = True, False
    payload = contract.error_payload(envelope["payload"]["outcome"]["error"])
    return _of_step(contract.STEP_FAILED, step_run, {**payload, "retryable": True})


def _retried(state: RunState, envelope: Envelope) -> Records | None:
    step_run = state.open.get(envelope.get("step_run_id", ""))
    if step_run is None or "iteration_id" in envelope or not retries(envelope):
        return None
    step_run.failed = True
    payload = contract.error_payload(step_run.error, step_run.stack)
    payload = payload or {
        "errorCode": "RETRIED",
        "errorMessage": f"the policy of task {envelope['task']} tries again after an ok outcome",
    }
    return _of_step(contract.STEP_FAILED, step_run, {**payload, "retryable": True})


def _attempt_started(state: RunState, envelope: Envelope) -> Records | None:
    step_run = state.open.get(envelope.get("step_run_id", ""))
    if (
        step_run is None
        or "iteration_id" in envelope
        or envelope["attempt"] == 1
        or not (step_run.failed or step_run.restarted)
    ):
        return None
    ended: Records = []
    if not step_run.failed:
        # Older releases did not record the end of the attempt.
        payload = {"errorCode": "CANCELLED", "errorMessage": "RETRY_STEP", "retryable": True}
        ended = _of_step(contract.STEP_FAILED, step_run, payload)
    step_run.failed = step_run.restarted = False
    step_run.attempt += 1
    return ended + _of_step(contract.STEP_STARTED, step_run, {})


def _loop_started(state: RunState, envelope: Envelope) -> None:
    step_run = state.open.get(envelope["step_run_id"])
    if step_run is not None and step_run.total is None:
        step_run.total = envelope["payload"].get("total", 0)


def _iteration_ended(state: RunState, envelope: Envelope) -> None:
    step_run = state.open.get(envelope["step_run_id"])
    if step_run is None or len(iteration_of(envelope) or ()) != 1:
        return
    if envelope["event_type"] == "loop.iteration.done":
        step_run.ok += 1
    elif is_closing(envelope):
        step_run.cancelled += 1
    else:
        step_run.bad += 1


def _issued(state: RunState, envelope: Envelope) -> None:
    if envelope["payload"].get("reason") == "lease_lost":
        state.losses += 1
        step_run = state.open.get(envelope.get("step_run_id", ""))
        if step_run is not None:
            step_run.losses += 1


def restarts(envelope: Envelope) -> bool:
    """Return whether RETRY_STEP ended an attempt."""
    return bool(envelope["payload"].get("reason") == "step_retried" and is_closing(envelope))


def retries(envelope: Envelope) -> bool:
    """Return whether a task's policy chose to retry."""
    return bool(envelope["payload"].get("action", {}).get("do") == "retry" and "due" in envelope["payload"])


_RULES: dict[str, Callable[[RunState, Envelope], Records | None]] = {
    "playbook.request.evaluated": _evaluated,
    "playbook.started": _run_started,
    "playbook.paused": _paused,
    "playbook.resumed": _resumed,
    "playbook.finished": _finished,
    "execution.cancelled": _cancelled,
    "signal.received": _signalled,
    "step.scheduled": _scheduled,
    "step.started": _step_started,
    "step.done": _step_ended,
    "step.failed": _step_ended,
    "task.done": _task_ended,
    "task.failed": _task_ended,
    "task.attempt.done": _task_ended,
    "task.attempt.failed": _attempt_failed,
    "policy.task.evaluated": _retried,
    "task.attempt.started": _attempt_started,
    "loop.started": _loop_started,
    "loop.iteration.done": _iteration_ended,
    "loop.iteration.failed": _iteration_ended,
    "command.issued": _issued,
}
NEEDS = frozenset(_RULES)
