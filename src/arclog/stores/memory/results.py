"""Records of results stored outside the log."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from arclog.model.config.retention import SCOPES
from arclog.ports.storage.store import ExecutionRecord
from arclog.ports.storage.stored_results import ResultRecord
from arclog.stores.memory.tables import Tables
from arclog.stores.rows import NewResult


class Results(Tables):
    def _keep_result(self, record: ExecutionRecord, new: NewResult, at: int) -> None:
        key = (record.execution_id, new.name, new.ref.meta.sha256)
        self._results[key] = _result(record, new, at, self._results.get(key))

    async def result(self, execution_id: int, name: str, sha256: str) -> ResultRecord | None:
        self._check_open()
        return self._results.get((execution_id, name, sha256))

    async def results(self, execution_id: int, *, after: int = 0, limit: int = 1000) -> list[ResultRecord]:
        self._check_open()
        found = [each for each in self._results.values() if each.execution_id == execution_id and each.seq > after]
        return sorted(found, key=lambda each: each.seq)[:limit]

    async def kept_results(self, *, after: tuple[int, str, str] = (0, "", ""), limit: int = 1000) -> list[ResultRecord]:
        self._check_open()
        found = sorted(key for key, each in self._results.items() if key > after and each.removed_at is None)
        return [self._results[key] for key in found[:limit]]

    async def keepers(
        self, tenant: str, sha256: str, *, after: tuple[int, str] = (0, ""), limit: int = 100
    ) -> list[ResultRecord]:
        self._check_open()
        kept = [each for each in self._results.values() if each.removed_at is None]
        found = [each for each in kept if (each.tenant, each.sha256) == (tenant, sha256)]
        found = [each for each in found if (each.execution_id, each.name) > after]
        return sorted(found, key=lambda each: (each.execution_id, each.name))[:limit]

    async def remove_results(self, records: Sequence[ResultRecord], at: int) -> int:
        self._check_open()
        count = 0
        for record in records:
            key = (record.execution_id, record.name, record.sha256)
            known = self._results.get(key)
            if known is not None and known.seq == record.seq and known.removed_at is None:
                self._results[key] = replace(known, removed_at=at)
                count += 1
        return count


def _result(record: ExecutionRecord, new: NewResult, at: int, known: ResultRecord | None) -> ResultRecord:
    """The record of stored content; of content known before, the longer of its lives."""
    meta = new.ref.meta
    scope, rows = new.scope, meta.rows
    expires_at = None if new.ttl is None else at + new.ttl
    if known is not None:
        rows = known.rows if rows is None else rows
        if known.removed_at is None:
            scope = max(scope, SCOPES.index(known.scope))
            expires_at = None if expires_at is None or known.expires_at is None else max(expires_at, known.expires_at)
    about = (record.execution_id, new.name, meta.sha256, meta.bytes, rows, meta.content_type)
    life = (record.new.scope.tenant, SCOPES[scope], at, expires_at)
    return ResultRecord(*about, *life, new.step, new.run, new.task, new.seq)
