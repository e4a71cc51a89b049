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
async def fork(call: Call, asked: OfExecution, body: ops.ForkBody) -> Reply:
    return await forked(call, asked.execution_id, ForkRequest(**{**asdict(body), "playbook": text_of(body.playbook)}))


async def forked(call: Call, execution_id: str, request: ForkRequest) -> Reply:
    """The response to a request to start a run that continues from another."""
    found = await call.workspace.api.fork(execution_id, request)
    return created(found, found.execution_id, new=found.created)


@handles(ops.REPLAY)
async def replay(call: Call, asked: OfExecution) -> ReplayCheck:
    return await call.workspace.api.replay(asked.execution_id)


@handles(ops.DIFF)
async def diff(call: Call, asked: ops.DiffWith) -> RunsDiff:
    return await call.workspace.api.diff(asked.execution_id, asked.other)


@handles(ops.LINEAGE)
async def lineage(call: Call, asked: OfExecution) -> Lineage:
    return Lineage(await call.workspace.api.lineage(asked.execution_id))


@handles(ops.TRACE)
async def trace(call: Call, asked: ops.TraceValue) -> Trace:
    return await call.workspace.api.trace(asked.execution_id, asked.value)


@handles(ops.EXPORT)
async def export(call: Call, asked: OfExecution) -> Response:
    chunks = call.workspace.api.export(asked.execution_id)
    first = await anext(chunks)  # raises before the response begins
    headers = {"Content-Disposition": f'attachment; filename="{asked.execution_id}.arclog"'}
    return StreamingResponse(joined(first, chunks), 200, headers, ops.ARCHIVE)


@handles(ops.IMPORT)
async def import_run(call: Call) -> Reply:
    body = await call.raw_body()
    with numbers_fit():
        found = await call.workspace.api.import_run(BytesIO(body))
    return created(found, found.execution_id, new=found.created)


@handles(ops.SIMULATE)
async def simulate(call: Call, body: ops.SimulateBody) -> SimulationReport:
    request = SimulateRequest(**{**asdict(body), "playbook": text_of(body.playbook)})
    return await call.workspace.api.simulate(request)


@handles(ops.STATS)
async def stats(call: Call, asked: ops.StatsOf) -> PlaybookStats:
    return await call.workspace.api.stats(asked.path, since=asked.since, limit=asked.limit)
