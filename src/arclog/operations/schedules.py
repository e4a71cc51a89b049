"""Schedules: the times at which playbooks run."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from arclog.operations.operation import BUILD, OPERATE, VIEW, ByName, Operation
from arclog.ports.storage.schedules import NewSchedule, ScheduleView

_TAG = "schedules"

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
    """A page of schedules."""

    schedules: list[ScheduleView]
    #: the `after` of the next page; None if there is none
    next: str | None


class Backfill(Struct, frozen=True, forbid_unknown_fields=True, rename={"first": "from", "last": "to"}):
    """A past period, both ends included (RFC 3339)."""

    first: str
    last: str


class Queued(Struct, frozen=True):
    """The queued times, oldest first. Times that have already run are not repeated."""

    queued: list[str]


class ListSchedules(Struct, frozen=True, omit_defaults=True):
    after: Annotated[str, Meta(description="Only schedules after this name")] = ""
    limit: Annotated[int, Meta(description="Maximum number of items", ge=1, le=1000)] = 100
    order: Annotated[
        str,
        Meta(
            description="`name`, or `next` for the order of their next times, without paging", pattern="^(name|next)$"
        ),
    ] = "name"


LIST = Operation(
    name="schedules.listed",
    method="GET",
    path="/api/schedules",
    access=VIEW,
    tag=_TAG,
    text="List schedules, ordered by name or by their next time.",
    params=ListSchedules,
    answer=Schedules,
    example=Schedules([_VIEW], None),
)
ADD = Operation(
    name="schedules.add",
    method="POST",
    path="/api/schedules",
    access=BUILD,
    tag=_TAG,
    text="Create or replace a schedule.",
    takes=NewSchedule,
    takes_example=_NEW,
    answer=ScheduleView,
    example=_VIEW,
    status=201,
    errors=(404, 409),
)
SHOW = Operation(
    name="schedules.show",
    method="GET",
    path="/api/schedules/{name}",
    access=VIEW,
    tag=_TAG,
    text="Get a schedule.",
    params=ByName,
    answer=ScheduleView,
    example=_VIEW,
)
REMOVE: Operation[None] = Operation(
    name="schedules.remove",
    method="DELETE",
    path="/api/schedules/{name}",
    access=BUILD,
    tag=_TAG,
    text="Remove a schedule.",
    params=ByName,
    status=204,
    outcome="The schedule is removed. Its runs are kept.",
)
PAUSE = Operation(
    name="schedules.pause",
    method="POST",
    path="/api/schedules/{name}/pause",
    access=OPERATE,
    tag=_TAG,
    text="Pause a schedule until it is resumed.",
    params=ByName,
    answer=ScheduleView,
    example=_VIEW,
    errors=(404, 409),
    repeatable=True,
)
RESUME = Operation(
    name="schedules.resume",
    method="POST",
    path="/api/schedules/{name}/resume",
    access=OPERATE,
    tag=_TAG,
    text="Resume a schedule. It continues with its next time.",
    params=ByName,
    answer=ScheduleView,
    example=_VIEW,
    errors=(404, 409),
    repeatable=True,
)
BACKFILL = Operation(
    name="schedules.backfill",
    method="POST",
    path="/api/schedules/{name}/backfill",
    access=OPERATE,
    tag=_TAG,
    text="Queue the times of a past period. They run one after the other.",
    params=ByName,
    takes=Backfill,
    takes_example={"from": "2026-02-01T00:00:00Z", "to": "2026-02-02T00:00:00Z"},
    answer=Queued,
    example=Queued(["2026-02-01T05:00:00.000000Z"]),
    status=202,
    errors=(404, 409),
    repeatable=True,
)
