"""Registering plans in the PostgreSQL store: the versions of a path are numbered under a lock."""

from __future__ import annotations

from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.store import Scope
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.catalog import Catalog as SqlCatalog


class Catalog(SqlCatalog, PostgresPart):
    async def _register(self, plan: PlanRecord, scope: Scope) -> tuple[int, bytes, int]:
        tenant, place = scope.tenant, (scope.project, scope.environment)
        key = (plan.digest, tenant, plan.path)
        known = await self._read("version_of", *key)
        if not known:
            source = plan.source.encode("utf-8", "surrogatepass")
            *_, known = await self._run(
                [
                    ("lock_path", (tenant, plan.path)),
                    ("add_plan", (plan.digest, plan.body)),
                    ("add_version", (tenant, plan.path, plan.digest, source, plan.created_at, *place)),
                    ("version_of", key),
                ],
                again=True,  # the same content is the same version
            )
        version, source, at, is_scoped = known[0]
        if is_scoped and any(place):
            await self._write("add_scope", tenant, plan.path, version, *place)
        elif is_scoped:
            await self._write("remove_scopes", tenant, plan.path, version)
        return version, source, at
