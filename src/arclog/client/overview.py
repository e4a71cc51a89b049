"""The part of `ports.views.api` that looks at many runs at once, over HTTP."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from arclog.ports.views.overview import Activity, ApprovalPage, Failing, Lease, RunPage, RunQuery, Stuck

T = TypeVar("T")


class _Failing(msgspec.Struct, frozen=True):
    playbooks: builtins.list[Failing]


class _Stuck(msgspec.Struct, frozen=True):
    runs: builtins.list[Stuck]


class _Leases(msgspec.Struct, frozen=True):
    leases: builtins.list[Lease]


class _Runs(msgspec.Struct, frozen=True, rename={"runs": "executions"}):
    runs: builtins.list[Any]
    next: str | None


class RemoteOverview:
    """Searches, activity, and what needs attention."""

    async def find(self, query: RunQuery) -> RunPage:
        params = msgspec.structs.asdict(query)
        params.update(state=builtins.list(params.pop("states")), q=params.pop("text"))
        found = await self._got("/api/executions", _Runs, params)
        return msgspec.convert({"runs": found.runs, "next": found.next}, RunPage)

    async def activity(self, *, hours: int = 24) -> Activity:
        return await self._got("/api/activity", Activity, {"hours": hours})

    async def failing(self, *, limit: int = 20) -> builtins.list[Failing]:
        return (await self._got("/api/failing", _Failing, {"limit": limit})).playbooks

    async def stuck(self, *, limit: int = 20) -> builtins.list[Stuck]:
        return (await self._got("/api/stuck", _Stuck, {"limit": limit})).runs

    async def leases(self, *, limit: int = 100) -> builtins.list[Lease]:
        return (await self._got("/api/leases", _Leases, {"limit": limit})).leases

    async def approvals(self, *, after: str = "", limit: int = 50) -> ApprovalPage:
        return await self._got("/api/approvals", ApprovalPage, {"after": after, "limit": limit})

    async def _got(self, path: str, kind: type[T], params: Mapping[str, Any] | None = None) -> T:
        raise NotImplementedError
