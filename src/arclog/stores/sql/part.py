"""The base class of an SQL store's parts, which run named statements; see `queries.sql`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from arclog.ports.clock import Clock
from arclog.stores.rows import Codec

Rows = Sequence[Sequence[Any]]
#: a statement's name and its parameters
Call = tuple[str, Sequence[Any]]


class SqlPart(ABC):
    #: the database, for messages
    place: str
    _codec: Codec
    _clock: Clock

    @abstractmethod
    async def _look_up(self, name: str, *values: Any) -> Rows:
        """Read a few rows."""

    @abstractmethod
    async def _read(self, name: str, *values: Any) -> Rows:
        """Read a page."""

    @abstractmethod
    async def _list(self, name: str, *values: Any) -> Rows:
        """Read any number of rows. Look-ups and pages do not wait for it."""

    @abstractmethod
    async def _write(self, name: str, *values: Any) -> Rows:
        """Run a statement that changes rows. Return the rows of its RETURNING clause."""

    @abstractmethod
    async def _run(self, calls: Sequence[Call], *, again: bool = False) -> list[Rows]:
        """Run statements as one transaction. `again` means that it may be executed twice. Statements named `lock_…` are
        for databases with several writers.
        """

    @abstractmethod
    def _calls_for(self, name: str, kinds: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Call]:
        """Return the calls that run a statement for each of several rows, whose values come after `first`. `kinds` has
        one letter per column: i(nteger), t(ext), b(ytes).
        """

    @abstractmethod
    def _ints(self, values: Iterable[int]) -> Any:
        """Return a list of numbers as one parameter."""

    @abstractmethod
    def _texts(self, values: Iterable[str]) -> Any:
        """Return a list of texts as one parameter."""

    @abstractmethod
    async def time(self) -> int:
        """Return the time of the database."""

    async def _is_due(self, name: str, *values: Any) -> bool:  # noqa: ARG002
        """Return whether a periodic write has anything to do, if a read is cheaper than a write."""
        return True

    def _shown(self, text: str) -> str:
        """Return a text for people, without characters that the database cannot store."""
        return text
