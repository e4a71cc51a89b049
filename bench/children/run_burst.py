"""HOME timers|schedules COUNT SECONDS: so many that are due at the same moment, in so many seconds; how long until all have fired.

The runs that wait are copies of one, so no state of them is in memory. Meanwhile one run after the other goes through a
chain of steps; the 99th percentile of their steps is what others feel of the burst. They have a pool of their own, whose worker
is in the same process: what is measured is not how long a queue of ten thousand commands is.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any

from arclog.core.transitions.state import State
from arclog.model.config.schedules import Schedule
from arclog.model.events import Event
from arclog.model.ids import MICROS
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.store import ExecutionFilter
from arclog.ports.views.api import ExecuteRequest, RegisterRequest
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.process import run
from arclog.wiring.settings import load_settings
from arclog.worker.runner import Worker

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from bench.children import copied_runs  # noqa: E402 - its path is set above
from bench.children.run_growth import HEAD, SHORT, chain  # noqa: E402 - its path is set above

STEPS = 100
POOL = "alongside"
LOOK_S = 0.05


async def timers(home: str, count: int, prepared_s: int) -> dict[str, Any]:
    text = HEAD.format(name="waiting") + f"  - step: start\n    tool: {{kind: wait, for_s: {prepared_s}}}\n"
    async with embedded(load_settings({"home": home})) as here:
        await here.start_worker()
        waiting = (await here.api.execute(ExecuteRequest(text))).execution_id
        head = 0
        while not (due := await here.engine.store.next_due()):
            head = await here.api.wait(waiting, after=head)
        await copied_runs.make_spans(here.engine.store, count, int(waiting))
    copied_runs.copy(home, {int(waiting): tuple(range(1, count))})
    async with embedded(load_settings({"home": home})) as here:
        await here.start_worker()
        left = due / MICROS - time.time()
        if left < 1:
            raise SystemExit(f"the runs were made {1 - left:.1f} s too late: give them more than {prepared_s} s")

        async def is_over() -> bool:
            return await here.engine.store.next_due() is None

        answer = await _burst(here, due / MICROS, is_over)
        return {**answer, "fired": await _fired(here, count)}


async def _fired(here: Embedded, count: int) -> int:
    """Runs that waited and have ended, once."""
    store, before = here.engine.store, 0
    ended: list[int] = []
    while page := await store.executions(ExecutionFilter(states=("COMPLETED",), name="waiting"), before=before):
        ended += [each.execution_id for each in page]
        before = ended[-1]
    some = [await store.events(each, types=["timer.fired"]) for each in ended[:: max(count // 100, 1)]]
    return len(ended) if all(len(each) == 1 for each in some) else -1


async def schedules(home: str, count: int, prepared_s: int) -> dict[str, Any]:
    async with embedded(load_settings({"home": home})) as here:
        await here.api.register(RegisterRequest(SHORT))
        settings = here.engine.settings
        tenant, project, environment = (settings.text(f"scope.{each}") for each in ("tenant", "project", "environment"))
        due = time.time() + prepared_s
        now = here.engine.clock.now()
        names = [f"s{number:06}" for number in range(count)]
        for first in range(0, count, 500):
            made = [
                Schedule(
                    *(tenant, project, environment, name, "0 0 29 2 *", "UTC", "flows/short", now),
                    next_due=round(due * MICROS),
                )
                for name in names[first : first + 500]
            ]
            await asyncio.gather(*map(here.engine.store.add_schedule, made))
        await here.start_worker()
        here.start_scheduler()

        started: set[int] = set()

        def on_committed(state: State, _: Sequence[Event]) -> None:
            if "schedule" in state.workload:
                started.add(state.execution_id)

        here.engine.hints.on_committed.append(on_committed)

        async def is_over() -> bool:
            return len(started) >= count

        left = due - time.time()
        if left < 1:
            raise SystemExit(f"the schedules were made {1 - left:.1f} s too late: give them more than {prepared_s} s")
        return {**await _burst(here, due, is_over), "fired": len(started)}


async def _burst(here: Embedded, due: float, is_over: Callable[[], Awaitable[bool]]) -> dict[str, Any]:
    steps: list[tuple[int, float]] = []
    alongside = asyncio.ensure_future(_alongside(here, steps))
    await asyncio.sleep(due - time.time())
    del steps[:]
    cpu = time.process_time()
    while not await is_over():  # noqa: ASYNC110 - the store is asked
        await asyncio.sleep(LOOK_S)
    took, cpu = time.time() - due, time.process_time() - cpu
    alongside.cancel()
    await asyncio.gather(alongside, return_exceptions=True)
    # What lies between two runs is no step.
    gaps = sorted(later - earlier for (run, earlier), (following, later) in pairwise(steps) if run == following)
    p99 = gaps[len(gaps) * 99 // 100] * 1000 if gaps else None
    return {"took_s": took, "cpu_s": cpu, "steps": len(steps), "step_p99_ms": p99}


async def _alongside(here: Embedded, steps: list[tuple[int, float]]) -> None:
    """Run after run; the runs and moments at which their steps were done."""
    text = chain("alongside", STEPS).replace("\n    tool:", f"\n    spec: {{pool: {POOL}}}\n    tool:")
    toolbox = here._tools()
    info = WorkerInfo("alongside", toolbox.kinds, (POOL,), slots=1)
    worker = Worker(info, here.worker_control, toolbox, here.results, here.engine.clock, here.engine.settings)
    working = asyncio.ensure_future(worker.run())

    def on_committed(state: State, events: Sequence[Event]) -> None:
        if "alongside" in state.workload and any(event.type == "step.done" for event in events):
            steps.append((state.execution_id, time.perf_counter()))

    here.engine.hints.on_committed.append(on_committed)
    try:
        while True:
            started = await here.api.execute(ExecuteRequest(text, workload={"alongside": True}))
            await here.api.ended(started.execution_id)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def main(argv: list[str]) -> None:
    match argv:
        case [home, "timers", count, seconds]:
            answer = run(timers(home, int(count), int(seconds)))
        case [home, "schedules", count, seconds]:
            answer = run(schedules(home, int(count), int(seconds)))
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
