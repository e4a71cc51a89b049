"""Runs: asked for, listed, looked at."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.model.errors import RequestRejected
from arclog.ports.views import insight
from arclog.ports.views.api import ExecuteRequest, Listed, Started, Status, Summary
from arclog.ports.views.overview import RunQuery
from arclog.server.auth.access import OPERATE, VIEW, allows, api_of
from arclog.server.bodies import YAML, answered, body_of, yaml_of
from arclog.server.openapi import examples
from arclog.server.openapi.params import Count, ExecutionId, Limit
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api", tags=["executions"])

_STATES = ("PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED")


class ExecuteBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A run asked for: `path` (in the catalog) or `playbook` (YAML or JSON text, or the playbook itself as JSON)."""

    path: str = ""
    #: of the path; 0 or nothing = the newest
    version: int | str = 0
    playbook: str | dict[str, Any] = ""
    #: where the text came from, for messages
    file: str = ""
    #: texts of playbooks that are called by file
    files: dict[str, str] = {}
    workload: dict[str, Any] = {}
    #: project and environment, where they are not the caller's own
    scope: dict[str, str] = {}
    #: the same key again is the same run
    idempotency_key: str = ""
    #: -100 to 100, in the place of the playbook's own: of the tenant's commands, those with the highest come first
    priority: int | None = None


class Executions(Struct, frozen=True):
    """Newest first."""

    executions: list[Listed]
    #: ask for older ones with `before=`; null when there are none. A search for a text may find fewer than `limit` before it
    #: has looked at as many runs as one request may (`overview.search_runs`)
    next: str | None


_EXECUTE: dict[str, Any] = documented(
    takes=ExecuteBody,
    takes_example={"path": "examples/hello", "workload": {"name": "Ada"}, "idempotency_key": "order-17"},
    takes_text=(YAML[0], examples.PLAYBOOK),
    answer=Started,
    example=Started(examples.ID, examples.RUN),
    status=201,
    text="The run is recorded and will be executed.",
    also={200: "A run with this idempotency key already exists."},
    errors=(404, 409),
)


@router.post("/executions", dependencies=[allows(OPERATE)], **_EXECUTE)
async def start(request: Request) -> Response:
    """Start a run of a registered playbook (`path`) or of a playbook in the request. A body in YAML is the playbook
    itself.
    """
    text = await yaml_of(request)
    body = await body_of(request, ExecuteBody) if text is None else ExecuteBody(playbook=text)
    started = await api_of(request).execute(
        ExecuteRequest(
            playbook=_text(body.playbook),
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
    where = f"/api/executions/{started.execution_id}"
    return answered(started, 201 if started.created else 200, {"Location": where})


@router.post("/execute", dependencies=[allows(OPERATE)], **_EXECUTE)
async def execute(request: Request) -> Response:
    """Same as POST /api/executions."""
    return await start(request)


@router.get(
    "/executions",
    dependencies=[allows(VIEW)],
    **documented(answer=Executions, example=Executions([examples.LISTED], examples.ID), errors=()),
)
async def list_executions(
    request: Request,
    state: Annotated[list[str], Query(description="Only runs in one of these states", max_length=10)] = [],  # noqa: B006 - FastAPI copies it
    path: Annotated[str, Query(description="Only runs of this catalog path")] = "",
    before: Annotated[str, Query(description="Only runs older than this one")] = "",
    name: Annotated[str, Query(description="Only runs whose playbook's name contains this", max_length=200)] = "",
    limit: Limit = 50,
    q: Annotated[
        str, Query(description="Only runs with this text in name, path, current step, error or ids", max_length=200)
    ] = "",
    since: Annotated[
        str, Query(description="Only runs requested at or after this time (RFC 3339)", max_length=64)
    ] = "",
    until: Annotated[str, Query(description="Only runs requested before this time (RFC 3339)", max_length=64)] = "",
    level: Annotated[
        str,
        Query(
            description="`top`: only runs not called by another run; `called`: only runs that were",
            pattern="^(top|called)?$",
        ),
    ] = "",
    parent: Annotated[str, Query(description="Only runs called by this run", max_length=32)] = "",
) -> Response:
    """List runs, newest first. Page with `before`."""
    unknown = next((one for one in state if one not in _STATES), None)
    if unknown is not None:
        raise RequestRejected(f"there is no state {unknown!r}; there are {', '.join(_STATES)}")
    found = await api_of(request).find(
        RunQuery(
            states=tuple(state),
            path=path,
            name=name,
            text=q,
            since=since,
            until=until,
            level=level,
            parent=parent,
            before=before,
            limit=limit,
        )
    )
    return answered(Executions(found.runs, found.next))


@router.get(
    "/executions/{execution_id}",
    dependencies=[allows(VIEW)],
    **documented(answer=Summary, example=examples.SUMMARY),
)
async def detail(execution_id: ExecutionId, request: Request) -> Response:
    """Get a run with its steps, ctx, result and error."""
    return answered(await api_of(request).summary(execution_id))


@router.get(
    "/executions/{execution_id}/status",
    dependencies=[allows(VIEW)],
    **documented(answer=Status, example=examples.STATUS),
)
async def status(execution_id: ExecutionId, request: Request) -> Response:
    """Get the status of a run: exactly seven fields."""
    return answered(await api_of(request).status(execution_id))


@router.get(
    "/executions/{execution_id}/why",
    dependencies=[allows(VIEW)],
    **documented(answer=insight.Why, example=examples.WHY),
)
async def why(execution_id: ExecutionId, request: Request) -> Response:
    """Explain what a run is waiting for, or why it ended."""
    return answered(await api_of(request).why(execution_id))


@router.get(
    "/executions/{execution_id}/state",
    dependencies=[allows(VIEW)],
    **documented(answer=insight.StateView, example=examples.STATE),
)
async def state_at(
    execution_id: ExecutionId,
    request: Request,
    at: Annotated[
        Count | None, Query(description="After this event; 0 is before the first. Default: the latest")
    ] = None,
) -> Response:
    """Get the state of a run after any of its events."""
    return answered(await api_of(request).state(execution_id, at))


@router.get(
    "/executions/{execution_id}/graph",
    dependencies=[allows(VIEW)],
    **documented(answer={"type": "object"}, example={"name": "hello", "entry": "start", "steps": [{"step": "start"}]}),
)
async def graph(
    execution_id: ExecutionId,
    request: Request,
    form: Annotated[str, Query(alias="format", pattern="^(json|mermaid|text)$")] = "json",
) -> Response:
    """Get the plan of a run as data, as a Mermaid flowchart or as text."""
    drawn = await api_of(request).graph(execution_id, form)
    return answered(drawn) if form == "json" else Response(drawn, media_type="text/plain")


@router.get(
    "/executions/{execution_id}/source",
    dependencies=[allows(VIEW)],
    **documented(example=examples.PLAYBOOK, media="text/plain"),
)
async def source(execution_id: ExecutionId, request: Request) -> Response:
    """Get the original text of the run's playbook."""
    return Response(await api_of(request).source(execution_id), media_type="text/plain")


def _text(playbook: str | dict[str, Any]) -> str:
    """JSON is YAML, too."""
    return playbook if isinstance(playbook, str) else msgspec.json.encode(playbook).decode()


def _version(raw: int | str) -> int:
    if isinstance(raw, str) and not (raw.isascii() and raw.isdigit() and len(raw) <= 18):
        raise RequestRejected(f"version {raw[:50]!r} is not a version; versions start at 1")
    number = int(raw)
    if not 0 <= number < 1 << 63:
        raise RequestRejected("a version is a whole number of 1 or more")
    return number
