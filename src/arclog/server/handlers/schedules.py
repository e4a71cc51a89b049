"""Handlers of `operations.schedules`."""

from __future__ import annotations

from arclog.operations import schedules as ops
from arclog.operations.operation import ByName
from arclog.ports.storage.schedules import NewSchedule, ScheduleView
from arclog.server.call import Call
from arclog.server.dispatch import handles


@handles(ops.LIST)
async def list_schedules(call: Call, request: ops.ListSchedules) -> ops.Schedules:
    schedules = call.workspace.schedules
    if request.order == "next":
        return ops.Schedules(await schedules.upcoming(limit=request.limit), None)
    page = await schedules.list(after=request.after, limit=request.limit + 1)
    more = page[request.limit - 1].name if len(page) > request.limit else None
    return ops.Schedules(page[: request.limit], more)


@handles(ops.ADD)
async def add(call: Call, body: NewSchedule) -> ScheduleView:
    return await call.workspace.schedules.add(body)


@handles(ops.SHOW)
async def show(call: Call, request: ByName) -> ScheduleView:
    return await call.workspace.schedules.show(request.name)


@handles(ops.REMOVE)
async def remove(call: Call, request: ByName) -> None:
    await call.workspace.schedules.remove(request.name)


@handles(ops.PAUSE)
async def pause(call: Call, request: ByName) -> ScheduleView:
    return await call.workspace.schedules.pause(request.name)


@handles(ops.RESUME)
async def resume(call: Call, request: ByName) -> ScheduleView:
    return await call.workspace.schedules.resume(request.name)


@handles(ops.BACKFILL)
async def backfill(call: Call, request: ByName, body: ops.Backfill) -> ops.Queued:
    return ops.Queued(await call.workspace.schedules.backfill(request.name, body.first, body.last))
