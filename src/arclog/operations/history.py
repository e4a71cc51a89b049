"""Recorded runs: continue one in a new run, check one against the current code, compare two, export and import."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from arclog.operations import examples
from arclog.operations.operation import (
    BUILD,
    BY_HANDLER,
    OPERATE,
    VIEW,
    ExecutionId,
    Limit,
    OfExecution,
    Operation,
)
from arclog.ports.views.api import Forked, Origin, PlaybookStats, ReplayCheck, RunsDiff
from arclog.ports.views.history import Imported, Lineage, SimulatedRun, SimulationReport, Trace, TraceNode

ARCHIVE = "application/zip"

_TAG = "history"
#: Additional time for a server that reads whole logs for a response.
_LONG_S = 120.0


class ForkBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a new run that continues from the state after an event."""

    #: seq of the event
    at: int
    #: text of the playbook to continue with; empty means the run's own
    playbook: str | dict[str, Any] = ""
    file: str = ""
    #: texts of playbooks that are called by file
    files: dict[str, str] = {}
    #: merged over the run's workload
    workload: dict[str, Any] = {}
    #: steps that have another name in the new playbook: old to new
    map: dict[str, str] = {}
    #: a request with the same key returns the same run
    idempotency_key: str = ""


class SimulateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """A playbook to run against recorded outcomes."""

    #: text of the playbook
    playbook: str | dict[str, Any]
    file: str = ""
    #: texts of the files that it names
    files: dict[str, str] = {}
    #: ids of the recorded runs, at most 1,000; empty: the latest of the playbook's path
    runs: list[str] = []
    #: number of latest runs, if `runs` is empty
    last: int = 100
    #: merged over the workload of each run
    workload: dict[str, Any] = {}
    #: steps that have another name in the new playbook: old to new
    map: dict[str, str] = {}
    #: whether a recorded outcome is used only if the inputs and the code of the call are the same
    strict: bool = False


class DiffWith(Struct, frozen=True, rename={"other": "with"}):
    execution_id: ExecutionId
    other: Annotated[str, Meta(description="The run to compare with", max_length=40)]


class TraceValue(Struct, frozen=True):
    execution_id: ExecutionId
    value: Annotated[
        str, Meta(description="The value to trace: `result.total`, `ctx.total`, `fetch.data`", max_length=1024)
    ]


class StatsOf(Struct, frozen=True, omit_defaults=True):
    path: Annotated[str, Meta(description="The playbook's catalog path", max_length=1024)]
    since: Annotated[str, Meta(description="Only runs requested at or after this time (RFC 3339)", max_length=64)] = ""
    limit: Limit = 200


FORK = Operation(
    name="history.fork",
    method="POST",
    path="/api/executions/{execution_id}/fork",
    access=OPERATE,
    tag=_TAG,
    text="Start a new run from the state after an event of this run. Returns 409 if the playbook cannot continue from that state.",
    params=OfExecution,
    takes=ForkBody,
    takes_example={"at": 12, "workload": {"limit": 100}},
    answer=Forked,
    example=Forked(examples.ID, examples.RUN, Origin(examples.ID, 12, "fork", 10)),
    status=201,
    outcome="The new run is recorded and will start.",
    also={200: "A run with this idempotency key already exists."},
    errors=(404, 409),
    repeatable=True,
)
REPLAY = Operation(
    name="history.replay",
    method="GET",
    path="/api/executions/{execution_id}/replay",
    access=VIEW,
    tag=_TAG,
    text="Replay the run's log: repeat every recorded decision with the current code, and return the first difference.",
    params=OfExecution,
    answer=ReplayCheck,
    example=ReplayCheck(examples.ID, ok=True, events=12, decisions=3, folded=0),
    extra_s=_LONG_S,
)
DIFF = Operation(
    name="history.diff",
    method="GET",
    path="/api/executions/{execution_id}/diff",
    access=VIEW,
    tag=_TAG,
    text="Compare two runs: the first difference and its cause, and the steps, values and durations that differ.",
    params=DiffWith,
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
    extra_s=_LONG_S,
)
LINEAGE = Operation(
    name="history.lineage",
    method="GET",
    path="/api/executions/{execution_id}/lineage",
    access=VIEW,
    tag=_TAG,
    text="Get the OpenLineage events (spec 2-0-2) of a run, for its playbook and its SQL, transfer, object and http\ntasks.",
    params=OfExecution,
    answer=Lineage,
    example=Lineage([examples.OPENLINEAGE]),
    extra_s=_LONG_S,
)
TRACE = Operation(
    name="history.trace",
    method="GET",
    path="/api/executions/{execution_id}/trace",
    access=VIEW,
    tag=_TAG,
    text="Trace a value back through templates, outcomes, items and called runs to its sources.",
    params=TraceValue,
    answer=Trace,
    example=Trace(
        examples.ID,
        "result",
        TraceNode("result", "result", 3, 24, sources=[TraceNode("workload", "workload.n", 3, 1)]),
    ),
    extra_s=_LONG_S,
)
EXPORT: Operation[None] = Operation(
    name="history.export",
    method="GET",
    path="/api/executions/{execution_id}/export",
    access=VIEW,
    tag=_TAG,
    text="Export a run as a file for `POST /api/import` of another server or for `arclog import`.",
    params=OfExecution,
    example="PK…",
    media=ARCHIVE,
    outcome="A ZIP archive with log, plan, playbook and stored results.",
)
IMPORT = Operation(
    name="history.import_run",
    method="POST",
    path="/api/import",
    access=BUILD,
    tag=_TAG,
    text="Import an exported run; the body is the file. Returns 409 if the run already exists with a different log.",
    reading=BY_HANDLER,
    limit="imports.max_bytes",
    answer=Imported,
    example=Imported(examples.ID, examples.RUN, events=12, results=0),
    status=201,
    outcome="The run is imported. It is read-only.",
    also={200: "The run was already imported."},
    errors=(409, 413),
    repeatable=True,
    extra_s=_LONG_S,
)
SIMULATE = Operation(
    name="history.simulate",
    method="POST",
    path="/api/simulate",
    access=BUILD,
    tag=_TAG,
    text="Simulate a playbook with the recorded outcomes of runs. Returns the runs that would have taken another path, and the\nplace of the first difference.",
    takes=SimulateBody,
    takes_example={"playbook": "metadata: {name: hello}\n…", "runs": [examples.ID]},
    answer=SimulationReport,
    example=SimulationReport(
        ok=True,
        verdicts={"same": 1},
        steps=2,
        runs=[SimulatedRun(examples.ID, "same", "COMPLETED", "COMPLETED", 2, None, None, [], [])],
    ),
    repeatable=True,
    extra_s=_LONG_S,
)
STATS = Operation(
    name="history.stats",
    method="GET",
    path="/api/stats",
    access=VIEW,
    tag=_TAG,
    text="Get statistics of a playbook's latest runs: success rate and durations of runs and steps, by day.",
    params=StatsOf,
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
    extra_s=_LONG_S,
)
