"""HOME QUEUED TENANTS CLAIMS: so many queued commands, shared evenly by so many tenants; what a claim of one of them takes.

The commands are written to the store directly: a claim looks at no more of a run than its command. `HELD` of them are held by
workers at any time, as in a busy pool. After each claim, a connection of its own commits an UPDATE of one row to a small table on the
same server, or to a file beside the store: the least that a durable claim can take on this machine at this moment.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from arclog.model.events import Event
from arclog.ports.storage.store import Append, CommandRecord, ExecutionState, NewCommand, NewExecution, Scope
from arclog.wiring.embedded import embedded
from arclog.wiring.process import run
from arclog.wiring.settings import load_settings

HELD = 50
#: appends that are handed in together
_PART = 500
_FAR = 1 << 60
_RUNNING = ExecutionState("RUNNING")


async def claims(home: str, queued: int, tenants: int, count: int) -> dict[str, Any]:
    async with embedded(load_settings({"home": home})) as embedding, _bare(home) as update:
        store, minter = embedding.engine.store, embedding.engine.minter
        await minter.keep()
        made = [_queued(minter.next_id(), number, tenants) for number in range(queued)]
        for first in range(0, queued, _PART):
            outcomes = await store.append_all(made[first : first + _PART])
            problems = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            if problems:
                raise problems[0]
        tenant_of = {append.execution_id: append.new.scope.tenant for append in made if append.new is not None}
        held: deque[CommandRecord] = deque()
        took: list[float] = []
        bare: list[float] = []
        taken: Counter[str] = Counter()
        cpu = 0.0
        for _ in range(count):
            began, cpu_began = time.perf_counter(), time.process_time()
            (claimed,) = await store.claim("bench", limit=1, lease_until=_FAR, kinds=["noop"])
            took.append((time.perf_counter() - began) * 1000)
            cpu += time.process_time() - cpu_began
            began = time.perf_counter()
            await update()
            bare.append((time.perf_counter() - began) * 1000)
            taken[tenant_of[claimed.execution_id]] += 1
            held.append(claimed)
            if len(held) > HELD:
                await _end(store, held.popleft(), minter.next_id())
        took.sort()
        bare.sort()
    return {
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[len(took) * 99 // 100],
        "bare_p50_ms": bare[len(bare) // 2],
        "bare_p99_ms": bare[len(bare) * 99 // 100],
        "cpu_ms": cpu * 1000 / count,
        "tenants_served": len(taken),
        "most_of_one_tenant": max(taken.values()),
    }


@asynccontextmanager
async def _bare(home: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """A function that changes a row and returns after the commit."""
    url = os.environ.get("ARCLOG_STORE_URL", "")
    if url:
        import psycopg

        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as remote:
            await remote.execute("CREATE TABLE bare (n bigint)")
            await remote.execute("INSERT INTO bare VALUES (0)")

            async def update_remote() -> None:
                await remote.execute("UPDATE bare SET n = n + 1", prepare=True)

            yield update_remote
        return
    import apsw

    os.makedirs(home, exist_ok=True)
    local = apsw.Connection(os.path.join(home, "bare.db"))
    local.pragma("journal_mode", "wal")
    local.execute("PRAGMA synchronous = FULL; CREATE TABLE bare (n); INSERT INTO bare VALUES (0)")

    async def update_local() -> None:
        local.execute("UPDATE bare SET n = n + 1")

    try:
        yield update_local
    finally:
        local.close()


def _queued(execution_id: int, number: int, tenants: int) -> Append:
    scope = Scope(f"tenant-{number % tenants:05}", "p", "e")
    new = NewExecution(f"run-{execution_id}", "n", "flows/n", 1, "d", scope, 1)
    command = NewCommand(execution_id + 1, "start", 1, ("noop",))
    event = Event("playbook.started", 1)
    return Append(execution_id, 0, (event,), execution_id, _RUNNING, new, issue=[command])


async def _end(store: Any, claimed: CommandRecord, base_id: int) -> None:
    done = Event("task.started", 1)
    await store.append(Append(claimed.execution_id, 1, (done,), base_id, _RUNNING, close=[claimed.command_id]))


if __name__ == "__main__":
    home, queued, tenants, count = sys.argv[1:]
    print(json.dumps(run(claims(home, int(queued), int(tenants), int(count)))))
