"""Stored results: list, describe, read and remove the data of runs that is stored outside the log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from arclog.operations import examples
from arclog.operations.operation import ADMIN, OCTETS, VIEW, Count, ExecutionId, Limit, Operation
from arclog.ports.views.api import Collected, StoredResult

_TAG = "results"


class ResultPage(Struct, frozen=True):
    """A page of the stored results of a run."""

    results: list[StoredResult]
    #: the `after` of the next page
    next: int


class CollectBody(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a garbage collection."""

    #: only report what would be removed
    dry_run: bool = False


class ListResults(Struct, frozen=True, omit_defaults=True):
    execution_id: ExecutionId
    after: Annotated[Count, Meta(description="Only results after this seq")] = 0
    limit: Limit = 1000


class ByRef(Struct, frozen=True):
    ref: Annotated[
        str, Meta(description="Reference of the result: noetl://execution/…", examples=[examples.REF], max_length=2000)
    ]


LIST = Operation(
    name="results.results",
    method="GET",
    path="/api/executions/{execution_id}/results",
    access=VIEW,
    tag=_TAG,
    text="List the stored results of a run, in the order of their events.",
    params=ListResults,
    answer=ResultPage,
    example=ResultPage([examples.STORED], 9),
)
DESCRIBE = Operation(
    name="results.described",
    method="GET",
    path="/api/result",
    access=VIEW,
    tag=_TAG,
    text="Describe a stored result.",
    params=ByRef,
    answer=StoredResult,
    example=examples.STORED,
)
RESOLVE: Operation[None] = Operation(
    name="results.resolve",
    method="GET",
    path="/api/result/resolve",
    access=VIEW,
    tag=_TAG,
    text="Get the content of a stored result. `Range: bytes=A-B` returns a part of it.",
    params=ByRef,
    example='{"id": 1}\n{"id": 2}\n',
    media=OCTETS,
    outcome="The content, with its stored media type.",
    also={206: "The requested range."},
    errors=(404, 413, 416),
)
COLLECT = Operation(
    name="results.collect",
    method="POST",
    path="/api/gc",
    access=ADMIN,
    tag=_TAG,
    text="Remove stored results that are no longer needed: those of the caller's tenant, or of all tenants for an admin\nof the server's own tenant.",
    takes=CollectBody,
    takes_example={"dry_run": True},
    answer=Collected,
    example=Collected(True, 3, 2, 120_000, 0),
    errors=(),
    tenant_wide=True,
    repeatable=True,
)
