"""Records of content outside the log: which execution stored it, and how long it is kept.

Records come from `result.stored` events, in the append that brings them; see the rules in `ports.storage.store`.
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
    #: items of a list; else None
    rows: int | None
    content_type: str
    tenant: str
    #: step | execution | workflow | permanent
    scope: str
    #: when its event was persisted
    stored_at: int
    #: stored_at + the ttl that it was given; None without one
    expires_at: int | None
    step: str
    run: int
    task: str
    #: its event
    seq: int
    #: when gc release it; None while it is kept
    removed_at: int | None = None


class StoredResultBook(Protocol):
    """Records of stored content, durable."""

    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        """The record of an execution's result with this name and content, even if it has been removed."""

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        """The results that an execution stored, in order of their events, after the event with that seq."""

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        """Results of all executions that were not removed, in order of (execution_id, name, sha256), after that one."""

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        """Results of a tenant that refer to this content and were not removed, in order of (execution_id, name), after that one."""

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        """Mark these as released, except those that were stored again in the meantime. Returns how many were marked."""
