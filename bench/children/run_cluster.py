"""Some servers, each with its worker, on one store, and runs that are handed to them in turn; prints what it took as JSON.

FILE HOME SERVERS RUNS
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from bench.children.run_arclog import read

#: runs that are asked for at a time
AT_A_TIME = 50


async def cluster(file: str, home: str, servers: int, runs: int) -> dict[str, Any]:
    from arclog.client import AsyncClient

    started = await asyncio.gather(*(up(f"{home}-{number}") for number in range(servers)))
    clients = [AsyncClient(url) for _, url in started]
    text = read(file)
    places = asyncio.Semaphore(AT_A_TIME)

    async def one(number: int) -> str:
        client = clients[number % servers]
        async with places:
            run = await client.start(text)
            await client.ended(run.execution_id)
            return (await client.status(run.execution_id)).state

    await asyncio.gather(*(one(number) for number in range(servers)))  # both are warm
    t0 = time.perf_counter()
    states = await asyncio.gather(*(one(number) for number in range(runs)))
    run_s = time.perf_counter() - t0
    for client in clients:
        await client.close()
    for process, _ in started:
        process.terminate()
        await process.wait()
    return {"run_s": run_s, "completed": states.count("COMPLETED")}


async def up(home: str) -> tuple[asyncio.subprocess.Process, str]:
    words = (sys.executable, "-m", "arclog.cli.main", "up", "--home", home, "--port", "0")
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    async for line in process.stdout:
        match = re.search(r"http://[\w.:]+", line.decode())
        if match:
            return process, match.group()
    raise RuntimeError("arclog up said no address")


if __name__ == "__main__":
    print(json.dumps(asyncio.run(cluster(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
