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
from arclog.ports.views.api import ExecuteRequest, ForkRequest, RegisterRequest, SignalRequest
from arclog.ports.views.overview import RunQuery
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
#: the store is quiet if nothing reads it for so long
QUIET_S = 0.2
QUIET_WITHIN_S = 60.0
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
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.start_worker()
        ended = await whole(embedding, chain("chain", 5))
        failed = await whole(embedding, FAILING)
        waiting = int((await embedding.api.execute(ExecuteRequest(WAITING))).execution_id)
        head = 0
        while not await embedding.engine.store.next_due():
            head = await embedding.api.wait(str(waiting), after=head)
        await embedding.api.register(RegisterRequest(SHORT))
        await add_schedules(embedding, runs // 10)
        await copied_runs.make_spans(embedding.engine.store, runs, waiting)
        for apart in range(1, COLLECTED + 1):
            await copied_runs.make_spans(embedding.engine.store, OLD, ((waiting >> 22) - apart * APART_MS) << 22)
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


async def add_schedules(embedding: Embedded, count: int) -> None:
    """Each is due next year."""
    scope = embedding.engine.settings
    now = embedding.engine.clock.now()

    def schedule(number: int) -> Schedule:
        tenant, project, environment = (scope.text(f"scope.{each}") for each in ("tenant", "project", "environment"))
        return rules.resumed(
            Schedule(tenant, project, environment, f"s{number:07}", YEARLY, "UTC", "flows/short", now), now
        )

    for first in range(0, count, 200):
        numbers = range(first, min(first + 200, count))
        await asyncio.gather(*(embedding.engine.store.add_schedule(schedule(number)) for number in numbers))


async def whole(embedding: Embedded, text: str) -> int:
    started = await embedding.api.execute(ExecuteRequest(text))
    await embedding.api.ended(started.execution_id)
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


async def until_quiet() -> None:
    """Wait until no page is visited for a while: after its start, a server looks at all runs that have not ended, once."""
    before, deadline = -1, time.monotonic() + QUIET_WITHIN_S
    while (visited := pages_visited()) != before:
        if time.monotonic() > deadline:
            raise SystemExit(f"the store was still being read {QUIET_WITHIN_S:g} s after the start")
        before = visited
        await asyncio.sleep(QUIET_S)


async def measure(home: str, rounds: int) -> dict[str, Any]:
    measured = Measured(rounds)
    began = time.perf_counter()
    async with embedded(load_settings({"home": home, "schedules.max_per_tenant": 10**9})) as embedding:
        await embedding.free_dead()
        await embedding.start_worker()
        embedding.start_scheduler()
        await whole(embedding, SHORT)
        measured.ms["start, to the end of a first run"] = (time.perf_counter() - began) * 1000
        await until_quiet()
        await measure_work(embedding, measured)
        await measure_control(embedding, measured)
        await measure_reads(embedding, measured)
        await measure_overview(embedding, measured)
        await measure_history(embedding, measured)
        await measure_schedules(embedding, measured)
        # The look at all pages of a file takes as long as the file is large, up to a limit; and it looks at the oldest 2,000 runs
        # that have not ended, which the smallest store does not have.
        settings = load_settings({"home": home, "doctor.pages_s": 0.0})
        await measured("doctor, without a look at all pages", lambda: diagnosed(settings, embedding), rounds=5)
        del measured.pages["doctor, without a look at all pages"]
    return {"ms": measured.ms, "pages": {} if os.environ.get("ARCLOG_STORE_URL") else measured.pages}


async def finish(home: str) -> dict[str, Any]:
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.start_worker()
        embedding.start_scheduler()
        await whole(embedding, SHORT)
        cpu = time.process_time()
        await asyncio.sleep(IDLE_S)
        idle = 100 * (time.process_time() - cpu) / IDLE_S
        # The oldest first. Its commits wait for the disk and, on PostgreSQL, for locks, so that the quickest counts.
        now = embedding.engine.clock.now()
        collected = [
            await collect(embedding, now - (apart * 1000 - 500) * APART_MS) for apart in range(COLLECTED, 0, -1)
        ]
    removed, took_ms, pages = zip(*collected, strict=True)
    what = f"gc, {OLD} runs"
    return {
        "ms": {what: min(took_ms)},
        "pages": {} if os.environ.get("ARCLOG_STORE_URL") else {what: min(pages)},
        "idle_percent": idle,
        "removed": sum(removed),
    }


async def measure_work(embedding: Embedded, measured: Measured) -> None:
    await measured("execute, one step", lambda: whole(embedding, SHORT))
    await measured(
        "a step of a chain", lambda: whole(embedding, chain("long", 20)), per=20, rounds=max(measured.rounds // 3, 3)
    )
    await measured("execute, a timer of 10 ms", lambda: whole(embedding, TIMER))
    queued = [(await embedding.api.execute(ExecuteRequest(ELSEWHERE))).execution_id for _ in range(2 * measured.rounds)]
    worker = WorkerInfo("growth", ("noop",), ("elsewhere",))
    await measured("claim", lambda: embedding.control.claim(worker, 1))
    left = iter(queued)
    await measured("cancel", lambda: embedding.api.cancel(next(left), "measured"))


async def measure_control(embedding: Embedded, measured: Measured) -> None:
    """What workers and operators send about a run."""
    control, api = embedding.control, embedding.api
    await api.execute(ExecuteRequest(ELSEWHERE))
    worker = WorkerInfo("holder", ("noop",), ("elsewhere",))
    (command,) = await control.claim(worker, 1)
    held = [(command.command_id, command.fence)]
    await measured("heartbeat", lambda: control.heartbeat("holder", held))

    async def give_back() -> None:
        (taken,) = await control.claim(worker, 1)
        await control.give_back("holder", taken.execution_id, taken.command_id, taken.fence)

    await control.give_back("holder", command.execution_id, command.command_id, command.fence)
    await measured("claim and give back", give_back)
    waiting = await run_of(embedding, "flows/waiting")

    async def pause_and_resume() -> None:
        for name in ("PAUSE", "RESUME"):
            answer = await api.signal(waiting, SignalRequest(name))
            if not answer.accepted:
                raise SystemExit(f"{name} was refused: {answer.message}")

    await measured("signals: pause and resume", pause_and_resume)


async def run_of(embedding: Embedded, path: str, *states: str) -> str:
    """The newest run of a playbook."""
    (record,) = await embedding.engine.store.executions(ExecutionFilter(states=states, path=path), limit=1)
    return str(record.execution_id)


def time_of(run_id: str) -> str:
    """When a run was requested (RFC 3339)."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime((int(run_id) >> 22) / 1000 + EPOCH_MS / 1000))


async def measure_reads(embedding: Embedded, measured: Measured) -> None:
    api = embedding.api
    one, other = await run_of(embedding, "flows/chain", "COMPLETED"), await run_of(embedding, "flows/waiting")
    since = time_of(one)
    await measured("list", api.list)
    for state in ("RUNNING", "FAILED", "CANCELLED", "PENDING"):
        await measured(f"list --state {state}", partial(api.list, states=(state,)))
    await measured("list --path, few of it", lambda: api.list(path="flows/elsewhere"))
    await measured("list --path, none of it", lambda: api.list(path="flows/none"))
    await measured("list --name, few of it", lambda: api.list(name="elsew"))
    await measured("list --name, none of it", lambda: api.list(name="none"))
    await measured("list --since", lambda: api.list(since=since))
    await measured("list --parent", lambda: api.list(parent=one))
    await measured("show", lambda: api.summary(one))
    await measured("status", lambda: api.status(one))
    await measured("events", lambda: api.events(one))
    await measured("why", lambda: api.why(other))
    await measured("state --at", lambda: api.state(one, 20))


async def measure_overview(embedding: Embedded, measured: Measured) -> None:
    """What the console's pages ask for."""
    api, pools = embedding.api, embedding.pools()
    await measured("search for runs, none found", lambda: api.find(RunQuery(text="no run has this in its name")))
    await measured("activity of a day", api.activity)
    await measured("failing playbooks", api.failing)
    await measured("work that nobody claims", api.stuck)
    await measured("leases", api.leases)
    await measured("approvals", api.approvals)
    await measured("statistics of a playbook", lambda: api.stats("flows/chain"))
    await measured("catalog", api.catalog)
    await measured("versions of a playbook", lambda: api.versions("flows/short"))
    await measured("pools", pools.pools)
    await measured("workers", pools.workers)


async def measure_history(embedding: Embedded, measured: Measured) -> None:
    """Recorded runs, and searches through the events of all runs."""
    api = embedding.api
    one = await run_of(embedding, "flows/chain", "COMPLETED")
    failed = await run_of(embedding, "flows/failing")
    since = time_of(one)

    async def whole_fork(run_id: str, request: ForkRequest) -> None:
        await api.ended((await api.fork(run_id, request)).execution_id)

    await measured("fork", lambda: whole_fork(one, ForkRequest(at=10)))
    await measured("retry --failed", lambda: whole_fork(failed, ForkRequest(failed=True)))
    await measured("replay", lambda: api.replay(one))
    await measured("diff", lambda: api.diff(one, failed))
    await measured("logs", lambda: api.logs(failed))
    await measured("search, a type", lambda: api.search(types=("step.done",), since=since))
    await measured("search, a rare type", lambda: api.search(types=("execution.cancelled",)))
    await measured("search, an entity", lambda: api.search(entity="step:s4", since=since))


async def measure_schedules(embedding: Embedded, measured: Measured) -> None:
    api = embedding.schedules()
    assert isinstance(api, EngineSchedules)
    numbers = iter(range(10**6))
    await measured(
        "schedule add", lambda: api.add(NewSchedule(f"new{next(numbers)}-{time.time_ns()}", YEARLY, "flows/short"))
    )
    await measured("schedule list, 50", lambda: api.list(limit=50))
    now = embedding.engine.clock.now()
    await measured("schedules: what is due", lambda: embedding.engine.store.lease_schedules("growth", now, now + 1000))


async def collect(embedding: Embedded, before: int) -> tuple[int, float, int]:
    """Remove runs that ended before a moment. Returns their number, the milliseconds that the store took, and the pages that it visited."""
    removed, took_s, visited = 0, 0.0, 0
    while True:
        pages, began = pages_visited(), time.perf_counter()
        count = await embedding.engine.store.retire(before)
        took_s += time.perf_counter() - began
        visited += pages_visited() - pages
        if not count:
            return removed, took_s * 1000, visited
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
