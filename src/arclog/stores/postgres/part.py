"""What the parts of the PostgreSQL store run their statements with: a pool of connections."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from arclog.stores.postgres.connection.pool import Pool
from arclog.stores.postgres.connection.values import columns, ints, texts
from arclog.stores.postgres.partitions import Spans
from arclog.stores.sql.part import Call, Rows, SqlPart


class PostgresPart(SqlPart):
    _pool: Pool
    #: statements by name
    _sql: dict[str, str]
    _spans: Spans

    async def _read(self, name: str, *values: Any) -> Rows:
        return await self._pool.read(self._sql[name], *values)

    _look_up = _list = _read

    async def _write(self, name: str, *values: Any) -> Rows:
        return await self._pool.write(self._sql[name], *values)

    async def _run(self, calls: Sequence[Call], *, again: bool = False) -> list[Rows]:
        return [*await self._pool.run([(self._sql[name], values) for name, values in calls], again=again)]

    def _each(self, name: str, kinds: str, rows: Sequence[Sequence[Any]], *first: Any) -> list[Call]:
        """One statement for all rows: their columns are arrays."""
        return [(name, (*first, *columns(kinds, map(tuple, rows))))]

    def _ints(self, values: Iterable[int]) -> bytes:
        return ints(values)

    def _texts(self, values: Iterable[str]) -> bytes:
        return texts(values)

    def _shown(self, text: str) -> str:
        return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
