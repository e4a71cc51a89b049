"""Runs a long cycle of steps, then reads its log again: cost by tenth of the run, and the time that a resume takes.

STEPS FILE HOME
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any


async def main(steps: int, file: str, home: str) -> dict[str, Any]:
    from arclog.ports.views.api import ExecuteRequest
    from arclog.wiring.embedded import embedded
    from arclog.wiring.settings import load_settings

    text = read(file)
    async with embedded(load_settings({"home": home})) as embedding:
        started = await embedding.api.execute(ExecuteRequest(playbook=text, file=file, workload={"laps": steps // 2}))
        t0 = time.perf_counter()
        await embedding.start_worker(started.execution_id)
        while not await embedding.api.ended(started.execution_id, timeout_s=5):
            if embedding.worker is not None and embedding.worker.done():
                embedding.worker.result()
        run_s = time.perf_counter() - t0
        state = (await embedding.api.status(started.execution_id)).state
        ends = await step_ends(embedding.api, started.execution_id)
    with_snapshot = await fold(home, started.execution_id, {})
    from_log = await fold(home, started.execution_id, {"engine.snapshot_events": 0})
    return {
        "state": state,
        "steps": len(ends),
        "run_s": run_s,
        "growth": growth(ends),
        "events": from_log[1],
        "same": with_snapshot[2] == from_log[2],
        "resume_s": with_snapshot[0],
        "fold_s": from_log[0],
    }


def read(file: str) -> str:
    with open(file, encoding="utf-8") as opened:
        return opened.read()


async def fold(home: str, execution_id: str, more: dict[str, Any]) -> tuple[float, int, bytes]:
    """Seconds until a new process could go on with the run."""
    from arclog.engine.commits.snapshots import encode_state
    from arclog.wiring.embedded import embedded
    from arclog.wiring.settings import load_settings

    async with embedded(load_settings({"home": home, **more}), read_only=True) as embedding:
        t0 = time.perf_counter()
        live = await embedding.engine.live.folded(int(execution_id))
        return time.perf_counter() - t0, live.state.head, encode_state(live.state)


async def step_ends(api: Any, execution_id: str) -> list[float]:
    event_times: list[float] = []
    after = 0
    while page := await api.events(execution_id, after=after, limit=5000, types=("step.done",)):
        event_times += [datetime.fromisoformat(event["timestamp"]).timestamp() for event in page]
        after = page[-1]["seq"]
    return event_times


def growth(ends: Sequence[float]) -> float:
    """Time of the last tenth over that of the second: the first one also warms up."""
    tenth = len(ends) // 10
    return (ends[-1] - ends[-1 - tenth]) / (ends[2 * tenth] - ends[tenth])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3]))))
