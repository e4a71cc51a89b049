"""Plans by their hash, and playbooks by tenant, path and version."""

from __future__ import annotations

from msgspec.structs import replace

from arclog.ports.storage.catalog import CatalogRecord, PlanRecord
from arclog.stores.memory.tables import Tables


class Catalog(Tables):
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
        self._check_open()
        known = self._plans.get((digest, tenant, path))
        place = (project, environment)
        if known is None:
            version = 1 + max((each.version for each in self._versions(tenant, path)), default=0)
            known = self._plans[digest, tenant, path] = PlanRecord(digest, path, version, body, source, at)
            if any(place):
                self._catalog_scopes[tenant, path, version] = {place}
        elif any(place):
            self._catalog_scopes.get((tenant, path, known.version), set()).add(place)
        else:
            self._catalog_scopes.pop((tenant, path, known.version), None)
        return known

    async def plan(self, digest: str) -> PlanRecord | None:
        self._check_open()
        return next((record for (name, *_), record in self._plans.items() if name == digest), None)

    async def registered(
        self, path: str, version: int = 0, *, tenant: str, project: str = "", environment: str = ""
    ) -> PlanRecord | None:
        self._check_open()
        found = self._versions(tenant, path, project, environment)
        return max((each for each in found if version in {0, each.version}), key=_version, default=None)

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
        self._check_open()
        paths = sorted(
            {path for _, owner, path in self._plans if owner == tenant and path.startswith(prefix) and path > after}
        )
        place = {"tenant": tenant, "project": project, "environment": environment}
        found = [record for path in paths if (record := await self.catalog_path(path, **place)) is not None]
        return [record for record in found if archived or record.archived_at is None][:limit]

    async def catalog_path(
        self, path: str, *, tenant: str, project: str = "", environment: str = ""
    ) -> CatalogRecord | None:
        newest = await self.registered(path, tenant=tenant, project=project, environment=environment)
        if newest is None:
            return None
        archived_at = self._archived.get((tenant, path))
        return CatalogRecord(path, newest.version, newest.digest, newest.created_at, archived_at)

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
        self._check_open()
        known = self._versions(tenant, path, project, environment)
        found = [each for each in known if not before or each.version < before]
        found.sort(key=_version, reverse=True)
        return [replace(each, body=b"") for each in found[:limit]]

    async def archive(self, path: str, at: int | None, *, tenant: str) -> None:
        self._check_open()
        if at is None:
            self._archived.pop((tenant, path), None)
        else:
            self._archived.setdefault((tenant, path), at)

    def _versions(self, tenant: str, path: str, project: str = "", environment: str = "") -> list[PlanRecord]:
        own = [each for (_, owner, where), each in self._plans.items() if (owner, where) == (tenant, path)]
        return [each for each in own if self._is_valid(tenant, each, project, environment)]

    def _is_valid(self, tenant: str, record: PlanRecord, project: str, environment: str) -> bool:
        scopes = self._catalog_scopes.get((tenant, record.path, record.version))
        return not scopes or any(
            (not project or own in ("", project)) and (not environment or at in ("", environment)) for own, at in scopes
        )


def _version(record: PlanRecord) -> int:
    return record.version
