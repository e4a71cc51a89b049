"""Handlers of `operations.signals`."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from arclog.model.errors import RunEnded
from arclog.model.status import terminal_states
from arclog.operations import signals as ops
from arclog.operations.operation import OfExecution
from arclog.ports.views.api import ForkRequest, SignalAnswer, SignalRequest
from arclog.server.call import Call
from arclog.server.dispatch import Reply, handles
from arclog.server.handlers.executions import text_of
from arclog.server.handlers.history import forked
from arclog.server.problems import problem

_SIGNALS = {operation: signal for signal, operation in ops.STEERING.items()}


@handles(ops.SIGNAL)
async def signal(call: Call, params: OfExecution, body: SignalRequest) -> SignalAnswer | Response:
    request = msgspec.structs.replace(body, by=call.principal.name)
    answer = await call.workspace.api.signal(params.execution_id, request)
    if not answer.accepted and answer.state in terminal_states("playbook"):
        return problem(409, RunEnded.__name__, answer.message, state=answer.state, signal_id=answer.signal_id)
    return answer


@handles(*ops.STEERING.values())
async def steer(call: Call, params: OfExecution, body: ops.SignalBody) -> SignalAnswer | Response:
    return await _steered(call, params, _SIGNALS[call.operation], body)


@handles(ops.RETRY)
async def retry(call: Call, params: OfExecution, body: ops.RetryBody) -> SignalAnswer | Reply | Response:
    if not (body.from_step or body.failed):
        return await _steered(call, params, "RETRY_STEP" if body.step else "RETRY_RUN", body)
    request = ForkRequest(
        step=body.from_step,
        failed=body.failed,
        playbook=text_of(body.playbook),
        file=body.file,
        files=body.files,
        workload=body.workload,
        map=body.map,
        idempotency_key=body.idempotency_key,
    )
    return await forked(call, params.execution_id, request)


async def _steered(call: Call, params: OfExecution, name: str, body: ops.SignalBody) -> SignalAnswer | Response:
    request = SignalRequest(name, body.signal_id, body.reason, body.step, body.data, call.principal.name)
    answer = await call.workspace.api.signal(params.execution_id, request)
    if not answer.accepted:
        return problem(409, "Refused", answer.message, state=answer.state, signal_id=answer.signal_id)
    return answer
