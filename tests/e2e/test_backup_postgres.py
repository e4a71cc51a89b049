"""A log in PostgreSQL, dumped while runs go on and restored into another server: it replays, goes on, and is read on."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.wiring.embedded import embedded
from tests.e2e.test_backup import followed, start
from tests.servers.arclog import running
from tests.servers.postgres import Database, _binaries, running_postgres

RUNS = 6


def tool(name: str, database: Database, *words: str) -> None:
    """One of PostgreSQL's own programs, as docs/backup.md says."""
    done = subprocess.run(
        [_binaries() / name, "--dbname", database.dsn, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr


def settings_of(home: Path, database: Database) -> dict[str, Any]:
    return {"home": str(home), "store.url": database.dsn, "store.unsafe": True}


@pytest.mark.soak
async def test_a_dump_under_load_is_restored_into_another_server_and_goes_on(tmp_path: Path):
    dump = str(tmp_path / "arclog.dump")
    with running_postgres(unsafe=True) as server_a, running_postgres(unsafe=True) as server_b:
        database, other = server_a.create(), server_b.create()
        # So many transactions that the other server's ids are far behind.
        with database.connect() as connection:
            for _ in range(2000):
                connection.execute("SELECT pg_current_xact_id()")
        home = tmp_path / "home"
        # What was under way begins again once its lease, which is in the dump, is over.
        more = {"store.url": database.dsn, "store.unsafe": True, "leases.seconds": 5}
        async with running(home, worker=True, **more) as server, server.client() as client:
            await client.put("/api/credentials/crm", json={"value": "sealed, and dumped so"})
            ids = [await start(client) for _ in range(RUNS)]
            await followed(client, ids[0], until="step.done")
            await asyncio.to_thread(tool, "pg_dump", database, "--format=custom", "--schema=arclog", f"--file={dump}")
            later = await start(client)
        await asyncio.to_thread(tool, "pg_restore", other, "--no-owner", "--exit-on-error", dump)
        async with embedded(Settings(settings_of(tmp_path / "home", other)), read_only=True) as runtime:
            listed = {run.execution_id: run.state for run in await runtime.api.list(limit=100)}
            assert set(listed) == set(ids)
            assert later not in listed
            assert "RUNNING" in listed.values(), "nothing was under way"
            for execution_id in ids:
                events = await runtime.engine.store.events(int(execution_id), limit=10_000)
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                assert (await runtime.engine.live.folded(int(execution_id))).state.head == len(events)
            read = await _tailed(runtime.engine.store, 0)
        # Results are files of this home here; with `results.url: postgres` they are in the dump.
        again = {**more, "store.url": other.dsn}
        async with running(home, worker=True, **again) as server, server.client() as client:
            [kept] = (await client.get("/api/credentials")).json()["credentials"]
            checks = {check["name"]: check["status"] for check in (await client.get("/api/doctor")).json()["checks"]}
            assert (kept["name"], checks["secrets"]) == ("crm", "ok"), "the key is the home's, and is still there"
            for execution_id in ids:
                await followed(client, execution_id)
                status = (await client.get(f"/api/executions/{execution_id}/status")).json()
                assert status["state"] == "COMPLETED", status
        # Who read the log before the restore reads on from where it was, and misses nothing.
        async with embedded(Settings(settings_of(tmp_path / "home", other)), read_only=True) as runtime:
            since = await _tailed(runtime.engine.store, read[-1][0])
            whole = await _tailed(runtime.engine.store, 0)
            assert whole == read + since
            tailed = [event for _, batch in whole for event in batch]
            for execution_id in ids:
                own = sorted(seq for execution, seq in tailed if execution == int(execution_id))
                assert own == list(range(1, len(own) + 1))
                assert len(own) == len(await runtime.engine.store.events(int(execution_id), limit=10_000))


async def _tailed(store: Any, after: int) -> list[tuple[int, list[tuple[int, int]]]]:
    batches = []
    while page := await store.tail(after=after, limit=500):
        batches += [(batch.position, [(event.execution_id, event.seq) for event in batch.events]) for batch in page]
        after = page[-1].position
    return batches
