"""Signals: requests to a run. Each is recorded with its sender before it takes effect."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.operations import examples
from arclog.operations.operation import OPERATE, OfExecution, Operation
from arclog.ports.views.api import SignalAnswer, SignalRequest

_TAG = "steering"


class SignalBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The reason and the target of a signal."""

    #: recorded in the log; required with cancel, skip and reject
    reason: str = ""
    #: required with skip; with retry: the step to retry, otherwise the whole run
    step: str = ""
    #: a request with the same id gets the first answer again
    signal_id: str = ""
    #: the data that an approval passes on
    data: Any = None


class RetryBody(SignalBody, frozen=True, forbid_unknown_fields=True, rename={"from_step": "from"}):
    """A step to retry in the same run, or the part of an ended run to run again in a new one."""

    #: start a new run that repeats this step and everything after it, and keeps the rest
    from_step: str = ""
    #: start a new run that repeats only the failed parts
    failed: bool = False
    #: with `from` or `failed`: text of the playbook to continue with; empty means the run's own
    playbook: str | dict[str, Any] = ""
    file: str = ""
    files: dict[str, str] = {}
    #: merged over the run's workload
    workload: dict[str, Any] = {}
    #: steps that have another name in the new playbook: old to new
    map: dict[str, str] = {}
    idempotency_key: str = ""


SIGNAL = Operation(
    name="signals.signal",
    method="POST",
    path="/api/executions/{execution_id}/signal",
    access=OPERATE,
    tag=_TAG,
    text="Send a signal to a run. Returns 409 if the run has ended.",
    params=OfExecution,
    takes=SignalRequest,
    takes_example={"signal": "PAUSE", "signal_id": "maintenance-1", "reason": "database upgrade"},
    answer=SignalAnswer,
    example=examples.SIGNALLED,
    outcome="The result. `accepted` is false if the run cannot apply the signal. `waiting` is true if a task, or the start of the run, was waiting for it; otherwise a custom signal is kept for the next task that waits for it.",
    errors=(404, 409),
    urgent=True,
    repeatable=True,
)


def _steer(name: str, text: str, example: dict[str, Any], *, urgent: bool = False) -> Operation[SignalAnswer]:
    return Operation(
        name=f"signals.{name}",
        method="POST",
        path=f"/api/executions/{{execution_id}}/{name}",
        access=OPERATE,
        tag=_TAG,
        text=text,
        params=OfExecution,
        takes=SignalBody,
        takes_example=example,
        answer=SignalAnswer,
        example=examples.SIGNALLED,
        errors=(404, 409),
        urgent=urgent,
    )


CANCEL = _steer("cancel", "Cancel a run immediately.", {"reason": "wrong input"}, urgent=True)
PAUSE = _steer(
    "pause",
    "Pause a run. No new tasks start; running tasks finish first.",
    {"reason": "database upgrade"},
    urgent=True,
)
RESUME = _steer("resume", "Resume a paused run.", {}, urgent=True)
RETRY = Operation(
    name="signals.retry",
    method="POST",
    path="/api/executions/{execution_id}/retry",
    access=OPERATE,
    tag=_TAG,
    text="Retry a step of a run. Without a step, start an ended run again as a new run, whose id is `started`. With `from`, the\nnew run repeats that step and everything after it; with `failed`, it repeats only the failed parts.",
    params=OfExecution,
    takes=RetryBody,
    takes_example={"step": "fetch"},
    answer=SignalAnswer,
    example=examples.SIGNALLED,
    also={201: "With `from` or `failed`: the new run, as returned by POST …/fork."},
    errors=(404, 409),
    repeatable=True,
)
SKIP = _steer("skip", "Skip a step and continue the run.", {"step": "fetch", "reason": "the source is gone for good"})
APPROVE = _steer(
    "approve", "Approve a run or a task that is waiting for approval.", {"data": {"limit": 100}}, urgent=True
)
REJECT = _steer(
    "reject", "Reject a run or a task that is waiting for approval.", {"reason": "over budget"}, urgent=True
)

#: Operations that are one signal each, and its name.
STEERING = {
    "PAUSE": PAUSE,
    "RESUME": RESUME,
    "CANCEL": CANCEL,
    "SKIP_STEP": SKIP,
    "APPROVE": APPROVE,
    "REJECT": REJECT,
}
