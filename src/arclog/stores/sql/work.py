"""Commands and timers: what workers hold and lose, and what is due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from arclog.ports.storage.store import Backlog, CommandRecord, Timer
from arclog.stores.records import command_record
from arclog.stores.rows import decode
from arclog.stores.sql.part import Rows, SqlPart

_PAYLOAD = msgspec.json.Decoder(dict[str, Any])


class Work(SqlPart):
    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]], lease_until: int) -> list[int]:
        if not held:
            return []
        answers = await self._run(self._each("heartbeat", "ii", held, worker_id, lease_until))
        kept = {command_id for rows in answers for (command_id,) in rows}
        return [command_id for command_id, _ in held if command_id not in kept]

    async def expired(self, now: int, limit: int = 100) -> list[CommandRecord]:
        return command_records(await self._read("expired", now, limit))

    async def commands(self, execution_id: int) -> list[CommandRecord]:
        return command_records(await self._look_up("commands", execution_id))

    async def granted(self, by: tuple[int, int, int]) -> list[CommandRecord]:
        return command_records(await self._look_up("granted", *by))

    async def backlog(self) -> list[Backlog]:
        pools: dict[str, dict[str, int]] = {}
        for pool, sign, count, oldest, first_end in await self._list("backlog"):
            if sign == 0:
                pools.setdefault(pool, {}).update(issued=count, oldest=oldest)
            elif sign > 0:
                pools.setdefault(pool, {}).update(claimed=count, first_lease_end=first_end)
        return [Backlog(pool, **figures) for pool, figures in sorted(pools.items())]

    async def due_timers(self, now: int, limit: int = 100, *, latest: bool = False) -> list[Timer]:
        rows = await self._look_up("latest_timers" if latest else "due_timers", now, limit)
        return [Timer(owner, timer_id, due, decode(payload, _PAYLOAD)) for owner, timer_id, due, payload in rows]

    async def coming_timers(self, after: int, until: int, limit: int = 100) -> list[int]:
        return [owner for (owner,) in await self._read("coming_timers", after, until, limit)]

    async def next_due(self) -> int | None:
        [(due,)] = await self._look_up("next_due")
        return due  # type: ignore[no-any-return]  # a column of numbers


def command_records(rows: Rows) -> list[CommandRecord]:
    return [command_record(row) for row in rows]
