"""Pools, resources and workers over HTTP, on a real server with real workers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from arclog.cli.main import command
from arclog.client.asynchronous import AsyncClient
from arclog.model.errors import NotFound, RequestRejected
from arclog.ports.storage.pools import NewResource
from tests.integration.server.callers import bearer, make_keys
from tests.servers.arclog import RunningServer, running

#: settings: many requests without a key
OPEN: dict[str, Any] = {"auth.max_failures": 1_000_000}
PATIENCE_S = 60
#: for a worker that nobody starts
STEP = "metadata: {name: step}\nworkflow: [{step: start, spec: {pool: gpu, resources: [api]}, tool: {kind: noop}}]\n"


@asynccontextmanager
async def worker(server: RunningServer, *words: str, **surroundings: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A worker in a process of its own that the server knows; its `name` is what it calls itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "arclog.cli.main", "worker", "--json", "--server", server.url, *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "/usr/bin:/bin", **surroundings},
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        assert line, await process.communicate()
        process.name = json.loads(line)["worker_id"]  # type: ignore[attr-defined] # for the test
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_limits_are_set_shown_and_taken_away(tmp_path: Path) -> None:
    async with running(tmp_path / "home", worker=False, **OPEN) as server, server.client() as client:
        assert (await client.get("/api/pools")).json() == {"pools": []}
        made = await client.put("/api/pools/gpu/limit", json={"concurrency": 8})
        assert (made.status_code, made.json()["limits"]) == (200, [{"tenant": "", "concurrency": 8}])
        await client.put("/api/pools/gpu/limit", json={"concurrency": 2, "tenant": "*"})
        everywhere = await client.put("/api/pools/*/limit", json={"concurrency": 5, "tenant": "acme"})
        assert everywhere.json()["name"] == ""
        limits = {pool["name"]: pool["limits"] for pool in (await client.get("/api/pools")).json()["pools"]}
        both = [{"tenant": "", "concurrency": 8}, {"tenant": "*", "concurrency": 2}]
        assert limits == {"": [{"tenant": "acme", "concurrency": 5}], "gpu": both}
        gone = await client.delete("/api/pools/gpu/limit", params={"tenant": "*"})
        assert (gone.status_code, gone.json()["limits"]) == (200, both[:1])
        again = await client.delete("/api/pools/gpu/limit", params={"tenant": "*"})
        assert (again.status_code, "has no limit" in again.text) == (404, True)
        for bad in ({"concurrency": -1}, {"concurrency": 1, "tenant": "a/b"}, {"most": 1}, {"concurrency": "many"}):
            assert (await client.put("/api/pools/gpu/limit", json=bad)).status_code == 422
        assert (await client.put("/api/pools/a%20b/limit", json={"concurrency": 1})).status_code == 422


async def test_resources_are_set_shown_and_taken_away(tmp_path: Path) -> None:
    async with running(tmp_path / "home", worker=False, **OPEN) as server, AsyncClient(server.url) as client:
        pools = client.pools
        made = await pools.set_resource("api", NewResource("100/m", 20, 4))
        assert (made.rate, made.burst, made.concurrency, made.tokens, made.held) == ("1.66667/s", 20, 4, 20, 0)
        assert (await pools.set_resource("slow", NewResource("5/h"))).rate == "5/h"
        assert (await pools.set_resource("db", NewResource(concurrency=0))).tokens is None
        assert [resource.name for resource in await pools.resources()] == ["api", "db", "slow"]
        await pools.remove_resource("api")
        with pytest.raises(NotFound, match="resource 'api' has no limit"):
            await pools.remove_resource("api")
        for name, new in (
            ("api", NewResource()),
            ("a b", NewResource("1/s")),
            ("api", NewResource("fast")),
            ("api", NewResource("0/s")),
            ("api", NewResource("1/s", burst=0)),
            ("api", NewResource(concurrency=-1)),
        ):
            with pytest.raises(RequestRejected, match=r"api|'a b'"):
                await pools.set_resource(name, new)


async def test_an_autoscaler_is_told_what_to_do(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "home", worker=False, **OPEN, **{"worker.slots": 2}) as server,
        AsyncClient(server.url) as client,
        server.client() as plain,
    ):
        assert (await client.pools.scale("gpu")).wanted_workers == 0
        for _ in range(70):
            await client.start(STEP)
        scale = (await plain.get("/api/pools/gpu/scale")).json()
        # 70 commands of a second each, within 30 s: 3 slots, of which a worker has 2.
        assert (scale["backlog"], scale["busy"], scale["workers"], scale["wanted_workers"]) == (70, 0, 0, 2)
        figures = (await plain.get("/metrics")).text
        for line in ('backlog{pool="gpu"} 70.0', 'wanted_workers{pool="gpu"} 2.0', 'slots{pool="gpu"} 0.0'):
            assert f"arclog_pool_{line}" in figures
        await client.pools.set_limit("gpu", "", 1)
        assert (await client.pools.scale("gpu")).wanted_workers == 1


async def test_a_worker_is_seen_and_can_be_told_to_leave(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def arclog(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(command, [*words, "--server", server.url])
        output = capsys.readouterr()
        return code, output.out, output.err

    async with (
        running(tmp_path / "home", worker=False, **OPEN) as server,
        AsyncClient(server.url) as client,
        worker(server, "--pool", "gpu", "--slots", "3", ARCLOG_HOME=str(tmp_path / "far")) as first,
        worker(server, "--pool", "gpu", ARCLOG_HOME=str(tmp_path / "far")) as second,
    ):
        done = await client.run(STEP, timeout_s=PATIENCE_S)
        assert done.state == "COMPLETED"
        async with asyncio.timeout(PATIENCE_S):
            # The one that got nothing may not have asked yet, and it is another process.
            while len(workers := {worker.worker_id: worker for worker in await client.pools.workers()}) < 2:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.02)
        assert set(workers) == {first.name, second.name}  # type: ignore[attr-defined] # for the test
        shown = workers[first.name]  # type: ignore[attr-defined] # for the test
        assert (shown.state, shown.pools, shown.slots) == ("working", ("gpu",), 3)
        code, out, _ = await arclog("workers", "--json")
        assert (code, len(json.loads(out))) == (0, 2)
        code, out, err = await arclog("worker", "drain", first.name)  # type: ignore[attr-defined] # for the test
        assert (code, "draining" in out) == (0, True), err
        assert await asyncio.wait_for(first.wait(), PATIENCE_S) == 0
        assert second.returncode is None
        code, out, err = await arclog("worker", "drain", "--pool", "gpu")
        assert code == 0, err
        assert await asyncio.wait_for(second.wait(), PATIENCE_S) == 0
        code, _, err = await arclog("worker", "drain", "nobody")
        assert (code, "worker 'nobody' is not known" in err) == (2, True)
        code, _, err = await arclog("worker", "drain")
        assert (code, "an ID or one --pool is required" in err) == (2, True)


async def test_the_worker_inside_of_a_server_is_not_told_to_leave(tmp_path: Path) -> None:
    async with running(tmp_path / "home", **OPEN) as server, AsyncClient(server.url) as client:
        await client.run(STEP.replace("pool: gpu, ", ""), timeout_s=PATIENCE_S)
        (inside,) = await client.pools.workers()
        with pytest.raises(RequestRejected, match="runs inside a server"):
            await client.pools.drain(inside.worker_id)
        assert await client.pools.drain(pool="default") == []


async def test_what_all_tenants_share_is_for_the_installations_own_tenant(tmp_path: Path) -> None:
    keys = await make_keys(tmp_path / "home", [("own", "admin"), ("other", "admin"), ("other", "viewer")])
    settings = {**OPEN, "scope.tenant": "own"}
    async with running(tmp_path / "home", worker=False, **settings) as server, server.client() as client:

        async def ask(method: str, path: str, caller: tuple[str, str], **more: Any) -> Any:
            return await client.request(method, path, headers=bearer(keys[caller]), **more)

        for method, path, body in (
            ("PUT", "/api/pools/gpu/limit", {"concurrency": 1}),
            ("PUT", "/api/resources/api", {"rate": "1/s"}),
            ("POST", "/api/workers/drain", {"pool": "gpu"}),
        ):
            refused = await ask(method, path, ("other", "admin"), json=body)
            assert refused.status_code == 403
            assert "only an admin of tenant own can" in refused.json()["detail"]
        for tenant in ("", "*", "own", "other"):
            await ask("PUT", "/api/pools/gpu/limit", ("own", "admin"), json={"concurrency": 3, "tenant": tenant})
        await ask("POST", "/api/executions", ("own", "admin"), json={"playbook": STEP})
        (seen,) = (await ask("GET", "/api/pools", ("other", "viewer"))).json()["pools"]
        assert [limit["tenant"] for limit in seen["limits"]] == ["", "*", "other"]
        assert seen["waiting"] == 0, "what another tenant waits for is not told"
        (whole,) = (await ask("GET", "/api/pools", ("own", "admin"))).json()["pools"]
        assert (len(whole["limits"]), whole["waiting"]) == (4, 1)


@pytest.mark.parametrize("shared", [True, False])
async def test_a_shared_worker_serves_all_tenants(tmp_path: Path, shared: bool) -> None:
    wanted = [("own", "worker"), ("own", "engineer"), ("other", "engineer")]
    keys = await make_keys(tmp_path / "home", wanted)
    settings = {**OPEN, "scope.tenant": "own", "workers.shared": shared}
    surroundings = {"ARCLOG_HOME": str(tmp_path / "far"), "ARCLOG_TOKEN": keys["own", "worker"]}
    async with (
        running(tmp_path / "home", worker=False, **settings) as server,
        AsyncClient(server.url, token=keys["other", "engineer"]) as other,
        AsyncClient(server.url, token=keys["own", "engineer"]) as own,
        worker(server, "--pool", "gpu", **surroundings),
    ):
        theirs = await other.start(STEP)
        assert (await own.run(STEP, timeout_s=PATIENCE_S)).state == "COMPLETED"
        # The older of the two: had the worker been allowed to, it would be over first, or right after.
        if shared:
            assert await other.ended(theirs.execution_id, timeout_s=PATIENCE_S)
        else:
            assert (await other.status(theirs.execution_id)).state == "RUNNING"
            assert "no worker of pool gpu has been seen" in (await other.why(theirs.execution_id)).summary
