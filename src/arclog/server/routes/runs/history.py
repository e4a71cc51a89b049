"""Recorded runs: gone on from, checked against the code of today, compared."""

from __future__ import annotations

from collections.abc import AsyncIterator
from io import BytesIO
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response, StreamingResponse

from arclog.ports.views.api import Forked, ForkRequest, Origin, PlaybookStats, ReplayCheck, RunsDiff
from arclog.ports.views.history import (
    Imported,
    Lineage,
    SimulatedRun,
    SimulateRequest,
    SimulationReport,
    Trace,
    TraceNode,
)
from arclog.server.auth.access import BUILD, OPERATE, VIEW, allows, api_of
from arclog.server.bodies import answered, body_of, numbers_fit, raw_body
from arclog.server.openapi import examples
from arclog.server.openapi.params import ExecutionId, Limit
from arclog.server.openapi.schemas import documented

ARCHIVE = "application/zip"

router = APIRouter(prefix="/api/executions/{execution_id}", tags=["history"])
#: Of all runs of a playbook.
playbooks = APIRouter(prefix="/api", tags=["history"])


class ForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A new run from the state after an event."""

    #: seq of the event
    at: int
    #: text of the playbook to continue with; empty: the run's own
    playbook: str | dict[str, Any] = ""
    file: str = ""
    #: texts of playbooks that are called by file
    files: dict[str, str] = {}
    #: laid over the run's workload
    workload: dict[str, Any] = {}
    #: steps that have another name in the new playbook: old to new
    map: dict[str, str] = {}
    #: the same key again is the same run
    idempotency_key: str = ""


FORKED = Forked(examples.ID, examples.RUN, Origin(examples.ID, 12, "fork", 10))


@router.post(
    "/fork",
    dependencies=[allows(OPERATE)],
    **documented(
        takes=ForkBody,
        takes_example={"at": 12, "workload": {"limit": 100}},
        answer=Forked,
        example=FORKED,
        status=201,
        text="The new run is recorded and will be executed.",
        also={200: "A run with this idempotency key already exists."},
        errors=(404, 409),
    ),
)
async def fork(execution_id: ExecutionId, request: Request) -> Response:
    """Start a new run from the state after an event of this run. Returns 409 if the state does not fit the playbook."""
    body = await body_of(request, ForkBody)
    return await forked(execution_id, request, ForkRequest(body.at, **_changes(body)))


def _changes(body: ForkBody) -> dict[str, Any]:
    return {
        "playbook": text_of(body.playbook),
        "file": body.file,
        "files": body.files,
        "workload": body.workload,
        "map": body.map,
        "idempotency_key": body.idempotency_key,
    }


def text_of(playbook: str | dict[str, Any]) -> str:
    """JSON is YAML, too."""
    return playbook if isinstance(playbook, str) else msgspec.json.encode(playbook).decode()


async def forked(execution_id: str, request: Request, asked: ForkRequest) -> Response:
    """The answer to a request for a run that continues from another."""
    found = await api_of(request).fork(execution_id, asked)
    where = f"/api/executions/{found.execution_id}"
    return answered(found, 201 if found.created else 200, {"Location": where})


@router.get(
    "/replay",
    dependencies=[allows(VIEW)],
    **documented(answer=ReplayCheck, example=ReplayCheck(examples.ID, ok=True, events=12, decisions=3, folded=0)),
)
async def replay(execution_id: ExecutionId, request: Request) -> Response:
    """Repeat every decision of the run's log and return the first difference."""
    return answered(await api_of(request).replay(execution_id))


@router.get(
    "/diff",
    dependencies=[allows(VIEW)],
    **documented(
        answer=RunsDiff,
        example=RunsDiff(
            examples.ID,
            examples.ID,
            None,
            [],
            [],
            more_values=False,
            durations=[{"step": "start", "a_ms": 12, "b_ms": 11}],
            net=None,
        ),
    ),
)
async def diff(
    execution_id: ExecutionId,
    request: Request,
    other: Annotated[str, Query(alias="with", description="The run to compare with", max_length=40)],
) -> Response:
    """Compare two runs: the first divergence and its cause, and differing steps, values and durations."""
    return answered(await api_of(request).diff(execution_id, other))


@router.get(
    "/lineage",
    dependencies=[allows(VIEW)],
    **documented(answer=Lineage, example=Lineage([examples.OPENLINEAGE])),
)
async def lineage(execution_id: ExecutionId, request: Request) -> Response:
    """Get the OpenLineage events (spec 2-0-2) of a run, for its playbook and its SQL, transfer, object and http
    tasks.
    """
    return answered(Lineage(await api_of(request).lineage(execution_id)))


@router.get(
    "/trace",
    dependencies=[allows(VIEW)],
    **documented(
        answer=Trace,
        example=Trace(
            examples.ID,
            "result",
            TraceNode("result", "result", 3, 24, sources=[TraceNode("workload", "workload.n", 3, 1)]),
        ),
    ),
)
async def trace(
    execution_id: ExecutionId,
    request: Request,
    value: Annotated[
        str, Query(description="The value to trace: `result.total`, `ctx.total`, `fetch.data`", max_length=1024)
    ],
) -> Response:
    """Trace a value back through templates, outcomes, items and called runs to its sources."""
    return answered(await api_of(request).trace(execution_id, value))


@router.get(
    "/export",
    dependencies=[allows(VIEW)],
    **documented(example="PK…", media=ARCHIVE, text="A ZIP archive with log, plan, playbook and stored results."),
)
async def export(execution_id: ExecutionId, request: Request) -> Response:
    """Export a run as a file for `POST /api/import` of another server or for `arclog import`."""
    chunks = api_of(request).export(execution_id)
    first = await anext(chunks)  # what is refused is refused before the answer begins
    headers = {"Content-Disposition": f'attachment; filename="{execution_id}.arclog"'}
    return StreamingResponse(_joined(first, chunks), 200, headers, ARCHIVE)


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


@playbooks.post(
    "/import",
    dependencies=[allows(BUILD)],
    **documented(
        answer=Imported,
        example=Imported(examples.ID, examples.RUN, events=12, results=0),
        status=201,
        text="The run is imported, read-only.",
        also={200: "The run was already imported."},
        errors=(409, 413),
    ),
)
async def import_run(request: Request) -> Response:
    """Import an exported run; the body is the file. Returns 409 if the run already exists with a different log."""
    body = await raw_body(request, "imports.max_bytes")
    with numbers_fit():
        found = await api_of(request).import_run(BytesIO(body))
    where = f"/api/executions/{found.execution_id}"
    return answered(found, 201 if found.created else 200, {"Location": where})


class SimulateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A playbook to run against recorded outcomes."""

    #: text of the playbook
    playbook: str | dict[str, Any]
    file: str = ""
    #: texts of the files that it names
    files: dict[str, str] = {}
    #: ids of the recorded runs, at most 1,000; empty: the latest of the playbook's path
    runs: list[str] = []
    #: how many of the latest runs
    last: int = 100
    #: laid over the workload of each run
    workload: dict[str, Any] = {}
    #: steps that have another name in the new playbook: old to new
    map: dict[str, str] = {}
    #: a call whose inputs or code were others has no answer
    strict: bool = False


@playbooks.post(
    "/simulate",
    dependencies=[allows(BUILD)],
    **documented(
        takes=SimulateBody,
        takes_example={"playbook": "metadata: {name: hello}\n…", "runs": [examples.ID]},
        answer=SimulationReport,
        example=SimulationReport(
            ok=True,
            verdicts={"same": 1},
            steps=2,
            runs=[SimulatedRun(examples.ID, "same", "COMPLETED", "COMPLETED", 2, None, None, [], [])],
        ),
        errors=(404,),
    ),
)
async def simulate(request: Request) -> Response:
    """Run a playbook against the recorded outcomes of runs, and report which runs would have taken another path, and
    where.
    """
    body = await body_of(request, SimulateBody)
    asked = {name: getattr(body, name) for name in SimulateBody.__struct_fields__}
    return answered(await api_of(request).simulate(SimulateRequest(**{**asked, "playbook": text_of(body.playbook)})))


@playbooks.get(
    "/stats",
    dependencies=[allows(VIEW)],
    **documented(
        answer=PlaybookStats,
        example=PlaybookStats(
            "examples/hello",
            runs=2,
            states={"COMPLETED": 2},
            success_rate=1.0,
            p50_ms=12,
            p95_ms=14,
            steps=[],
            days=[{"day": "2026-01-31", "runs": 2, "failed": 0, "p50_ms": 12}],
        ),
    ),
)
async def stats(
    request: Request,
    path: Annotated[str, Query(description="The playbook's catalog path", max_length=1024)],
    since: Annotated[
        str, Query(description="Only runs requested at or after this time (RFC 3339)", max_length=64)
    ] = "",
    limit: Limit = 200,
) -> Response:
    """Get statistics of a playbook's latest runs: success rate and durations of runs and steps, by day."""
    return answered(await api_of(request).stats(path, since=since, limit=limit))
