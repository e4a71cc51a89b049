"""Commands and timers: what workers take, hold and lose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from arclog.ports.storage.store import Backlog, CommandRecord, Timer
from arclog.stores.postgres.connection.values import ints
from arclog.stores.postgres.part import Part
from arclog.stores.postgres.tables.claims import Asked, Claims
from arclog.stores.records import backlog_of, command_record
from arclog.stores.rows import decode

_PAYLOAD = msgspec.json.Decoder(dict[str, Any])


class Work(Part):
    _claims: Claims

    async def claim(
        self,
        worker_id: str,
        *,
        limit: int,
        lease_until: int,
        kinds: Sequence[str],
        pools: Sequence[str] = ("default",),
        execution_id: int = 0,
        tenant: str = "",
        project: str = "",
        environment: str = "",
    ) -> list[CommandRecord]:
        if limit <= 0:
            return []
        within = (project, environment) if project or environment else ()
        asked = Asked(worker_id, limit, lease_until, tuple(kinds), tuple(pools), execution_id, tenant, within)
        return command_records(await self._claims.claim(asked))

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        if not held:
            return []
        ids, fences = zip(*held, strict=True)
        rows = await self._pool.write(self._sql["heartbeat"], worker_id, lease_until, ints(ids), ints(fences))
        kept = {command_id for (command_id,) in rows}
        return [command_id for command_id in ids if command_id not in kept]

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        return command_records(await self._pool.read(self._sql["expired"], now, limit))

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        return command_records(await self._pool.read(self._sql["commands"], execution_id))

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        return command_records(await self._pool.read(self._sql["granted"], *by))

    async def backlog(self) -> list[Backlog]:
        return backlog_of(await self._pool.read(self._sql["backlog"]))

    async def due_timers(self, now: int, limit: int = 100, *, latest: bool = False) -> list[Timer]:
        rows = await self._pool.read(self._sql["latest_timers" if latest else "due_timers"], now, limit)
        return [Timer(owner, timer_id, due, decode(payload, _PAYLOAD)) for owner, timer_id, due, payload in rows]

    async def coming_timers(self, after: int, until: int, limit: int = 100) -> list[int]:
        return [owner for (owner,) in await self._pool.read(self._sql["coming_timers"], after, until, limit)]

    async def next_due(self) -> int | None:
        [(due,)] = await self._pool.read(self._sql["next_due"])
        return due  # type: ignore[no-any-return]  # a column of int8


def command_records(rows: Iterable[tuple[Any, ...]]) -> list[CommandRecord]:
    return [command_record(row, tuple(kind.decode() for kind in row[4])) for row in rows]
