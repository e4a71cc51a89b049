"""Runs: start, list and inspect them; lists of the runs that need attention."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from arclog.operations import examples
from arclog.operations.operation import (
    OPERATE,
    TEXT,
    VIEW,
    Count,
    ExecutionId,
    Limit,
    OfExecution,
    Operation,
)
from arclog.ports.views.api import ListedRun, Started, Status, Summary
from arclog.ports.views.insight import StateView, Why
from arclog.ports.views.overview import Activity, Approval, ApprovalPage, FailingPlaybook, Hour, Lease, StuckRun

_TAG = "executions"


class ExecuteBody(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request for a run: `path` (in the catalog) or `playbook` (YAML or JSON text, or the playbook itself as
    JSON).
    """

    path: str = ""
    #: version of the path; 0 or nothing means the newest
    version: int | str = 0
    playbook: str | dict[str, Any] = ""
    #: the source of the text, for messages
    file: str = ""
    #: texts of playbooks that are called by file
    files: dict[str, str] = {}
    workload: dict[str, Any] = {}
    #: project and environment, where they are not the caller's own
    scope: dict[str, str] = {}
    #: a request with the same key returns the same run
    idempotency_key: str = ""
    #: -100 to 100, instead of the playbook's priority: the highest of the tenant's commands come first
    priority: int | None = None


class Executions(Struct, frozen=True):
    """A page of runs, newest first."""

    executions: list[ListedRun]
    #: the `before` of the next page; null if there is none. A text search may return fewer than `limit` runs if it has
    #: examined as many as one request may (`overview.search_runs`)
    next: str | None


def _start(name: str, path: str, text: str) -> Operation[Started]:
    return Operation(
        name=name,
        method="POST",
        path=path,
        access=OPERATE,
        tag=_TAG,
        text=text,
        takes=ExecuteBody,
        takes_example={"path": "examples/hello", "workload": {"name": "Ada"}, "idempotency_key": "order-17"},
        yaml_field="playbook",
        yaml_example=examples.PLAYBOOK,
        answer=Started,
        example=Started(examples.ID, examples.RUN),
        status=201,
        outcome="The run is recorded and will start.",
        also={200: "A run with this idempotency key already exists."},
        errors=(404, 409),
        repeatable=True,
    )


START = _start(
    "executions.start",
    "/api/executions",
    "Start a run of a registered playbook (`path`) or of a playbook in the request. A body in YAML is the playbook\nitself.",
)
EXECUTE = _start("executions.execute", "/api/execute", "Same as POST /api/executions.")


class ListExecutions(Struct, frozen=True, omit_defaults=True):
    state: Annotated[list[str], Meta(description="Only runs in one of these states", max_length=10)] = []
    path: Annotated[str, Meta(description="Only runs of this catalog path")] = ""
    before: Annotated[str, Meta(description="Only runs older than this one")] = ""
    name: Annotated[str, Meta(description="Only runs whose playbook's name contains this", max_length=200)] = ""
    limit: Limit = 50
    q: Annotated[
        str, Meta(description="Only runs with this text in name, path, current step, error or ids", max_length=200)
    ] = ""
    since: Annotated[str, Meta(description="Only runs requested at or after this time (RFC 3339)", max_length=64)] = ""
    until: Annotated[str, Meta(description="Only runs requested before this time (RFC 3339)", max_length=64)] = ""
    level: Annotated[
        str,
        Meta(
            description="`top`: only runs not called by another run; `called`: only runs that were",
            pattern="^(top|called)?$",
        ),
    ] = ""
    parent: Annotated[str, Meta(description="Only runs called by this run", max_length=32)] = ""
    origin: Annotated[str, Meta(description="Only retries and forks of this run", max_length=32)] = ""


LIST = Operation(
    name="executions.list_executions",
    method="GET",
    path="/api/executions",
    access=VIEW,
    tag=_TAG,
    text="List runs, newest first. For the next page, send `next` as `before`.",
    params=ListExecutions,
    answer=Executions,
    example=Executions([examples.LISTED], examples.ID),
    errors=(),
)
DETAIL = Operation(
    name="executions.detail",
    method="GET",
    path="/api/executions/{execution_id}",
    access=VIEW,
    tag=_TAG,
    text="Get a run with its steps, ctx, result and error.",
    params=OfExecution,
    answer=Summary,
    example=examples.SUMMARY,
)
STATUS = Operation(
    name="executions.status",
    method="GET",
    path="/api/executions/{execution_id}/status",
    access=VIEW,
    tag=_TAG,
    text="Get the status of a run, without its steps and results.",
    params=OfExecution,
    answer=Status,
    example=examples.STATUS,
)
WHY = Operation(
    name="executions.why",
    method="GET",
    path="/api/executions/{execution_id}/why",
    access=VIEW,
    tag=_TAG,
    text="Explain what a run is waiting for, or why it ended.",
    params=OfExecution,
    answer=Why,
    example=examples.WHY,
)


class StateAt(Struct, frozen=True, omit_defaults=True):
    execution_id: ExecutionId
    at: Annotated[
        Count | None,
        Meta(
            description="seq of the event after which the state is computed; 0: before the first. Default: the latest"
        ),
    ] = None


STATE = Operation(
    name="executions.state_at",
    method="GET",
    path="/api/executions/{execution_id}/state",
    access=VIEW,
    tag=_TAG,
    text="Get the state of a run after any of its events.",
    params=StateAt,
    answer=StateView,
    example=examples.STATE,
)


class Graph(Struct, frozen=True, omit_defaults=True, rename={"form": "format"}):
    execution_id: ExecutionId
    form: Annotated[str, Meta(description="json, mermaid or text", pattern="^(json|mermaid|text)$")] = "json"


GRAPH = Operation(
    name="executions.graph",
    method="GET",
    path="/api/executions/{execution_id}/graph",
    access=VIEW,
    tag=_TAG,
    text="Get the plan of a run as data, as a Mermaid flowchart or as text.",
    params=Graph,
    answer=dict[str, Any],
    schema={"type": "object"},
    example={"name": "hello", "entry": "start", "steps": [{"step": "start"}]},
)
SOURCE: Operation[str] = Operation(
    name="executions.source",
    method="GET",
    path="/api/executions/{execution_id}/source",
    access=VIEW,
    tag=_TAG,
    text="Get the original text of the run's playbook.",
    params=OfExecution,
    example=examples.PLAYBOOK,
    media=TEXT,
)

# -- overview ----------------------------------------------------------------------------------------------------------

#: Each of them costs a fold of its run.
Few = Annotated[int, Meta(description="Maximum number of items", ge=1, le=100)]

_WHY = "step resize (run 1) waits for a worker of pool gpu that supports python; no worker of pool gpu has been seen"
_ACTIVITY = Activity("2026-01-01T04:00:00.000000Z", examples.AT, [Hour("2026-01-02T03:00:00.000000Z", 41, 2, 0)])
_FAILING = FailingPlaybook("examples/hello", "hello", 3, examples.AT, examples.LISTED)
_STUCK = StuckRun(examples.LISTED, "resize", "gpu", examples.AT, _WHY)
_LEASE = Lease(examples.LISTED, "resize", 1, (0, 0), "gpu", "gpu-7-1f3a", 1, examples.AT)
_APPROVAL = Approval(examples.LISTED, "ship#1/ask#1", "ship", "ask", "", "Ship order 17?", examples.AT, None)


class FailingPlaybooks(Struct, frozen=True):
    """Playbooks whose latest run failed."""

    #: latest failure first
    playbooks: list[FailingPlaybook]


class StuckRuns(Struct, frozen=True):
    """Runs with commands that no worker claims."""

    #: longest wait first
    runs: list[StuckRun]


class Leases(Struct, frozen=True):
    """Commands that workers have claimed."""

    #: the lease that ends first comes first
    leases: list[Lease]


class Hours(Struct, frozen=True, omit_defaults=True):
    hours: Annotated[int, Meta(description="Number of hours, including the current one", ge=1, le=8_784)] = 24


class ListFew(Struct, frozen=True, omit_defaults=True):
    limit: Few = 20


class ListLeases(Struct, frozen=True, omit_defaults=True):
    limit: Limit = 100


class ListApprovals(Struct, frozen=True, omit_defaults=True):
    after: Annotated[str, Meta(description="Only runs newer than this one", max_length=32)] = ""
    limit: Few = 50


ACTIVITY = Operation(
    name="overview.activity",
    method="GET",
    path="/api/activity",
    access=VIEW,
    tag="overview",
    text="Count ended runs by hour and state. Runs called by other runs are not counted.",
    params=Hours,
    answer=Activity,
    example=_ACTIVITY,
    errors=(),
)
FAILING = Operation(
    name="overview.failing",
    method="GET",
    path="/api/failing",
    access=VIEW,
    tag="overview",
    text="List playbooks whose latest finished run failed.",
    params=ListFew,
    answer=FailingPlaybooks,
    example=FailingPlaybooks([_FAILING]),
    errors=(),
)
STUCK = Operation(
    name="overview.stuck",
    method="GET",
    path="/api/stuck",
    access=VIEW,
    tag="overview",
    text="List runs with commands that no worker claims, one run for each pool and set of kinds.",
    params=ListFew,
    answer=StuckRuns,
    example=StuckRuns([_STUCK]),
    errors=(),
)
LEASES = Operation(
    name="overview.leases",
    method="GET",
    path="/api/leases",
    access=VIEW,
    tag="overview",
    text="List commands that workers have claimed, ordered by the end of their leases.",
    params=ListLeases,
    answer=Leases,
    example=Leases([_LEASE]),
    errors=(),
)
APPROVALS = Operation(
    name="overview.approvals",
    method="GET",
    path="/api/approvals",
    access=VIEW,
    tag="overview",
    text="List pending approvals. Send `key` as the `step` of the signal APPROVE or REJECT.",
    params=ListApprovals,
    answer=ApprovalPage,
    example=ApprovalPage([_APPROVAL], None),
    errors=(),
)
