"""Handlers of `operations.history`."""

from __future__ import annotations

from io import BytesIO

from msgspec.structs import asdict
from starlette.responses import Response, StreamingResponse

from arclog.operations import history as ops
from arclog.operations.operation import OfExecution
from arclog.ports.views.api import ForkRequest, PlaybookStats, ReplayCheck, RunsDiff
from arclog.ports.views.history import Lineage, SimulateRequest, SimulationReport, Trace
from arclog.server.call import Call, numbers_fit
from arclog.server.dispatch import Reply, handles
from arclog.server.handlers.executions import created, text_of
from arclog.server.handlers.results import joined


@handles(ops.FORK)
async def fork(call: Call, params: OfExecution, body: ops.ForkBody) -> Reply:
    return await forked(call, params.execution_id, ForkRequest(**{**asdict(body), "playbook": text_of(body.playbook)}))


async def forked(call: Call, execution_id: str, request: ForkRequest) -> Reply:
    """The response to a request to start a run that continues from another."""
    fork = await call.workspace.api.fork(execution_id, request)
    return created(fork, fork.execution_id, new=fork.created)


@handles(ops.REPLAY)
async def replay(call: Call, params: OfExecution) -> ReplayCheck:
    return await call.workspace.api.replay(params.execution_id)


@handles(ops.DIFF)
async def diff(call: Call, params: ops.DiffWith) -> RunsDiff:
    return await call.workspace.api.diff(params.execution_id, params.other)


@handles(ops.LINEAGE)
async def lineage(call: Call, params: OfExecution) -> Lineage:
    return Lineage(await call.workspace.api.lineage(params.execution_id))


@handles(ops.TRACE)
async def trace(call: Call, params: ops.TraceValue) -> Trace:
    return await call.workspace.api.trace(params.execution_id, params.value)


@handles(ops.EXPORT)
async def export(call: Call, params: OfExecution) -> Response:
    chunks = call.workspace.api.export(params.execution_id)
    first = await anext(chunks)  # raises before the response begins
    headers = {"Content-Disposition": f'attachment; filename="{params.execution_id}.arclog"'}
    return StreamingResponse(joined(first, chunks), 200, headers, ops.ARCHIVE)


@handles(ops.IMPORT)
async def import_run(call: Call) -> Reply:
    body = await call.raw_body()
    with numbers_fit():
        imported = await call.workspace.api.import_run(BytesIO(body))
    return created(imported, imported.execution_id, new=imported.created)


@handles(ops.SIMULATE)
async def simulate(call: Call, body: ops.SimulateBody) -> SimulationReport:
    request = SimulateRequest(**{**asdict(body), "playbook": text_of(body.playbook)})
    return await call.workspace.api.simulate(request)


@handles(ops.STATS)
async def stats(call: Call, params: ops.StatsOf) -> PlaybookStats:
    return await call.workspace.api.stats(params.path, since=params.since, limit=params.limit)
