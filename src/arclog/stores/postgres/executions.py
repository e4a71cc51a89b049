"""Executions in the PostgreSQL store. A filtered list is one statement, which scans indexes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from arclog.model.data.lru import LruCache
from arclog.model.ids import EPOCH_MS, MAX_ID, compose
from arclog.model.status import EXECUTION_STATES
from arclog.ports.clock import Clock
from arclog.ports.storage.catalog import PlanRecord
from arclog.ports.storage.store import ExecutionFilter, ExecutionRecord, Scope
from arclog.stores.postgres.connection.connect import Address, connect
from arclog.stores.postgres.connection.pipeline import translated
from arclog.stores.postgres.part import Lookups, PostgresPart, Shared
from arclog.stores.postgres.partitions import PARTED
from arclog.stores.sql.executions import Catalog as SqlCatalog
from arclog.stores.sql.executions import Executions as SqlExecutions
from arclog.stores.sql.executions import execution_records

# ── executions ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Executions(SqlExecutions, PostgresPart):
    _lookups: Lookups[ExecutionRecord]

    async def execution(self, execution_id: int) -> ExecutionRecord | None:
        return await self._lookups.get(execution_id)

    async def _read_executions(self, execution_ids: Sequence[int]) -> dict[int, ExecutionRecord]:
        records = execution_records(await self._read("executions_by_id", self._ints(execution_ids)))
        return {record.execution_id: record for record in records}

    async def _narrowed(self, which: ExecutionFilter, first: int, limit: int) -> list[ExecutionRecord]:
        states = tuple(dict.fromkeys(which.states or EXECUTION_STATES))
        walks = (first, which.since, limit, self._texts(states))
        rest = (which.project, which.environment, which.level)
        tenants = [which.tenant]
        if not which.tenant:
            tenants = [tenant for (tenant,) in await self._read("tenants")]
        owners = self._texts(tenants)
        if which.path:
            rows = await self._read("in_path", *walks, owners, which.path, which.name, *rest)
        elif which.name:
            names = await self._read("names", owners, which.name)
            pairs = [self._texts([row[column] for row in names]) for column in (0, 1)]
            rows = await self._read("with_name", *walks, *pairs, *rest)
        else:
            rows = await self._read("in_state", *walks, owners, *rest)
        return execution_records(rows)

    async def pending_paths(self, *, after: tuple[str, str] = ("", ""), limit: int = 100) -> list[tuple[str, str]]:
        rows = await self._read("pending_paths", *after, MAX_ID, limit)
        return [(tenant, path) for tenant, path in rows]

    async def _put_next_snapshot(
        self, execution_id: int, seq: int, code: str, body: bytes, drop: Sequence[int]
    ) -> None:
        await self._write("put_next_snapshot", execution_id, seq, code, body, self._ints(drop))


# ── catalog ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Registers plans in the PostgreSQL store. The versions of a path are numbered under a lock.


_Registered = tuple[int, bytes, int]
#: How long a version that all of its tenant may use is not looked up again, and how many versions and bytes are kept.
_KEPT_S = 1.0
_MOST_KEPT = 1000
_MOST_KEPT_BYTES = 8 * 1024 * 1024


class _Kept(NamedTuple):
    """A version that was looked up."""

    registered: _Registered
    #: until when it is used, by the monotonic clock
    until: float


def kept_versions() -> LruCache[tuple[str, str, str], _Kept]:
    return LruCache(_MOST_KEPT, _MOST_KEPT_BYTES, lambda kept: len(kept.registered[1]))


class Catalog(SqlCatalog, PostgresPart):
    _clock: Clock
    _registrations: Shared[tuple[str, str, Scope], _Registered]
    #: by digest, tenant and path; versions are never removed
    _versions: LruCache[tuple[str, str, str], _Kept]

    async def _register(self, plan: PlanRecord, scope: Scope) -> _Registered:
        # Many runs of one playbook may be started at the same time.
        kept = self._versions.get((plan.digest, scope.tenant, plan.path))
        if kept is not None and self._clock.monotonic() < kept.until:
            return kept.registered
        return await self._registrations.get((plan.digest, plan.path, scope), lambda: self._register_now(plan, scope))

    async def _register_now(self, plan: PlanRecord, scope: Scope) -> _Registered:
        tenant, place = scope.tenant, (scope.project, scope.environment)
        key = (plan.digest, tenant, plan.path)
        rows = await self._read("version_of", *key)
        if not rows:
            source = plan.source.encode("utf-8", "surrogatepass")
            *_, rows = await self._run(
                [
                    ("lock_path", (tenant, plan.path)),
                    ("add_plan", (plan.digest, plan.body)),
                    ("add_version", (tenant, plan.path, plan.digest, source, plan.created_at, *place)),
                    ("version_of", key),
                ],
                again=True,  # the same content is the same version
            )
        version, source, at, is_scoped = rows[0]
        if is_scoped and any(place):
            await self._write("add_scope", tenant, plan.path, version, *place)
        elif is_scoped:
            await self._write("remove_scopes", tenant, plan.path, version)
        else:
            self._versions.replace(key, _Kept((version, source, at), self._clock.monotonic() + _KEPT_S))
        return version, source, at


# ── retention ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Removes executions that ended long ago, one span of executions at a time. The log tables of a span are dropped as a
# whole.
#
# Invariants: no other request is blocked. Executions are removed in batches, with everything except their log rows;
# then the span's tables are detached, while others read and write, and dropped. If the process is killed after any
# step, the next removal continues from there.

#: number of executions that are removed at a time
_PIECE = 200
#: detaching waits for reads in progress
_LOCK_TIMEOUT_MS = 2_000

# Whether a span's table is still attached to the log, and whether its detachment was interrupted.
_STATE = """
SELECT c.relispartition, coalesce((SELECT i.inhdetachpending FROM pg_inherits i WHERE i.inhrelid = c.oid), false)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s
"""


class Retention(PostgresPart):
    _address: Address
    #: the span that is being removed, and the `before` for which it was chosen
    _going: tuple[int, int, int] | None = None
    #: the `before` of the last search, and the lower bound of the last span that it has finished with
    _passed: tuple[int, int] = (-1, -1)

    async def reclaim(self) -> int:
        return 0  # dropped partitions have returned their space; that of deleted rows is reused after a vacuum

    async def retire(self, before: int, *, dry_run: bool = False) -> int:
        if dry_run:
            return await self._count(before)
        while True:
            span = await self._span(before)
            if span is None:
                self._passed = (-1, -1)  # the next call starts again
                return 0
            rows = await self._write("retire", *span, before, _PIECE)
            if rows:
                return len(rows)
            self._going = None
            [(empty,)] = await self._read("span_is_empty", *span)
            if empty:
                await self._drop(span[0])
            self._passed = (before, span[0])

    async def _span(self, before: int) -> tuple[int, int] | None:
        """Return the next span whose executions may all be removed."""
        if self._going is not None and self._going[2] == before:
            return self._going[:2]
        passed = self._passed[1] if self._passed[0] == before else -1
        rows = await self._read("retirable", _newest(before), before, passed)
        if not rows:
            self._going = None
            return None
        self._going = (*rows[0], before)
        return self._going[:2]

    async def _count(self, before: int) -> int:
        total, passed = 0, -1
        while rows := await self._read("retirable", _newest(before), before, passed):
            [(count,)] = await self._read("count_span", *rows[0])
            total += count
            passed = rows[0][0]
        return total

    async def _drop(self, lower: int) -> None:
        """Drop the tables of an empty span. Each statement is its own transaction."""
        address = self._address
        try:
            connection = await connect(address)
            try:
                await connection.execute(f"SET statement_timeout = 0; SET lock_timeout = {_LOCK_TIMEOUT_MS}")
                for table in PARTED:
                    await self._drop_table(connection, table, lower)
            finally:
                await connection.close()
        except Exception as error:
            raise translated(error, address.place) from error
        await self._write("forget_span", lower)
        await self._spans.reload()

    async def _drop_table(self, connection: Any, table: str, lower: int) -> None:
        schema, name = self._address.schema, f"{table}_{lower}"
        row = await (await connection.execute(_STATE, (schema, name))).fetchone()
        if row is None:
            return
        is_part, is_pending = row
        if is_part:
            how = "FINALIZE" if is_pending else "CONCURRENTLY"
            await connection.execute(f'ALTER TABLE "{schema}".{table} DETACH PARTITION "{schema}"."{name}" {how}')
        await connection.execute(f'DROP TABLE "{schema}"."{name}"')


def _newest(before: int) -> int:
    """Return the first id of a time. An execution with a later id cannot have ended earlier."""
    return compose(max(before // 1000, EPOCH_MS), 0, 0)
