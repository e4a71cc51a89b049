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
async def list_executions(call: Call, asked: ops.ListExecutions) -> ops.Executions:
    unknown = next((state for state in asked.state if state not in _STATES), None)
    if unknown is not None:
        raise RequestRejected(f"there is no state {unknown!r}; there are {', '.join(_STATES)}")
    found = await call.workspace.api.find(
        RunQuery(
            states=tuple(asked.state),
            path=asked.path,
            name=asked.name,
            text=asked.q,
            since=asked.since,
            until=asked.until,
            level=asked.level,
            parent=asked.parent,
            before=asked.before,
            limit=asked.limit,
        )
    )
    return ops.Executions(found.runs, found.next)


@handles(ops.DETAIL)
async def detail(call: Call, asked: OfExecution) -> Summary:
    return await call.workspace.api.summary(asked.execution_id)


@handles(ops.STATUS)
async def status(call: Call, asked: OfExecution) -> Status:
    return await call.workspace.api.status(asked.execution_id)


@handles(ops.WHY)
async def why(call: Call, asked: OfExecution) -> Why:
    return await call.workspace.api.why(asked.execution_id)


@handles(ops.STATE)
async def state_at(call: Call, asked: ops.StateAt) -> StateView:
    return await call.workspace.api.state(asked.execution_id, asked.at)


@handles(ops.GRAPH)
async def graph(call: Call, asked: ops.Graph) -> Any:
    drawn = await call.workspace.api.graph(asked.execution_id, asked.form)
    return drawn if asked.form == "json" else Response(drawn, media_type=TEXT)


@handles(ops.SOURCE)
async def source(call: Call, asked: OfExecution) -> Response:
    return Response(await call.workspace.api.source(asked.execution_id), media_type=TEXT)


# -- overview ----------------------------------------------------------------------------------------------------------


@handles(ops.ACTIVITY)
async def activity(call: Call, asked: ops.Hours) -> Activity:
    return await call.workspace.api.activity(hours=asked.hours)


@handles(ops.FAILING)
async def failing(call: Call, asked: ops.AFew) -> ops.FailingPlaybooks:
    return ops.FailingPlaybooks(await call.workspace.api.failing(limit=asked.limit))


@handles(ops.STUCK)
async def stuck(call: Call, asked: ops.AFew) -> ops.StuckRuns:
    return ops.StuckRuns(await call.workspace.api.stuck(limit=asked.limit))


@handles(ops.LEASES)
async def leases(call: Call, asked: ops.ListLeases) -> ops.Leases:
    return ops.Leases(await call.workspace.api.leases(limit=asked.limit))


@handles(ops.APPROVALS)
async def approvals(call: Call, asked: ops.ListApprovals) -> ApprovalPage:
    return await call.workspace.api.approvals(after=asked.after, limit=asked.limit)


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
