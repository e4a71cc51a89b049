"""FILE HOME PROCESSES RUNS: `arclog server --processes N` on PostgreSQL and one worker over HTTP; so many runs at the same time.
Prints how long all of them took, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import httpx2
import psycopg

from arclog.wiring.loop import run

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from bench.children.run_arclog import read

#: requests of the program that starts the runs, at a time
AT_A_TIME = 32
LOOK_S = 0.05
OVER = "SELECT count(*) FILTER (WHERE over), count(*) FILTER (WHERE state = 'COMPLETED') FROM arclog.executions"


async def processes(file: str, home: str, count: int, runs: int) -> dict[str, Any]:
    body = {"playbook": read(file)}
    pipe, nowhere = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    server = await _started(pipe, "server", "--port", "0", "--json", "--home", home, "--processes", str(count))
    assert server.stdout is not None
    url = json.loads(await server.stdout.readline())["url"]
    draining = asyncio.ensure_future(server.stdout.read())  # a full pipe would stop it
    worker = await _started(nowhere, "worker", "--server", url, "--slots", str(runs))
    limits = httpx2.Limits(max_connections=AT_A_TIME)
    places = asyncio.Semaphore(AT_A_TIME)
    try:
        async with (
            httpx2.AsyncClient(base_url=url, timeout=60, limits=limits, trust_env=False) as client,
            await psycopg.AsyncConnection.connect(os.environ["ARCLOG_STORE_URL"], autocommit=True) as connection,
        ):

            async def start() -> None:
                async with places:
                    (await client.post("/api/executions", json=body)).raise_for_status()

            async def until(wanted: int) -> int:
                while True:
                    over, completed = await (await connection.execute(OVER)).fetchone() or (0, 0)
                    if over >= wanted:
                        return int(completed)
                    await asyncio.sleep(LOOK_S)

            await asyncio.gather(*(start() for _ in range(count * 4)))  # every process is warm
            await until(count * 4)
            began = time.perf_counter()
            await asyncio.gather(*(start() for _ in range(runs)))
            completed = await until(count * 4 + runs) - count * 4
            return {"run_s": time.perf_counter() - began, "completed": completed}
    finally:
        for process in (worker, server):
            process.terminate()
            await process.wait()
        await draining


async def _started(stdout: int, *words: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "arclog.cli.main", *words)
    return await asyncio.create_subprocess_exec(*command, stdout=stdout, stderr=asyncio.subprocess.DEVNULL)


if __name__ == "__main__":
    print(json.dumps(run(processes(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
