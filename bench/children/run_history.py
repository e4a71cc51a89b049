"""Work on recorded runs, in a process of its own and on a home of its own. Usage: run_history.py EVENTS SHORT STEPS

A run of about EVENTS events is retried, forked and replayed; two of about SHORT events are compared; a chain of STEPS steps is
simulated.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import Any

from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest, ForkRequest
from arclog.ports.views.history import SimulateRequest
from arclog.wiring.embedded import embedded

#: Events of an item: its start and end, and those of its task.
_AN_ITEM = 4

LOOP = """
metadata: {name: loop}
workload: {items: 10}
workflow:
  - step: start
    tool: {kind: noop}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(workload.items) }}", iterator: n, spec: {mode: parallel, max_in_flight: 10}}
    tool: {kind: noop, data: "{{ iter.n }}"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, data: 1}}
"""
CHAIN = """
metadata: {name: chain}
workload: {steps: 10}
workflow:
  - step: a
    tool: {name: t, kind: noop, data: 1, spec: {set_ctx: {n: "{{ ctx.n | default(0) + 1 }}"}}}
    next: {arcs: [{step: b, when: "{{ ctx.n * 2 < workload.steps }}"}]}
  - {step: b, tool: {kind: noop, data: "{{ ctx.n }}"}, next: {arcs: [{step: a}]}}
"""


async def ran(api: Any, text: str, **workload: int) -> tuple[str, int]:
    started = await api.execute(ExecuteRequest(playbook=text, workload=workload))
    await api.ended(started.execution_id)
    return started.execution_id, (await api.state(started.execution_id)).head


async def main(events: int, short: int, steps: int) -> dict[str, float]:
    samples: dict[str, float] = {}
    async with embedded(Settings({"home": "home"})) as embedding:
        api = embedding.api

        async def timed(name: str, work: Any) -> Any:
            began, used = time.perf_counter(), time.process_time()
            answer = await work
            samples[name] = time.perf_counter() - began
            samples[name.replace("_s", "_cpu_s")] = time.process_time() - used
            return answer

        await embedding.start_worker(unattended=True)
        long, samples["events"] = await ran(api, LOOP, items=events // _AN_ITEM)
        short_run, samples["short_events"] = await ran(api, LOOP, items=short // _AN_ITEM)
        two, _ = await ran(api, LOOP, items=short // _AN_ITEM)
        chain, _ = await ran(api, CHAIN, steps=steps)
        await timed("retry_s", api.fork(long, ForkRequest(step="end")))
        await timed("fork_s", api.fork(long, ForkRequest(at=int(samples["events"]) - 10)))
        check = await timed("replay_s", api.replay(long))
        samples["replayed"] = float(check.ok)
        await timed("diff_s", api.diff(short_run, two))
        report = await timed("simulate_s", api.simulate(SimulateRequest(CHAIN, runs=[chain])))
        samples["simulated"], samples["same"] = float(report.steps), float(report.ok)
        await timed("search_s", api.search(types=("task.done",), limit=100))
    return samples


if __name__ == "__main__":
    gc.set_threshold(50_000, 20, 100)  # as the command line has it
    print(json.dumps(asyncio.run(main(*map(int, sys.argv[1:4])))))
