"""Clients of `arclog up`.

streams HOME N      N clients follow one run that ends; prints how long the last of them waited for the end, as JSON
status HOME N M     N status requests one after the other while M runs at a time go on; prints their latencies as JSON
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

GATED = "metadata: {name: gated}\nexecutor: {spec: {policy: {approval: required}}}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
CHAIN = "metadata: {name: chain}\nworkflow:\n" + "".join(
    f"  - step: s{number}\n    tool: {{kind: noop}}\n    next: {{arcs: [{{step: s{number + 1}}}]}}\n"
    for number in range(20)
)
CHAIN += "  - step: s20\n    tool: {kind: noop}\n"


@contextmanager
def server(home: str) -> Iterator[str]:
    command = [sys.executable, "-m", "arclog.cli.main", "up", "--port", "0", "--home", home, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
        process.terminate()


def client_of(url: str) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=None)
    return httpx2.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False)


async def started(client: httpx2.AsyncClient, playbook: str) -> str:
    answer = await client.post("/api/executions", json={"playbook": playbook})
    return str(answer.json()["execution_id"])


async def streams(url: str, count: int) -> dict[str, Any]:
    async with client_of(url) as client:
        execution_id = await started(client, GATED)
        here = 0
        everybody = asyncio.Event()

        async def follow() -> tuple[list[int], float]:
            nonlocal here
            seqs: list[int] = []
            async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as answer:
                async for line in answer.aiter_lines():
                    if line.startswith(":") and not seqs:
                        here += 1
                        if here == count:
                            everybody.set()
                    if line.startswith("id: "):
                        seqs.append(int(line[4:]))
            return seqs, time.perf_counter()

        following = [asyncio.ensure_future(follow()) for _ in range(count)]
        await everybody.wait()
        begun = time.perf_counter()
        await client.post(f"/api/executions/{execution_id}/approve", json={})
        followers = await asyncio.gather(*following)
        events = len((await client.get(f"/api/executions/{execution_id}/events")).json()["events"])
    whole = sum(seqs == list(range(1, events + 1)) for seqs, _ in followers)
    return {"whole": whole, "last_s": max(ended for _, ended in followers) - begun, "events": events}


async def status(url: str, count: int, at_a_time: int) -> dict[str, Any]:
    async with client_of(url) as client:
        over = False
        runs = 0

        async def load() -> None:
            nonlocal runs
            while not over:
                execution_id = await started(client, CHAIN)
                await client.get(f"/api/executions/{execution_id}/head", params={"until": "ended", "timeout_s": 60})
                runs += 1

        watched = await started(client, GATED)
        loads = [asyncio.ensure_future(load()) for _ in range(at_a_time)]
        taken: list[float] = []
        good = 0
        begun = time.perf_counter()
        for _ in range(count):
            before = time.perf_counter()
            answer = await client.get(f"/api/executions/{watched}/status")
            taken.append(time.perf_counter() - before)
            good += answer.status_code == 200
        took = time.perf_counter() - begun
        over = True
        await asyncio.gather(*loads)
    taken.sort()
    return {
        "good": good,
        "p50_ms": taken[count // 2] * 1000,
        "p99_ms": taken[min(count - 1, count * 99 // 100)] * 1000,
        "runs_per_s": runs / took,
    }


def main(words: list[str]) -> None:
    with server(words[1]) as url:
        if words[0] == "streams":
            answer = asyncio.run(streams(url, int(words[2])))
        else:
            answer = asyncio.run(status(url, int(words[2]), int(words[3])))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
