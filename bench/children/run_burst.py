"""HOME timers|schedules COUNT SECONDS SERVERS: so many that are due at the same moment, in so many seconds; how long until all have fired.
HOME beside: a second server, until its input ends.

The runs that wait are copies of one, so no state of them is in memory. Meanwhile one run after the other goes through a
chain of steps; the 99th percentile of their steps is what others feel of the burst. They have a pool of their own, whose worker
is in the same process: what is measured is not how long a queue of ten thousand commands is.

A second server has a process and a home of its own on the same PostgreSQL, and a worker as the first one has. The first one has the
duty of the timers.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
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


async def timers(home: str, count: int, prepared_s: int, servers: int) -> dict[str, Any]:
    text = HEAD.format(name="waiting") + f"  - step: start\n    tool: {{kind: wait, for_s: {prepared_s}}}\n"
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.start_worker()
        waiting = (await embedding.api.execute(ExecuteRequest(text))).execution_id
        head = 0
        while not (due := await embedding.engine.store.next_due()):
            head = await embedding.api.wait(waiting, after=head)
        await copied_runs.make_spans(embedding.engine.store, count, int(waiting))
    copied_runs.copy(home, {int(waiting): tuple(range(1, count))})
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.start_worker()
        fired = 0

        def on_committed(_: State, events: Sequence[Event]) -> None:
            nonlocal fired
            fired += any(event.type == "timer.fired" for event in events)

        embedding.engine.hints.on_committed.append(on_committed)

        async def is_over() -> bool:
            return await embedding.engine.store.next_due() is None

        async with _beside(home, servers) as pid:
            answer = await _burst(embedding, due / MICROS, is_over, pid)
        return {**answer, "fired": await _fired(embedding, count), "share": fired / count}


async def _fired(embedding: Embedded, count: int) -> int:
    """Runs that waited and have ended, once."""
    store, before = embedding.engine.store, 0
    ended: list[int] = []
    while page := await store.executions(ExecutionFilter(states=("COMPLETED",), name="waiting"), before=before):
        ended += [each.execution_id for each in page]
        before = ended[-1]
    some = [await store.events(each, types=["timer.fired"]) for each in ended[:: max(count // 100, 1)]]
    return len(ended) if all(len(each) == 1 for each in some) else -1


async def schedules(home: str, count: int, prepared_s: int, servers: int) -> dict[str, Any]:
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.api.register(RegisterRequest(SHORT))
        settings = embedding.engine.settings
        tenant, project, environment = (settings.text(f"scope.{each}") for each in ("tenant", "project", "environment"))
        due = time.time() + prepared_s
        now = embedding.engine.clock.now()
        names = [f"s{number:06}" for number in range(count)]
        for first in range(0, count, 500):
            made = [
                Schedule(
                    *(tenant, project, environment, name, "0 0 29 2 *", "UTC", "flows/short", now),
                    next_due=round(due * MICROS),
                )
                for name in names[first : first + 500]
            ]
            await asyncio.gather(*map(embedding.engine.store.add_schedule, made))
        await embedding.start_worker()
        embedding.start_scheduler()

        started: set[int] = set()

        def on_committed(state: State, _: Sequence[Event]) -> None:
            if "schedule" in state.workload:
                started.add(state.execution_id)

        embedding.engine.hints.on_committed.append(on_committed)

        async def is_over() -> bool:
            # Those that are being fired come first.
            [first] = await embedding.engine.store.next_schedules(tenant, 1)
            return first.firing is None and (first.next_due or 0) > round(due * MICROS)

        async with _beside(home, servers) as pid:
            answer = await _burst(embedding, due, is_over, pid)
        fired, before = 0, 0
        while page := await embedding.engine.store.executions(ExecutionFilter(name="short"), before=before):
            fired, before = fired + len(page), page[-1].execution_id
        return {**answer, "fired": fired, "share": len(started) / count}


@asynccontextmanager
async def _beside(home: str, servers: int) -> AsyncIterator[int]:
    """The process of the second server, if there is one; else 0."""
    if servers == 1:
        yield 0
        return
    pipe = asyncio.subprocess.PIPE
    words = (sys.executable, __file__, f"{home}-2", "beside")
    process = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"ready\n":
            raise SystemExit("the second server did not start")
        yield process.pid
    finally:
        process.stdin.close()
        await process.wait()


async def beside(home: str) -> None:
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.start_worker()
        embedding.start_scheduler()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def _burst(
    embedding: Embedded, due: float, is_over: Callable[[], Awaitable[bool]], beside_pid: int
) -> dict[str, Any]:
    if (left := due - time.time()) < 1:
        raise SystemExit(f"what waits was made {1 - left:.1f} s too late: give it more seconds")
    steps: list[tuple[int, float]] = []
    alongside = asyncio.ensure_future(_alongside(embedding, steps))
    await asyncio.sleep(due - time.time())
    del steps[:]
    cpu = time.process_time() + cpu_s(beside_pid)
    while not await is_over():  # noqa: ASYNC110 - the store is asked
        await asyncio.sleep(LOOK_S)
    took, cpu = time.time() - due, time.process_time() + cpu_s(beside_pid) - cpu
    alongside.cancel()
    await asyncio.gather(alongside, return_exceptions=True)
    # What lies between two runs is no step.
    gaps = sorted(later - earlier for (run, earlier), (following, later) in pairwise(steps) if run == following)
    p99 = gaps[len(gaps) * 99 // 100] * 1000 if gaps else None
    return {"took_s": took, "cpu_s": cpu, "steps": len(steps), "step_p99_ms": p99}


async def _alongside(embedding: Embedded, steps: list[tuple[int, float]]) -> None:
    """Run after run; the runs and moments at which their steps were done."""
    text = chain("alongside", STEPS).replace("\n    tool:", f"\n    spec: {{pool: {POOL}}}\n    tool:")
    toolbox = embedding._tools()
    info = WorkerInfo("alongside", toolbox.kinds, (POOL,), slots=1)
    worker = Worker(
        info, embedding.worker_control, toolbox, embedding.results, embedding.engine.clock, embedding.engine.settings
    )
    working = asyncio.ensure_future(worker.run())

    def on_committed(state: State, events: Sequence[Event]) -> None:
        if "alongside" in state.workload and any(event.type == "step.done" for event in events):
            steps.append((state.execution_id, time.perf_counter()))

    embedding.engine.hints.on_committed.append(on_committed)
    try:
        while True:
            started = await embedding.api.execute(ExecuteRequest(text, workload={"alongside": True}))
            await embedding.api.ended(started.execution_id)
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def cpu_s(pid: int) -> float:
    """The CPU time of another process so far; 0 without one."""
    if not pid:
        return 0.0
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        user, system = file.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main(argv: list[str]) -> None:
    match argv:
        case [home, "timers", count, seconds, servers]:
            answer = run(timers(home, int(count), int(seconds), int(servers)))
        case [home, "schedules", count, seconds, servers]:
            answer = run(schedules(home, int(count), int(seconds), int(servers)))
        case [home, "beside"]:
            run(beside(home))
            return
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
