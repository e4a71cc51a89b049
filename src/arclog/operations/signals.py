"""Signals: what a run is told to do. Each is recorded with who sent it before anything comes of it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.operations import examples
from arclog.operations.operation import OPERATE, OfExecution, Operation
from arclog.ports.views.api import SignalAnswer, SignalRequest

_TAG = "steering"


class SteerBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and where."""

    #: kept in the log; required with cancel, skip and reject
    reason: str = ""
    #: required with skip; with retry: only this step, else the whole run again
    step: str = ""
    #: the same id again is answered as before
    signal_id: str = ""
    #: what an approval hands on
    data: Any = None


class RetryBody(SteerBody, frozen=True, forbid_unknown_fields=True, rename={"from_step": "from"}):
    """A step to retry in a run that goes on; or, of a run that has ended, what to run again in a new one."""

    #: a new run that keeps all but this step and what it led to
    from_step: str = ""
    #: a new run that keeps all but what failed
    failed: bool = False
    #: with `from` or `failed`: text of the playbook to go on with; empty: the run's own
    playbook: str | dict[str, Any] = ""
    file: str = ""
    files: dict[str, str] = {}
    #: laid over the run's workload
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
    text="Give the run a signal by its name. 409: the run has ended.",
    params=OfExecution,
    takes=SignalRequest,
    takes_example={"signal": "PAUSE", "signal_id": "maintenance-1", "reason": "database upgrade"},
    answer=SignalAnswer,
    example=examples.SIGNALLED,
    outcome="What became of it; a run that cannot do it says so (`accepted` is false). `waiting`: a task, or the start of "
    "the run, was waiting for it; a signal of the playbook's own is kept for the next wait otherwise.",
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
        takes=SteerBody,
        takes_example=example,
        answer=SignalAnswer,
        example=examples.SIGNALLED,
        errors=(404, 409),
        urgent=urgent,
    )


CANCEL = _steer("cancel", "End the run at once.", {"reason": "wrong input"}, urgent=True)
PAUSE = _steer("pause", "Let the run stop between two tasks.", {"reason": "database upgrade"}, urgent=True)
RESUME = _steer("resume", "Go on with a paused run.", {}, urgent=True)
RETRY = Operation(
    name="signals.retry",
    method="POST",
    path="/api/executions/{execution_id}/retry",
    access=OPERATE,
    tag=_TAG,
    text="Run a step again, or (without one) an ended run as a new one: `started` is its id. With `from` or `failed` the new "
    "run\nkeeps what the ended one recorded: all but that step and what it led to, or all but what failed.",
    params=OfExecution,
    takes=RetryBody,
    takes_example={"step": "fetch"},
    answer=SignalAnswer,
    example=examples.SIGNALLED,
    also={201: "With `from` or `failed`: the new run, as POST …/fork answers it."},
    errors=(404, 409),
    repeatable=True,
)
SKIP = _steer("skip", "End a step as skipped, and go on.", {"step": "fetch", "reason": "the source is gone for good"})
APPROVE = _steer(
    "approve", "Let a run, or a task that waits for an approval, go on.", {"data": {"limit": 100}}, urgent=True
)
REJECT = _steer("reject", "Refuse what waits for an approval.", {"reason": "over budget"}, urgent=True)

#: Operations that are one signal each, and its name.
STEERING = {
    "PAUSE": PAUSE,
    "RESUME": RESUME,
    "CANCEL": CANCEL,
    "SKIP_STEP": SKIP,
    "APPROVE": APPROVE,
    "REJECT": REJECT,
}
