"""`ports.storage.schedules` over HTTP."""

from __future__ import annotations

import builtins

from arclog.client.calls import Caller
from arclog.operations import schedules as ops
from arclog.operations.operation import ByName
from arclog.ports.storage.schedules import NewSchedule, ScheduleView


class RemoteSchedules(Caller):
    """Implements `ports.schedules.ScheduleApi`."""

    async def add(self, new: NewSchedule) -> ScheduleView:
        return await self._call(ops.ADD, body=new)

    async def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ScheduleView]:
        return (await self._call(ops.LIST, ops.ListSchedules(after=after, limit=limit))).schedules

    async def upcoming(self, *, limit: int = 20) -> builtins.list[ScheduleView]:
        return (await self._call(ops.LIST, ops.ListSchedules(order="next", limit=limit))).schedules

    async def show(self, name: str) -> ScheduleView:
        return await self._call(ops.SHOW, ByName(name))

    async def pause(self, name: str) -> ScheduleView:
        return await self._call(ops.PAUSE, ByName(name))

    async def resume(self, name: str) -> ScheduleView:
        return await self._call(ops.RESUME, ByName(name))

    async def remove(self, name: str) -> None:
        await self._call(ops.REMOVE, ByName(name))

    async def backfill(self, name: str, first: str, last: str) -> builtins.list[str]:
        return (await self._call(ops.BACKFILL, ByName(name), ops.Backfill(first, last))).queued
