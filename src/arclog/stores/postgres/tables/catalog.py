"""Plans by their hash, and playbooks by tenant, path and version."""

from __future__ import annotations

from typing import Any

from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.stores.postgres.part import Part
from arclog.stores.records import first_path


class Catalog(Part):
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
        known = await self._pool.read(self._sql["version_of"], digest, tenant, path)
        if not known:
            *_, known = await self._pool.run(
                [
                    (self._sql["lock_path"], (tenant, path)),
                    (self._sql["add_plan"], (digest, body)),
                    (self._sql["add_version"], (tenant, path, digest, _kept(source), at, project, environment)),
                    (self._sql["version_of"], (digest, tenant, path)),
                ],
                again=True,  # the same content is the same version
            )
        version, kept, first, is_scoped = known[0]
        if is_scoped and (project or environment):
            await self._pool.write(self._sql["add_scope"], tenant, path, version, project, environment)
        elif is_scoped:
            await self._pool.write(self._sql["remove_scopes"], tenant, path, version)
        return PlanRecord(digest, path, version, body, _text(kept), first)

    async def plan(self, digest: str) -> PlanRecord | None:
        return await self._one("plan", digest)

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        return await self._one("registered", path, version, tenant, project, environment)

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
        given = (first_path(after, prefix), prefix, limit, archived, tenant, project, environment)
        return [CatalogRecord(*row) for row in await self._pool.read(self._sql["catalog"], *given)]

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        rows = await self._pool.read(self._sql["catalog_path"], tenant, path, project, environment)
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
        given = (path, before, limit, tenant, project, environment)
        return [_record(row) for row in await self._pool.read(self._sql["versions"], *given)]

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        if at is None:
            await self._pool.write(self._sql["unarchive"], tenant, path)
        else:
            await self._pool.write(self._sql["archive"], tenant, path, at)

    async def _one(self, name: str, *values: Any) -> PlanRecord | None:
        rows = await self._pool.read(self._sql[name], *values)
        return _record(rows[0]) if rows else None


def _record(row: tuple[Any, ...]) -> PlanRecord:
    digest, path, version, body, source, at = row
    return PlanRecord(digest, path, version, body, _text(source), at)


def _kept(source: str) -> bytes:
    """Any text, lone surrogates included."""
    return source.encode("utf-8", "surrogatepass")


def _text(source: bytes) -> str:
    return source.decode("utf-8", "surrogatepass")
