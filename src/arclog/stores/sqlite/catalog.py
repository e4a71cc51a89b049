"""Registering plans in the SQLite store, in one transaction."""

from __future__ import annotations

from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.store import Scope
from arclog.stores.sql.catalog import Catalog as SqlCatalog
from arclog.stores.sqlite.connection.writer import Tx
from arclog.stores.sqlite.part import SqlitePart
from arclog.stores.sqlite.queries import SQL


class Catalog(SqlCatalog, SqlitePart):
    async def _register(self, plan: PlanRecord, scope: Scope) -> tuple[int, str, int]:
        tenant, place = scope.tenant, (scope.project, scope.environment)

        def work(tx: Tx) -> tuple[int, str, int]:
            known = tx.execute(SQL["version_of"], (plan.digest, tenant, plan.path)).fetchone()
            if known is None:
                tx.execute(SQL["add_plan"], (plan.digest, plan.body))
                row = (plan.path, plan.digest, plan.source, plan.created_at, tenant)
                ((version,),) = tx.execute(SQL["add_version"], row).fetchall()
                source, at, is_scoped = plan.source, plan.created_at, any(place)
            else:
                version, source, at, is_scoped = known
            if is_scoped:
                name, more = ("add_scope", place) if any(place) else ("remove_scopes", ())
                tx.execute(SQL[name], (tenant, plan.path, version, *more))
            return version, source, at

        return await self._writer.do(work)
