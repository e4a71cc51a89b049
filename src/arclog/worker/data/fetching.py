"""Reads stored content by reference. An error names the store if the content is in another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from arclog.model.errors import ResultStoreAway, ResultUnavailable
from arclog.model.refs import kept_elsewhere
from arclog.ports.results import Results


class Fetching:
    """Content of one tenant."""

    def __init__(self, results: Results, tenant: str) -> None:
        self._results = results
        self._tenant = tenant

    async def chunks(self, ref: Mapping[str, Any], sha256: str) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._results.chunks(self._tenant, sha256):
                yield chunk
        except ResultUnavailable as problem:
            raise self._meant(ref, problem) from problem

    async def items(self, ref: Mapping[str, Any], sha256: str, first: int, last: int) -> list[Any]:
        try:
            return await self._results.items(self._tenant, sha256, first, last)
        except ResultUnavailable as problem:
            raise self._meant(ref, problem) from problem

    def _meant(self, ref: Mapping[str, Any], problem: ResultUnavailable) -> ResultUnavailable:
        store = ref.get("store") or self._results.name
        if store == self._results.name or isinstance(problem, ResultStoreAway):
            return problem
        return kept_elsewhere(str(ref.get("ref")), store, self._results.name)
