"""Records of content outside the log: which execution stored it, and how long it is kept.

Records come from `result.stored` events, in their append; see the rules in `ports.storage.store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct


class ResultRecord(Struct, frozen=True):
    """Content that an execution stored outside the log."""

    execution_id: int
    name: str
    sha256: str
    bytes: int
    #: number of items of a list; otherwise None
    rows: int | None
    content_type: str
    tenant: str
    #: step | execution | workflow | permanent
    scope: str
    #: when its event was persisted
    stored_at: int
    #: stored_at + its ttl; None without one
    expires_at: int | None
    step: str
    run: int
    task: str
    #: sequence number of its event
    seq: int
    #: when gc released it; None while it is kept
    removed_at: int | None = None


class StoredResultBook(Protocol):
    """Durable records of stored content."""

    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        """Return the record of an execution's result with this name and content, even if it has been removed."""

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        """Return the results that an execution stored, in order of their events, after the event with that seq."""

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        """Return results of all executions that were not removed.

        In order of (execution_id, name, sha256), after that one.
        """

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        """Return results of a tenant that refer to this content and were not removed.

        In order of (execution_id, name), after that one.
        """

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        """Mark results as released, except those that were stored again in the meantime. Returns the number marked."""
