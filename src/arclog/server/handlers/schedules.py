"""Handlers of `operations.schedules`."""

from __future__ import annotations

from arclog.operations import schedules as ops
from arclog.operations.operation import ByName
from arclog.ports.storage.schedules import NewSchedule, ScheduleView
from arclog.server.call import Call
from arclog.server.dispatch import handles


@handles(ops.LIST)
async def list_schedules(call: Call, asked: ops.ListSchedules) -> ops.Schedules:
    schedules = call.workspace.schedules
    if asked.order == "next":
        return ops.Schedules(await schedules.upcoming(limit=asked.limit), None)
    found = await schedules.list(after=asked.after, limit=asked.limit + 1)
    more = found[asked.limit - 1].name if len(found) > asked.limit else None
    return ops.Schedules(found[: asked.limit], more)


@handles(ops.ADD)
async def add(call: Call, body: NewSchedule) -> ScheduleView:
    return await call.workspace.schedules.add(body)


@handles(ops.SHOW)
async def show(call: Call, asked: ByName) -> ScheduleView:
    return await call.workspace.schedules.show(asked.name)


@handles(ops.REMOVE)
async def remove(call: Call, asked: ByName) -> None:
    await call.workspace.schedules.remove(asked.name)


@handles(ops.PAUSE)
async def pause(call: Call, asked: ByName) -> ScheduleView:
    return await call.workspace.schedules.pause(asked.name)


@handles(ops.RESUME)
async def resume(call: Call, asked: ByName) -> ScheduleView:
    return await call.workspace.schedules.resume(asked.name)


@handles(ops.BACKFILL)
async def backfill(call: Call, asked: ByName, body: ops.Backfill) -> ops.Queued:
    return ops.Queued(await call.workspace.schedules.backfill(asked.name, body.first, body.last))
