"""Telling a run what to do. Each is a signal, recorded with who sent it before anything comes of it."""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.model.errors import RunEnded
from arclog.model.status import terminal_states
from arclog.ports.views.api import ForkRequest, SignalAnswer, SignalRequest
from arclog.server.auth.access import OPERATE, allows, api_of, principal_of
from arclog.server.bodies import answered, body_of
from arclog.server.openapi import examples
from arclog.server.openapi.params import ExecutionId
from arclog.server.openapi.schemas import documented
from arclog.server.problems import problem
from arclog.server.routes.runs.history import forked, text_of

router = APIRouter(prefix="/api/executions/{execution_id}", tags=["steering"])


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


@router.post(
    "/signal",
    dependencies=[allows(OPERATE)],
    **documented(
        takes=SignalRequest,
        takes_example={"signal": "PAUSE", "signal_id": "maintenance-1", "reason": "database upgrade"},
        answer=SignalAnswer,
        example=examples.SIGNALLED,
        text="The outcome. `accepted` is false if the run cannot apply the signal. `waiting` is true if a task, "
        "or the start of the run, was waiting for it; otherwise a custom signal is kept for the next task that "
        "waits for it.",
        errors=(404, 409),
    ),
)
async def signal(execution_id: ExecutionId, request: Request) -> Response:
    """Send a signal to a run. Returns 409 if the run has ended."""
    asked = await body_of(request, SignalRequest)
    by = principal_of(request).name
    answer = await api_of(request).signal(execution_id, msgspec.structs.replace(asked, by=by))
    if not answer.accepted and answer.state in terminal_states("playbook"):
        return problem(409, RunEnded.__name__, answer.message, state=answer.state, signal_id=answer.signal_id)
    return answered(answer)


async def _steered(execution_id: str, request: Request, name: str, body: SteerBody) -> Response:
    asked = SignalRequest(name, body.signal_id, body.reason, body.step, body.data, principal_of(request).name)
    answer = await api_of(request).signal(execution_id, asked)
    if not answer.accepted:
        return problem(409, "Refused", answer.message, state=answer.state, signal_id=answer.signal_id)
    return answered(answer)


def _documented(example: dict[str, Any]) -> dict[str, Any]:
    return documented(
        takes=SteerBody, takes_example=example, answer=SignalAnswer, example=examples.SIGNALLED, errors=(404, 409)
    )


@router.post("/cancel", dependencies=[allows(OPERATE)], **_documented({"reason": "wrong input"}))
async def cancel(execution_id: ExecutionId, request: Request) -> Response:
    """Cancel a run immediately."""
    return await _steered(execution_id, request, "CANCEL", await body_of(request, SteerBody))


@router.post("/pause", dependencies=[allows(OPERATE)], **_documented({"reason": "database upgrade"}))
async def pause(execution_id: ExecutionId, request: Request) -> Response:
    """Pause a run. Starts no new tasks; running tasks finish first."""
    return await _steered(execution_id, request, "PAUSE", await body_of(request, SteerBody))


@router.post("/resume", dependencies=[allows(OPERATE)], **_documented({}))
async def resume(execution_id: ExecutionId, request: Request) -> Response:
    """Resume a paused run."""
    return await _steered(execution_id, request, "RESUME", await body_of(request, SteerBody))


class RetryBody(SteerBody, frozen=True, forbid_unknown_fields=True, rename={"from_step": "from"}):
    """A step to retry in a run that continues; or, of a run that has ended, what to run again in a new one."""

    #: a new run that keeps all but this step and what it led to
    from_step: str = ""
    #: a new run that keeps all but what failed
    failed: bool = False
    #: with `from` or `failed`: text of the playbook to continue with; empty: the run's own
    playbook: str | dict[str, Any] = ""
    file: str = ""
    files: dict[str, str] = {}
    #: laid over the run's workload
    workload: dict[str, Any] = {}
    #: steps that have another name in the new playbook: old to new
    map: dict[str, str] = {}
    idempotency_key: str = ""


@router.post(
    "/retry",
    dependencies=[allows(OPERATE)],
    **documented(
        takes=RetryBody,
        takes_example={"step": "fetch"},
        answer=SignalAnswer,
        example=examples.SIGNALLED,
        also={201: "With `from` or `failed`: the new run, as returned by POST …/fork."},
        errors=(404, 409),
    ),
)
async def retry(execution_id: ExecutionId, request: Request) -> Response:
    """Retry a step, or, without a step, start a finished run again as a new run: `started` is its id. With `from` the
    new run repeats that step and everything after it; with `failed` it repeats only what failed.
    """
    body = await body_of(request, RetryBody)
    if body.from_step or body.failed:
        asked = ForkRequest(
            step=body.from_step,
            failed=body.failed,
            playbook=text_of(body.playbook),
            file=body.file,
            files=body.files,
            workload=body.workload,
            map=body.map,
            idempotency_key=body.idempotency_key,
        )
        return await forked(execution_id, request, asked)
    return await _steered(execution_id, request, "RETRY_STEP" if body.step else "RETRY_RUN", body)


@router.post(
    "/skip", dependencies=[allows(OPERATE)], **_documented({"step": "fetch", "reason": "the source is gone for good"})
)
async def skip(execution_id: ExecutionId, request: Request) -> Response:
    """Skip a step and continue the run."""
    return await _steered(execution_id, request, "SKIP_STEP", await body_of(request, SteerBody))


@router.post("/approve", dependencies=[allows(OPERATE)], **_documented({"data": {"limit": 100}}))
async def approve(execution_id: ExecutionId, request: Request) -> Response:
    """Approve a run or a task that is waiting for approval."""
    return await _steered(execution_id, request, "APPROVE", await body_of(request, SteerBody))


@router.post("/reject", dependencies=[allows(OPERATE)], **_documented({"reason": "over budget"}))
async def reject(execution_id: ExecutionId, request: Request) -> Response:
    """Reject a run or a task that is waiting for approval."""
    return await _steered(execution_id, request, "REJECT", await body_of(request, SteerBody))
