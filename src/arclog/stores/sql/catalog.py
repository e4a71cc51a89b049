"""Plans by their hash, and playbooks by tenant, path and version."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.ports.storage.store import Scope
from arclog.stores.sql.part import SqlPart


class Catalog(SqlPart):
    async def register_plan(
        self,
        digest: str,
        path: str,
        body: bytes,
        source: str,
        at: int,
        *,
        tenant: str,
        project: str = "",
        environment: str = "",
    ) -> PlanRecord:
        plan = PlanRecord(digest, path, 0, body, source, at)
        version, first_source, first_at = await self._register(plan, Scope(tenant, project, environment))
        return PlanRecord(digest, path, version, body, _text(first_source), first_at)

    @abstractmethod
    async def _register(self, plan: PlanRecord, scope: Scope) -> tuple[int, Any, int]:
        """Add a plan, unless its content has a version there already; the version, source and time that it has now."""

    async def plan(self, digest: str) -> PlanRecord | None:
        return _first(await self._look_up("plan", digest))

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        return _first(await self._look_up("registered", path, version, tenant, project, environment))

    async def catalog(
        self,
        *,
        tenant: str,
        prefix: str = "",
        after: str = "",
        limit: int = 100,
        archived: bool = False,
        project: str = "",
        environment: str = "",
    ) -> list[CatalogRecord]:
        first = max(prefix, f"{after}\x01") if after else prefix
        rows = await self._list("catalog", first, prefix, limit, archived, tenant, project, environment)
        return [CatalogRecord(*row) for row in rows]

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        rows = await self._look_up("catalog_path", tenant, path, project, environment)
        return CatalogRecord(*rows[0]) if rows else None

    async def versions(
        self,
        path: str,
        *,
        tenant: str,
        before: int = 0,
        limit: int = 100,
        project: str = "",
        environment: str = "",
    ) -> list[PlanRecord]:
        rows = await self._list("versions", path, before, limit, tenant, project, environment)
        return [_record(row) for row in rows]

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        if at is None:
            await self._write("unarchive", tenant, path)
        else:
            await self._write("archive", tenant, path, at)


def _first(rows: Sequence[Sequence[Any]]) -> PlanRecord | None:
    return _record(rows[0]) if rows else None


def _record(row: Sequence[Any]) -> PlanRecord:
    digest, path, version, body, source, at = row
    return PlanRecord(digest, path, version, body, _text(source), at)


def _text(source: str | bytes) -> str:
    """A playbook's source as it was; PostgreSQL holds it as bytes, since it may have lone surrogates."""
    return source if isinstance(source, str) else source.decode("utf-8", "surrogatepass")
