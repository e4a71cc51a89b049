"""What a task stores its result with, and reads stored inputs through."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from arclog.model.refs import LIST, ResultRef, parse_ref
from arclog.ports.results import Results, ResultWriter
from arclog.worker.data.fetching import Fetching

_ITEMS_AT_A_TIME = 1000


class TaskResults:
    """The result sink of one task attempt."""

    def __init__(self, results: Results, tenant: str, inline_max_bytes: int) -> None:
        self.inline_max_bytes = inline_max_bytes
        self._results = results
        self._tenant = tenant
        self._fetching = Fetching(results, tenant)

    def writer(self, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        return self._results.writer(self._tenant, listed=listed, content_type=content_type)

    def read(self, ref: ResultRef) -> AsyncIterator[bytes]:
        return self._fetching.chunks(ref.as_dict(), parse_ref(ref.ref).sha256)

    async def read_items(self, ref: ResultRef) -> AsyncIterator[list[Any]]:
        if ref.kind != LIST:
            raise TypeError(f"{ref.ref} is not a list")
        known, sha256 = ref.as_dict(), parse_ref(ref.ref).sha256
        at = 0
        while at < (ref.meta.rows or 0):
            yield await self._fetching.items(known, sha256, at, at + _ITEMS_AT_A_TIME)
            at += _ITEMS_AT_A_TIME
