"""Runs a playbook with a large loop, then reads its state at moments that are spread over its log, from the store.

FILE HOME
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from statistics import median
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from bench.children.run_arclog import read

MOMENTS = 40
MIB = 1 << 20


async def main(file: str, home: str) -> dict[str, Any]:
    from arclog.ports.views.api import ExecuteRequest
    from arclog.wiring.embedded import embedded
    from arclog.wiring.settings import load_settings

    settings = load_settings({"home": home})
    async with embedded(settings) as embedding:
        started = await embedding.api.execute(ExecuteRequest(playbook=read(file), file=file))
        await embedding.start_worker(started.execution_id)
        while not await embedding.api.ended(started.execution_id, timeout_s=5):
            if embedding.worker is not None and embedding.worker.done():
                embedding.worker.result()
        state = (await embedding.api.status(started.execution_id)).state
        events = (await embedding.api.state(started.execution_id)).head
    taken: list[float] = []
    shown: list[int] = []
    moments = [events * number // MOMENTS for number in range(1, MOMENTS)]
    async with embedded(settings, read_only=True) as embedding:
        for moment in moments:
            began = time.perf_counter()
            shown.append((await embedding.api.state(started.execution_id, moment)).at)
            taken.append(time.perf_counter() - began)
    sizes = _sizes(os.path.join(home, "arclog.db"))
    return {
        "state": state,
        "events": events,
        "moments": moments,
        "shown": shown,
        "slowest_s": max(taken),
        "median_s": median(taken),
        **sizes,
    }


def _sizes(file: str) -> dict[str, float]:
    with sqlite3.connect(file) as connection:
        sums = {
            table: connection.execute(f"SELECT coalesce(sum(length(body)), 0) FROM {table}").fetchone()[0]
            for table in ("log", "snapshots", "past_snapshots")
        }
    return {"log_mib": sums["log"] / MIB, "snapshots_mib": (sums["snapshots"] + sums["past_snapshots"]) / MIB}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(sys.argv[1], sys.argv[2]))))
