"""Registering plans in the PostgreSQL store: versions of a path are numbered under a lock."""

from __future__ import annotations

from arclog.ports.storage.catalog import PlanRecord
from arclog.stores.postgres.part import PostgresPart
from arclog.stores.sql.catalog import Catalog as SqlCatalog
from arclog.stores.sql.catalog import source_text


class Catalog(SqlCatalog, PostgresPart):
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
        known = await self._read("version_of", digest, tenant, path)
        if not known:
            *_, known = await self._run(
                [
                    ("lock_path", (tenant, path)),
                    ("add_plan", (digest, body)),
                    (
                        "add_version",
                        (tenant, path, digest, source.encode("utf-8", "surrogatepass"), at, project, environment),
                    ),
                    ("version_of", (digest, tenant, path)),
                ],
                again=True,  # the same content is the same version
            )
        version, kept, first, is_scoped = known[0]
        if is_scoped and (project or environment):
            await self._write("add_scope", tenant, path, version, project, environment)
        elif is_scoped:
            await self._write("remove_scopes", tenant, path, version)
        return PlanRecord(digest, path, version, body, source_text(kept), first)
