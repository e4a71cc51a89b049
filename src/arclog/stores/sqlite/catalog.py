"""Registering plans in the SQLite store, in one transaction."""

from __future__ import annotations

from arclog.ports.storage.catalog import PlanRecord
from arclog.stores.sql.catalog import Catalog as SqlCatalog
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL


class Catalog(SqlCatalog, SqlitePart):
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
        place = (project, environment)

        def work(tx: Tx) -> PlanRecord:
            known = tx.execute(SQL["version_of"], (digest, tenant, path)).fetchone()
            if known is not None:
                version, first_source, first_at, is_scoped = known
                if is_scoped:
                    name, more = ("add_scope", place) if any(place) else ("remove_scopes", ())
                    tx.execute(SQL[name], (tenant, path, version, *more))
                return PlanRecord(digest, path, version, body, first_source, first_at)
            tx.execute(SQL["add_plan"], (digest, body))
            ((version,),) = tx.execute(SQL["add_version"], (path, digest, source, at, tenant)).fetchall()
            if any(place):
                tx.execute(SQL["add_scope"], (tenant, path, version, *place))
            return PlanRecord(digest, path, version, body, source, at)

        return await self._writer.do(work)
