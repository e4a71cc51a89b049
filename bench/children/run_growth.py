"""HOME fill RUNS | HOME measure ROUNDS | HOME finish: a store with so many runs, and what each operation takes on it.

`measure` can be repeated; `finish` measures what happens once: an idle server, and the collection of old runs. On SQLite the pages
that an operation visits are counted, too: other work on the machine does not change them.

A tenth of the runs wait for a timer that is years away; of the others one in sixteen failed. There is a schedule for every
ten runs. The oldest runs lie apart, in `COLLECTED` groups of `OLD`, for `gc` to remove. Of all rounds, that counts which a tenth of them
were below.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import apsw

from arclog.core.boundary import schedules as rules
from arclog.engine.runs.schedules import EngineSchedules
from arclog.model.config.schedules import Schedule
from arclog.model.ids import EPOCH_MS
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.schedules import NewSchedule
from arclog.ports.storage.store import ExecutionFilter
from arclog.ports.views.api import ExecuteRequest, RegisterRequest
from arclog.wiring.doctor import diagnosed
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.process import run
from arclog.wiring.settings import load_settings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from bench.children import copied_runs  # noqa: E402 - its path is set above

HEAD = "apiVersion: noetl.io/v10\nkind: Playbook\nmetadata: {{name: {name}, path: flows/{name}}}\nworkflow:\n"
#: runs that gc removes at a time, so many milliseconds before the others and before each other
OLD, APART_MS = 400, 1_000_000_000
#: how often it does
COLLECTED = 3
WAITING = HEAD.format(name="waiting") + "  - step: start\n    tool: {kind: wait, for_s: 300000000}\n"
FAILING = (
    HEAD.format(name="failing") + '  - step: start\n    tool: {kind: python, code: "def main(): raise ValueError(1)"}\n'
)
ELSEWHERE = HEAD.format(name="elsewhere") + "  - step: start\n    spec: {pool: elsewhere}\n    tool: {kind: noop}\n"
TIMER = HEAD.format(name="timer") + "  - step: start\n    tool: {kind: wait, for_s: 0.01}\n"
SHORT = HEAD.format(name="short") + "  - step: start\n    tool: {kind: noop}\n"
#: looked at when nothing happens
IDLE_S = float(os.environ.get("GROWTH_IDLE_S", "10"))
FAILED = 16
YEARLY = "0 0 1 1 *"


def chain(name: str, steps: int) -> str:
    names = ["start", *(f"s{number}" for number in range(1, steps))]
    parts = [f"  - step: {name}\n    tool: {{kind: noop}}\n" for name in names]
    for number, following in enumerate(names[1:]):
        parts[number] += f"    next: {{arcs: [{{step: {following}}}]}}\n"
    return HEAD.format(name=name) + "".join(parts)


async def fill(home: str, runs: int) -> dict[str, Any]:
    began = time.perf_counter()
    async with embedded(load_settings({"home": home})) as here:
        await here.start_worker()
        ended = await whole(here, chain("chain", 5))
        failed = await whole(here, FAILING)
        waiting = int((await here.api.execute(ExecuteRequest(WAITING))).execution_id)
        head = 0
        while not await here.engine.store.next_due():
            head = await here.api.wait(str(waiting), after=head)
        await here.api.register(RegisterRequest(SHORT))
        await add_schedules(here, runs // 10)
        await copied_runs.make_spans(here.engine.store, runs, waiting)
        for apart in range(1, COLLECTED + 1):
            await copied_runs.make_spans(here.engine.store, OLD, ((waiting >> 22) - apart * APART_MS) << 22)
    waits = max(runs // 10, 1)
    numbers = range(waits + 1, runs - 2)
    copied_runs.copy(
        home,
        {
            waiting: tuple(range(1, waits)),
            failed: tuple(number for number in numbers if number % FAILED == 0),
            ended: (
                *(number for number in numbers if number % FAILED),
                *(
                    apart * APART_MS // copied_runs.SPACING_MS + number
                    for apart in range(1, COLLECTED + 1)
                    for number in range(OLD)
                ),
            ),
        },
    )
    return {"fill_s": time.perf_counter() - began}


async def add_schedules(here: Embedded, count: int) -> None:
    """Each is due next year."""
    scope = here.engine.settings
    now = here.engine.clock.now()

    def schedule(number: int) -> Schedule:
        tenant, project, environment = (scope.text(f"scope.{each}") for each in ("tenant", "project", "environment"))
        return rules.resumed(
            Schedule(tenant, project, environment, f"s{number:07}", YEARLY, "UTC", "flows/short", now), now
        )

    for first in range(0, count, 200):
        numbers = range(first, min(first + 200, count))
        await asyncio.gather(*(here.engine.store.add_schedule(schedule(number)) for number in numbers))


async def whole(here: Embedded, text: str) -> int:
    started = await here.api.execute(ExecuteRequest(text))
    await here.api.ended(started.execution_id)
    return int(started.execution_id)


class Measured:
    """Medians by what was done."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds
        self.ms: dict[str, float] = {}
        #: pages of SQLite's file that an operation visited
        self.pages: dict[str, float] = {}

    async def __call__(self, what: str, work: Callable[[], Awaitable[Any]], per: int = 1, rounds: int = 0) -> None:
        took, visited = [], []
        for _ in range(rounds or self.rounds):
            pages, began = pages_visited(), time.perf_counter()
            await work()
            took.append((time.perf_counter() - began) * 1000 / per)
            visited.append((pages_visited() - pages) / per)
        # Other work on the machine only ever adds.
        self.ms[what] = sorted(took)[len(took) // 10]
        self.pages[what] = sorted(visited)[len(visited) // 10]


def pages_visited() -> int:
    """By all connections of this process to SQLite files; those that are closed are not counted."""
    while True:
        try:
            return sum(
                connection.status(counter)[0]
                for connection in apsw.connections()
                for counter in (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
            )
        except apsw.ThreadingViolationError:  # a thread reads with it right now
            time.sleep(0.0005)


async def measure(home: str, rounds: int) -> dict[str, Any]:
    measured = Measured(rounds)
    began = time.perf_counter()
    async with embedded(load_settings({"home": home, "schedules.max_per_tenant": 10**9})) as here:
        await here.free_dead()
        await here.start_worker()
        here.start_scheduler()
        await whole(here, SHORT)
        measured.ms["start, to the end of a first run"] = (time.perf_counter() - began) * 1000
        await measure_work(here, measured)
        await measure_reads(here, measured)
        await measure_schedules(here, measured)
        # The look at all pages of a file takes as long as the file is large, up to a limit; and it looks at the oldest 2,000 runs
        # that have not ended, which the smallest store does not have.
        settings = load_settings({"home": home, "doctor.pages_s": 0.0})
        await measured("doctor, without a look at all pages", lambda: diagnosed(settings, here), rounds=5)
        del measured.pages["doctor, without a look at all pages"]
    return {"ms": measured.ms, "pages": {} if os.environ.get("ARCLOG_STORE_URL") else measured.pages}


async def finish(home: str) -> dict[str, Any]:
    async with embedded(load_settings({"home": home})) as here:
        await here.start_worker()
        here.start_scheduler()
        await whole(here, SHORT)
        cpu = time.process_time()
        await asyncio.sleep(IDLE_S)
        idle = 100 * (time.process_time() - cpu) / IDLE_S
        # The oldest first. Its commits wait for the disk and, on PostgreSQL, for locks, so that the quickest counts.
        now = here.engine.clock.now()
        collected = [await collect(here, now - (apart * 1000 - 500) * APART_MS) for apart in range(COLLECTED, 0, -1)]
        removed, took_ms = sum(count for count, _ in collected), min(took for _, took in collected)
    return {"ms": {f"gc, {OLD} runs": took_ms}, "idle_percent": idle, "removed": removed}


async def measure_work(here: Embedded, measured: Measured) -> None:
    await measured("execute, one step", lambda: whole(here, SHORT))
    await measured(
        "a step of a chain", lambda: whole(here, chain("long", 20)), per=20, rounds=max(measured.rounds // 3, 3)
    )
    await measured("execute, a timer of 10 ms", lambda: whole(here, TIMER))
    queued = [(await here.api.execute(ExecuteRequest(ELSEWHERE))).execution_id for _ in range(2 * measured.rounds)]
    worker = WorkerInfo("growth", ("noop",), ("elsewhere",))
    await measured("claim", lambda: here.control.claim(worker, 1))
    left = iter(queued)
    await measured("cancel", lambda: here.api.cancel(next(left), "measured"))


async def measure_reads(here: Embedded, measured: Measured) -> None:
    api = here.api
    store = here.engine.store
    (ended,) = await store.executions(ExecutionFilter(states=("COMPLETED",), path="flows/chain"), limit=1)
    (waiting,) = await store.executions(ExecutionFilter(path="flows/waiting"), limit=1)
    one, other = str(ended.execution_id), str(waiting.execution_id)
    day = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((ended.execution_id >> 22) / 1000 + EPOCH_MS / 1000))
    await measured("list", api.list)
    for state in ("RUNNING", "FAILED", "CANCELLED", "PENDING"):
        await measured(f"list --state {state}", partial(api.list, states=(state,)))
    await measured("list --path, few of it", lambda: api.list(path="flows/elsewhere"))
    await measured("list --path, none of it", lambda: api.list(path="flows/none"))
    await measured("list --name, few of it", lambda: api.list(name="elsew"))
    await measured("list --name, none of it", lambda: api.list(name="none"))
    await measured("list --since", lambda: api.list(since=day))
    await measured("list --parent", lambda: api.list(parent=one))
    await measured("show", lambda: api.summary(one))
    await measured("status", lambda: api.status(one))
    await measured("events", lambda: api.events(one))
    await measured("why", lambda: api.why(other))
    await measured("state --at", lambda: api.state(one, 20))


async def measure_schedules(here: Embedded, measured: Measured) -> None:
    api = here.schedules()
    assert isinstance(api, EngineSchedules)
    numbers = iter(range(10**6))
    await measured(
        "schedule add", lambda: api.add(NewSchedule(f"new{next(numbers)}-{time.time_ns()}", YEARLY, "flows/short"))
    )
    await measured("schedule list, 50", lambda: api.list(limit=50))
    now = here.engine.clock.now()
    await measured("schedules: what is due", lambda: here.engine.store.lease_schedules("growth", now, now + 1000))


async def collect(here: Embedded, before: int) -> tuple[int, float]:
    """Remove runs that ended before a moment; how many, and the store's own time for it."""
    removed, took = 0, 0.0
    while True:
        began = time.perf_counter()
        count = await here.engine.store.retire(before)
        took += time.perf_counter() - began
        if not count:
            return removed, took * 1000
        removed += count
        await asyncio.sleep(0)


def main(argv: list[str]) -> None:
    match argv:
        case [home, "fill", runs]:
            answer = run(fill(home, int(runs)))
        case [home, "measure", rounds]:
            answer = run(measure(home, int(rounds)))
        case [home, "finish"]:
            answer = run(finish(home))
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
