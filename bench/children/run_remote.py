"""A server in this process, a worker in another one, and one run between them; prints what it took as JSON.

FILE HOME
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from bench.children.run_arclog import all_events, at, facts, read


async def remote(file: str, home: str) -> dict[str, Any]:
    from arclog.client import AsyncClient
    from arclog.wiring.serving.server import serve
    from arclog.wiring.settings import load_settings

    settings = load_settings({"home": home, "server.port": 0})
    started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    serving = asyncio.ensure_future(serve(settings, with_worker=False, started=started, stop=stop))
    await asyncio.wait((serving, started), return_when=asyncio.FIRST_COMPLETED)
    url = started.result()
    command = (sys.executable, "-m", "arclog.cli.main", "worker", "--server", url, "--home", f"{home}-worker")
    worker = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert worker.stdout is not None
    await worker.stdout.readline()
    async with AsyncClient(url) as client:
        t0 = time.perf_counter()
        run = await client.start(read(file))
        await client.ended(run.execution_id)
        run_s = time.perf_counter() - t0
        status = await client.status(run.execution_id)
        events = await all_events(client, run.execution_id)
    worker.terminate()
    left = await worker.wait()
    stop.set()
    await serving
    return {"run_s": run_s, "state": status.state, "left": left, **paces(events), **facts(events)}


def paces(events: list[dict[str, Any]]) -> dict[str, float]:
    """From the end of a step to the end of the next, which holds one report there and back and one durable commit."""
    from itertools import pairwise
    from statistics import quantiles

    ends = [at(event) for event in events if event["event_type"] == "step.done"]
    cut = quantiles([(later - earlier) * 1000 for earlier, later in pairwise(ends)], n=100)
    return {"step_p50_ms": cut[49], "step_p95_ms": cut[94]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(remote(*sys.argv[1:3]))))
