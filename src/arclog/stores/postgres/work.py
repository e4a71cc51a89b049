"""Commands and timers: what workers take, hold and lose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from arclog.ports.store import Backlog, CommandRecord, Timer
from arclog.stores.postgres.part import Part
from arclog.stores.postgres.values import blobs, ints, texts
from arclog.stores.records import backlog_of, command_record
from arclog.stores.rows import decode

#: how often a claim looks again for commands that others have their hands on
_CROWDED_TRIES, _CROWDED_PAUSE_S = 3, 0.01
_PAYLOAD = msgspec.json.Decoder(dict[str, Any])


class Work(Part):
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
    ) -> list[CommandRecord]:
        if limit <= 0:
            return []
        given = (worker_id, lease_until, limit, texts(pools), blobs(kind.encode() for kind in kinds))
        if execution_id:
            rows = await self._pool.write(self._sql["claim_in"], *given, execution_id)
        else:
            rows = await self._pool.write(self._sql["claim"], *given, tenant)
            for _ in range(_CROWDED_TRIES):
                if not rows or rows[0][0] is not None:
                    break
                # Who takes of several kinds locks more than it takes: the rest is free again in a moment.
                await asyncio.sleep(_CROWDED_PAUSE_S)
                rows = await self._pool.write(self._sql["claim"], *given, tenant)
            rows = [row for row in rows if row[0] is not None]
        return sorted(_records(rows), key=lambda each: each.command_id)

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        if not held:
            return []
        ids, fences = zip(*held, strict=True)
        rows = await self._pool.write(self._sql["heartbeat"], worker_id, lease_until, ints(ids), ints(fences))
        kept = {command_id for (command_id,) in rows}
        return [command_id for command_id in ids if command_id not in kept]

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        return _records(await self._pool.read(self._sql["expired"], now, limit))

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        return _records(await self._pool.read(self._sql["commands"], execution_id))

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        return _records(await self._pool.read(self._sql["granted"], *by))

    async def backlog(self) -> list[Backlog]:
        return backlog_of(await self._pool.read(self._sql["backlog"]))

    async def due_timers(self, now: int, limit: int = 100) -> list[Timer]:
        rows = await self._pool.read(self._sql["due_timers"], now, limit)
        return [Timer(owner, timer_id, due, decode(payload, _PAYLOAD)) for owner, timer_id, due, payload in rows]

    async def next_due(self) -> int | None:
        [(due,)] = await self._pool.read(self._sql["next_due"])
        return due  # type: ignore[no-any-return]  # a column of int8


def _records(rows: Iterable[tuple[Any, ...]]) -> list[CommandRecord]:
    return [command_record(row, tuple(kind.decode() for kind in row[4])) for row in rows]
