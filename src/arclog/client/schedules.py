"""`ports.storage.schedules` over HTTP."""

from __future__ import annotations

import builtins
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from arclog.client.connection import Connection
from arclog.model.errors import ServerUnavailable
from arclog.ports.storage.schedules import NewSchedule, ScheduleView

T = TypeVar("T")

_SCHEDULES = "/api/schedules"


class _Page(msgspec.Struct, frozen=True):
    schedules: builtins.list[ScheduleView]


class _Queued(msgspec.Struct, frozen=True):
    queued: builtins.list[str]


class RemoteSchedules:
    """Implements `ports.schedules.ScheduleApi` over a server's routes."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def add(self, new: NewSchedule) -> ScheduleView:
        # Not to be sent twice: the second would find the first there.
        return await self._asked("POST", _SCHEDULES, ScheduleView, new)

    async def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ScheduleView]:
        params = {"after": after, "limit": str(limit)}
        return _decoded(await self._connection.ask("GET", _SCHEDULES, params=params), _Page).schedules

    async def upcoming(self, *, limit: int = 20) -> builtins.list[ScheduleView]:
        params = {"order": "next", "limit": str(limit)}
        return _decoded(await self._connection.ask("GET", _SCHEDULES, params=params), _Page).schedules

    async def show(self, name: str) -> ScheduleView:
        return await self._asked("GET", _of(name), ScheduleView)

    async def pause(self, name: str) -> ScheduleView:
        return await self._asked("POST", _of(name, "pause"), ScheduleView, safe=True)

    async def resume(self, name: str) -> ScheduleView:
        return await self._asked("POST", _of(name, "resume"), ScheduleView, safe=True)

    async def remove(self, name: str) -> None:
        await self._connection.ask("DELETE", _of(name))

    async def backfill(self, name: str, first: str, last: str) -> builtins.list[str]:
        span = {"from": first, "to": last}
        # A time waits once, however often it is asked for.
        return (await self._asked("POST", _of(name, "backfill"), _Queued, span, safe=True)).queued

    async def _asked(self, method: str, path: str, kind: type[T], body: Any = None, safe: bool | None = None) -> T:
        encoded = None if body is None else msgspec.json.encode(body)
        return _decoded(await self._connection.ask(method, path, body=encoded, safe=safe), kind)


def _of(name: str, what: str = "") -> str:
    return f"{_SCHEDULES}/{quote(name, safe='')}" + (f"/{what}" if what else "")


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ServerUnavailable(
            f"the server's answer cannot be understood ({problem}); is it an arclog server of this version?"
        ) from None
