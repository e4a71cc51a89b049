"""Events of all runs: what other executors, projectors and workers have to say of a run, and finding them again."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.dialects.names import asked_for, canonical_types
from arclog.dialects.rendering import Rendered
from arclog.dialects.schemas import SCHEMAS
from arclog.model.errors import ArclogError
from arclog.ports.ingest import Taken
from arclog.ports.views.api import EventsFound
from arclog.server.auth.access import PRODUCE, VIEW, allows, api_of, principal_of, services_of
from arclog.server.auth.audit import DENIALS
from arclog.server.bodies import answered, body_of
from arclog.server.openapi import examples
from arclog.server.openapi.params import Limit, Types
from arclog.server.openapi.schemas import documented
from arclog.server.problems import status_of, title_of
from arclog.server.streams.events import check_names

router = APIRouter(prefix="/api/events", tags=["events"])


def _schema(name: str) -> dict[str, Any]:
    """A published schema, as a part of the OpenAPI document."""
    return {key: value for key, value in SCHEMAS[name][1]().items() if key != "$schema"}


class Item(Struct, frozen=True, omit_defaults=True):
    """What became of one event of a batch."""

    index: int
    #: as in HTTP: 200, or why it was not taken
    status: int
    event: Taken | None = None
    title: str = ""
    detail: str = ""


class BatchAnswer(Struct, frozen=True):
    accepted: int
    refused: int
    #: in the order of the batch
    results: list[Item]


_SENT = {
    "execution_id": "320816801799016448",
    "event_id": "320816801799016900",
    "event_type": "call.done",
    "step": "load",
}
_TAKEN = Taken("320816801799016448", "320816801799016900", "task.done", 12, informative=True)


@router.post(
    "",
    dependencies=[allows(PRODUCE)],
    **documented(
        answer=Taken,
        example=_TAKEN,
        text="The event is recorded. Sending the same event again returns its first seq.",
        takes=_schema("wire-request"),
        takes_example=_SENT,
        errors=(404, 409),
    ),
)
async def post_event(request: Request) -> Response:
    """Record an event. Accepts names of any dialect, ids as integers or strings, and the fields `name`, `node_name`
    and `context`.
    """
    body = await body_of(request, Any)
    return answered(await services_of(request).ingest.event(body, principal_of(request)))


@router.post(
    "/batch",
    dependencies=[allows(PRODUCE)],
    **documented(
        answer=BatchAnswer,
        example=BatchAnswer(1, 0, [Item(0, 200, _TAKEN)]),
        text="One result for each event, in order.",
        takes=_schema("wire-batch"),
        takes_example={"execution_id": _SENT["execution_id"], "events": [{"event_type": "batch.completed"}]},
        errors=(),
    ),
)
async def post_batch(request: Request) -> Response:
    """Record several events. `execution_id` and `worker_id` are defaults for events without their own."""
    body = await body_of(request, Any)
    services, caller = services_of(request), principal_of(request)
    answers = await services.ingest.batch(body, caller)
    denied = [answer for answer in answers if isinstance(answer, DENIALS)]
    if denied:
        await services.audit.note(request, caller, "denied", f"{len(denied)} of {len(answers)} events: {denied[0]}")
    results = [_item(index, answer) for index, answer in enumerate(answers)]
    accepted = sum(one.status == 200 for one in results)
    return answered(BatchAnswer(accepted, len(results) - accepted, results))


@router.get(
    "",
    dependencies=[allows(VIEW)],
    **documented(
        answer=EventsFound, example=EventsFound([examples.EVENT], "m1765000000000000-1-9", more=False), errors=()
    ),
)
async def search(
    request: Request,
    types: Types = [],  # noqa: B006 - FastAPI copies it
    since: Annotated[str, Query(description="Stored at or after this time (RFC 3339)", max_length=64)] = "",
    until: Annotated[str, Query(description="Stored before this time (RFC 3339)", max_length=64)] = "",
    entity: Annotated[
        str,
        Query(
            description="Only events about this type of entity, or about one entity: `step`, `step:load`",
            max_length=700,
        ),
    ] = "",
    where: Annotated[
        str,
        Query(description="Only events that match this expression over the envelope's fields", max_length=4000),
    ] = "",
    informative: Annotated[bool, Query(description="Include informative events")] = False,
    cursor: Annotated[str, Query(description="`next` of the previous page", max_length=100)] = "",
    limit: Limit = 100,
) -> Response:
    """Search the events of all runs that the caller can see, oldest first. While `more` is true, a page may have
    fewer events than `limit`, or none: repeat the request with `next` as the `cursor`.
    """
    check_names(types)
    found = await api_of(request).search(
        types=canonical_types(types),
        since=since,
        until=until,
        entity=entity,
        where=where,
        informative=informative,
        cursor=cursor,
        limit=limit,
    )
    # A name can stand for a type with some of its statuses only.
    kept = [one for one in found.events if not types or asked_for(Rendered(one["event_type"], one, one), types)]
    return answered(EventsFound(kept, found.next, found.more))


def _item(index: int, answer: Taken | ArclogError) -> Item:
    if isinstance(answer, Taken):
        return Item(index, 200, answer)
    return Item(index, status_of(answer), title=title_of(answer), detail=str(answer))
