"""Schedules: which playbook runs when."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from arclog.model.errors import NotFound
from arclog.ports.storage.schedules import NewSchedule, ScheduleApi, ScheduleView
from arclog.server.auth.access import BUILD, OPERATE, VIEW, allows, principal_of, services_of
from arclog.server.bodies import answered, body_of
from arclog.server.openapi.schemas import documented

router = APIRouter(prefix="/api/schedules", tags=["schedules"])

_NEW = NewSchedule("nightly", "0 6 * * *", "examples/hello", "Europe/Berlin", workload={"depth": 2})
_VIEW = ScheduleView(
    name="nightly",
    cron="0 6 * * *",
    tz="Europe/Berlin",
    path="examples/hello",
    version=0,
    workload={"depth": 2},
    catch_up="last",
    overlap="skip",
    paused=False,
    created_at="2026-03-01T12:00:00.000000Z",
    next_due="2026-03-02T05:00:00.000000Z",
    queued=[],
    last_due=None,
    last_execution=None,
    skipped=0,
    note="",
)


class Schedules(Struct, frozen=True):
    schedules: list[ScheduleView]
    #: ask for `?after=` this to read on; None: there are no more
    next: str | None


class Backfill(Struct, frozen=True, forbid_unknown_fields=True, rename={"first": "from", "last": "to"}):
    """A span of time that has been, both ends included; RFC 3339."""

    first: str
    last: str


class Queued(Struct, frozen=True):
    """The times that will run, oldest first; those that have run already start nothing."""

    queued: list[str]


def _schedules(request: Request) -> ScheduleApi:
    found = services_of(request).schedules
    if found is None:
        raise NotFound("schedules are not available on this server")
    return found(principal_of(request))


@router.get("", dependencies=[allows(VIEW)], **documented(answer=Schedules, example=Schedules([_VIEW], None)))
async def listed(
    request: Request,
    after: str = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    order: Annotated[
        str, Query(description="`next`: schedules ordered by their next time, without paging", pattern="^(name|next)$")
    ] = "name",
) -> Response:
    """List schedules by name or by their next time."""
    if order == "next":
        return answered(Schedules(await _schedules(request).upcoming(limit=limit), None))
    found = await _schedules(request).list(after=after, limit=limit + 1)
    more = found[limit - 1].name if len(found) > limit else None
    return answered(Schedules(found[:limit], more))


@router.post(
    "",
    dependencies=[allows(BUILD)],
    **documented(
        answer=ScheduleView, example=_VIEW, status=201, takes=NewSchedule, takes_example=_NEW, errors=(404, 409)
    ),
)
async def add(request: Request) -> Response:
    """Create or replace a schedule."""
    return answered(await _schedules(request).add(await body_of(request, NewSchedule)), 201)


@router.get("/{name}", dependencies=[allows(VIEW)], **documented(answer=ScheduleView, example=_VIEW))
async def show(name: str, request: Request) -> Response:
    """Get a schedule."""
    return answered(await _schedules(request).show(name))


@router.delete("/{name}", dependencies=[allows(BUILD)], **documented(status=204, text="Removed. Its runs are kept."))
async def remove(name: str, request: Request) -> Response:
    """Remove a schedule."""
    await _schedules(request).remove(name)
    return Response(status_code=204)


@router.post(
    "/{name}/pause", dependencies=[allows(OPERATE)], **documented(answer=ScheduleView, example=_VIEW, errors=(404, 409))
)
async def pause(name: str, request: Request) -> Response:
    """Pause a schedule until it is resumed."""
    return answered(await _schedules(request).pause(name))


@router.post(
    "/{name}/resume",
    dependencies=[allows(OPERATE)],
    **documented(answer=ScheduleView, example=_VIEW, errors=(404, 409)),
)
async def resume(name: str, request: Request) -> Response:
    """Resume a schedule with its next time."""
    return answered(await _schedules(request).resume(name))


@router.post(
    "/{name}/backfill",
    dependencies=[allows(OPERATE)],
    **documented(
        answer=Queued,
        example=Queued(["2026-02-01T05:00:00.000000Z"]),
        status=202,
        takes=Backfill,
        takes_example={"from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00Z"},
        errors=(404, 409),
    ),
)
async def backfill(name: str, request: Request) -> Response:
    """Run a schedule for a past period, one time after the other."""
    span = await body_of(request, Backfill)
    return answered(Queued(await _schedules(request).backfill(name, span.first, span.last)), 202)
