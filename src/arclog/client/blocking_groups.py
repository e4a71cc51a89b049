"""What a blocking client has beside its runs: schedules, keys, the audit and credentials. Each call is that of the port."""

from __future__ import annotations

import builtins
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

from arclog.client.asynchronous import AsyncClient
from arclog.ports.secrets import SecretInfo
from arclog.ports.storage.access import Audited, KeyMade, KeyShown, NewKey
from arclog.ports.storage.schedules import NewSchedule, ScheduleView

T = TypeVar("T")


class Done(Protocol):
    """Carries a call to its end."""

    def __call__(self, work: Coroutine[Any, Any, T], /) -> T: ...


class _Group:
    def __init__(self, client: AsyncClient, done: Done) -> None:
        self._client = client
        self._done = done


class Schedules(_Group):
    """See `ports.schedules.ScheduleApi`."""

    def add(self, new: NewSchedule) -> ScheduleView:
        return self._done(self._client.schedules.add(new))

    def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ScheduleView]:
        return self._done(self._client.schedules.list(after=after, limit=limit))

    def upcoming(self, *, limit: int = 20) -> builtins.list[ScheduleView]:
        return self._done(self._client.schedules.upcoming(limit=limit))

    def show(self, name: str) -> ScheduleView:
        return self._done(self._client.schedules.show(name))

    def pause(self, name: str) -> ScheduleView:
        return self._done(self._client.schedules.pause(name))

    def resume(self, name: str) -> ScheduleView:
        return self._done(self._client.schedules.resume(name))

    def remove(self, name: str) -> None:
        self._done(self._client.schedules.remove(name))

    def backfill(self, name: str, first: str, last: str) -> builtins.list[str]:
        return self._done(self._client.schedules.backfill(name, first, last))


class Keys(_Group):
    """See `ports.access.KeyApi`."""

    def create(self, new: NewKey) -> KeyMade:
        return self._done(self._client.keys.create(new))

    def list(self) -> builtins.list[KeyShown]:
        return self._done(self._client.keys.list())

    def revoke(self, key_id: str) -> KeyShown:
        return self._done(self._client.keys.revoke(key_id))


class Audits(_Group):
    """See `ports.access.AuditApi`."""

    def page(self, *, decision: str = "", before: int = 0, limit: int = 100) -> builtins.list[Audited]:
        return self._done(self._client.audits.page(decision=decision, before=before, limit=limit))


class Credentials(_Group):
    """See `ports.secrets.CredentialApi`."""

    def put(self, name: str, value: str, scope: str = "") -> SecretInfo:
        return self._done(self._client.credentials.put(name, value, scope))

    def list(self) -> builtins.list[SecretInfo]:
        return self._done(self._client.credentials.list())

    def remove(self, name: str, scope: str = "") -> str:
        return self._done(self._client.credentials.remove(name, scope))
