"""What result stores of packed parts have in common: writing through a sink, reading what is opened."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from arclog.model.config.settings import Settings
from arclog.ports.results import ResultWriter
from arclog.results.opened import ItemReader, Known, Opened, read_chunks
from arclog.results.packing import Behind, PackingWriter, Sink, limits_of
from arclog.results.threads import Threads


class PartedResults(ABC):
    """Half of `ports.results.Results`. A subclass opens, and gives sinks."""

    def __init__(self, settings: Settings, threads: Threads | None = None) -> None:
        self._limits = limits_of(settings)
        self._threads = threads or Threads()
        self._behind = Behind()
        self._items = ItemReader(self._threads)

    @abstractmethod
    def _sink(self, tenant: str, *, listed: bool) -> Sink:
        """Where the parts of new content go."""

    @abstractmethod
    async def _open(self, tenant: str, sha256: str, known: Known) -> Opened:
        """Open stored content; its index need not be read when it is known. Raises ResultUnavailable."""

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> ResultWriter:
        sink = self._sink(tenant, listed=listed)
        return PackingWriter(sink, self._threads, self._behind, self._limits, listed=listed, content_type=content_type)

    def chunks(self, tenant: str, sha256: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return read_chunks(lambda known: self._open(tenant, sha256, known), self._threads, sha256, start, end)

    async def items(self, tenant: str, sha256: str, first: int, last: int) -> list[Any]:
        return await self._items.read(lambda known: self._open(tenant, sha256, known), first, last)

    async def close(self) -> None:
        await self._behind.settle()
        await self._threads.close()
