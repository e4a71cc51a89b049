"""Handlers of `operations.runs`."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from arclog.operations import runs as ops
from arclog.ports.views.runs import REJECTED, RunPage, RunSignal, RunStatus, SignalDecision, StartRun
from arclog.server.call import Call
from arclog.server.dispatch import Reply, handles
from arclog.server.problems import problem


@handles(ops.START)
async def start(call: Call, body: StartRun) -> Reply:
    status, created = await call.workspace.runs.start(body)
    return Reply(status, 201 if created else 200, {"Location": f"/api/runs/{status.run_id}/status"})


@handles(ops.STATUS)
async def status(call: Call, request: ops.OfRun) -> RunStatus:
    return await call.workspace.runs.status(request.run_id)


@handles(ops.CANCEL)
async def cancel(call: Call, request: ops.OfRun, body: ops.CancelRun) -> RunStatus:
    return await call.workspace.runs.cancel(request.run_id, body.reason)


@handles(ops.SIGNAL)
async def signal(call: Call, request: ops.OfRun, body: RunSignal) -> SignalDecision | Response:
    decision = await call.workspace.runs.signal(request.run_id, body)
    if decision.decision == REJECTED:
        return problem(409, "SignalRejected", decision.message, decision=msgspec.to_builtins(decision))
    return decision


@handles(ops.EVENTS)
async def events(call: Call, request: ops.ListRunEvents) -> RunPage:
    return await call.workspace.runs.events(request.run_id, after=request.after, limit=request.limit)
