"""Handlers of `operations.executions`."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from arclog.model.errors import RequestRejected
from arclog.operations import executions as ops
from arclog.operations.operation import TEXT, OfExecution
from arclog.ports.views.api import ExecuteRequest, Status, Summary
from arclog.ports.views.insight import StateView, Why
from arclog.ports.views.overview import Activity, ApprovalPage, RunQuery
from arclog.server.call import Call
from arclog.server.dispatch import Reply, handles

_STATES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")


@handles(ops.START, ops.EXECUTE)
async def start(call: Call, body: ops.ExecuteBody) -> Reply:
    started = await call.workspace.api.execute(
        ExecuteRequest(
            playbook=text_of(body.playbook),
            file=body.file,
            workload=body.workload,
            files=body.files,
            idempotency_key=body.idempotency_key,
            path=body.path,
            version=_version(body.version),
            scope=body.scope,
            priority=body.priority,
        )
    )
    return created(started, started.execution_id, new=started.created)


@handles(ops.LIST)
async def list_executions(call: Call, request: ops.ListExecutions) -> ops.Executions:
    unknown = next((state for state in request.state if state not in _STATES), None)
    if unknown is not None:
        raise RequestRejected(f"there is no state {unknown!r}; there are {', '.join(_STATES)}")
    page = await call.workspace.api.find(
        RunQuery(
            states=tuple(request.state),
            path=request.path,
            name=request.name,
            text=request.q,
            since=request.since,
            until=request.until,
            level=request.level,
            parent=request.parent,
            origin=request.origin,
            before=request.before,
            limit=request.limit,
        )
    )
    return ops.Executions(page.runs, page.next)


@handles(ops.DETAIL)
async def detail(call: Call, request: OfExecution) -> Summary:
    return await call.workspace.api.summary(request.execution_id)


@handles(ops.STATUS)
async def status(call: Call, request: OfExecution) -> Status:
    return await call.workspace.api.status(request.execution_id)


@handles(ops.WHY)
async def why(call: Call, request: OfExecution) -> Why:
    return await call.workspace.api.why(request.execution_id)


@handles(ops.STATE)
async def state_at(call: Call, request: ops.StateAt) -> StateView:
    return await call.workspace.api.state(request.execution_id, request.at)


@handles(ops.GRAPH)
async def graph(call: Call, request: ops.Graph) -> Any:
    drawn = await call.workspace.api.graph(request.execution_id, request.form)
    return drawn if request.form == "json" else Response(drawn, media_type=TEXT)


@handles(ops.SOURCE)
async def source(call: Call, request: OfExecution) -> Response:
    return Response(await call.workspace.api.source(request.execution_id), media_type=TEXT)


# -- overview ----------------------------------------------------------------------------------------------------------


@handles(ops.ACTIVITY)
async def activity(call: Call, request: ops.Hours) -> Activity:
    return await call.workspace.api.activity(hours=request.hours)


@handles(ops.FAILING)
async def failing(call: Call, request: ops.ListFew) -> ops.FailingPlaybooks:
    return ops.FailingPlaybooks(await call.workspace.api.failing(limit=request.limit))


@handles(ops.STUCK)
async def stuck(call: Call, request: ops.ListFew) -> ops.StuckRuns:
    return ops.StuckRuns(await call.workspace.api.stuck(limit=request.limit))


@handles(ops.LEASES)
async def leases(call: Call, request: ops.ListLeases) -> ops.Leases:
    return ops.Leases(await call.workspace.api.leases(limit=request.limit))


@handles(ops.APPROVALS)
async def approvals(call: Call, request: ops.ListApprovals) -> ApprovalPage:
    return await call.workspace.api.approvals(after=request.after, limit=request.limit)


# -- shared ------------------------------------------------------------------------------------------------------------


def created(value: Any, execution_id: str, *, new: bool) -> Reply:
    """The response to a request to start a run: 200 if the run existed before."""
    return Reply(value, 201 if new else 200, {"Location": f"/api/executions/{execution_id}"})


def text_of(playbook: str | dict[str, Any]) -> str:
    """JSON is YAML, too."""
    return playbook if isinstance(playbook, str) else msgspec.json.encode(playbook).decode()


def _version(raw: int | str) -> int:
    if isinstance(raw, str) and not (raw.isascii() and raw.isdigit() and len(raw) <= 18):
        raise RequestRejected(f"version {raw[:50]!r} is not a version; versions start at 1")
    number = int(raw)
    if not 0 <= number < 1 << 63:
        raise RequestRejected("a version is a whole number of 1 or more")
    return number
