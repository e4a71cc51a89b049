"""A server's process under a memory limit, for `test_quarantine`: the kernel kills it when it takes more, or, where nobody may
tell the kernel so, it does that itself. `DIES_AT` names work (a kind of input, `reading` the log, `encoding` or `writing` the events of a step `doomed`) at which it is killed when it does
that for a run that is not healthy.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arclog.core.boundary.inputs import TimerFired
from arclog.engine.commits import decisions as deciding
from arclog.engine.commits import engine as commits
from arclog.engine.commits import live_states as live
from arclog.model.config.settings import Settings
from arclog.model.errors import Poisoned
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.schedules import NewSchedule
from arclog.ports.storage.store import Append, Appended
from arclog.ports.views.api import ExecuteRequest, RegisterRequest, SignalRequest
from arclog.stores import rows
from arclog.stores.sqlite import log as sqlite_log
from arclog.wiring.embedded import Embedded, embedded

MIB = 1024 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")
#: A pool that no worker serves.
APART = "apart"
HEALTHY = "{metadata: {name: healthy}, workflow: [{step: start, tool: {kind: noop, data: well}}]}"
HEALTHY_TIMER = "{metadata: {name: healthy}, workflow: [{step: start, tool: {kind: wait, for_s: 0.2}}]}"
DOOMED = "{metadata: {name: doomed}, workflow: [{step: start, tool: {kind: noop}}]}"
PARENT = "{metadata: {name: healthy}, workflow: [{step: start, tool: {kind: playbook, path: doomed}}]}"
#: bounds that keep nothing from dying, and those of every day
LOOSE = {
    "expr.max_bytes": 4096 * MIB,
    "decision.max_bytes": 4096 * MIB,
    "expr.max_work": 10**9,
    "decision.max_work": 10**9,
}


def watch(limit: int) -> None:
    while True:
        if int(Path("/proc/self/statm").read_text().split()[1]) * PAGE > limit:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stand_still(file: Path) -> None:
    """Have the process stand still while it writes a report of a run that is not healthy, as long as there is a file: it waits for
    the store, or executes code if the file says so. Files beside it name the processes that stand still.
    """
    write = commits.Engine.append
    mine = file.with_name(f"{file.name}-{os.getpid()}")

    def execute_if_asked() -> None:
        if file.read_text() == "executes":
            mine.touch()
            time.sleep(3600)

    async def written(engine: commits.Engine, append: Append) -> Appended:
        kept = engine.live.kept(append.execution_id)
        is_healthy = kept is None or kept.program.plan.name == "healthy"
        if not is_healthy and os.access(file, os.F_OK) and any(event.type == "task.done" for event in append.events):
            execute_if_asked()
            asyncio.get_running_loop().call_soon(mine.touch)  # once it waits
            await asyncio.sleep(3600)
        return await write(engine, append)

    setattr(commits.Engine, "append", written)  # noqa: B010 - mypy does not let a method be assigned


def die_at(work: str) -> None:
    """Have the process killed at some work, or wait there until somebody kills it."""
    if work == "standing":
        stand_still(Path(os.environ["STANDS_WHILE"]))
        return
    if work == "reading":
        fold = live.__dict__["apply_all"]

        def folded(program: Any, state: Any, events: Any) -> Any:
            if program.plan.name != "healthy":
                die()
            return fold(program, state, events)

        live.__dict__["apply_all"] = folded
        return
    if work == "encoding":
        derive = rows.Codec._derived

        def derived(codec: rows.Codec, append: Append) -> rows.Derived:
            if any(event.step == "doomed" for event in append.events):
                die()
            return derive(codec, append)

        setattr(rows.Codec, "_derived", derived)  # noqa: B010 - mypy does not let a method be assigned
        return
    if work == "writing":
        write, write_group = sqlite_log.__dict__["write_append"], sqlite_log.__dict__["write_group"]

        def written(tx: object, append: Append, derived: rows.Derived) -> Appended:
            if any(event.step == "doomed" for event in append.events):
                die()
            appended: Appended = write(tx, append, derived)
            return appended

        def written_together(tx: object, items: Sequence[tuple[Append, rows.Derived]]) -> object:
            if any(event.step == "doomed" for append, _ in items for event in append.events):
                sys.stderr.write("died in a group\n")
                sys.stderr.flush()
                die()
            return write_group(tx, items)

        sqlite_log.__dict__["write_append"] = written
        sqlite_log.__dict__["write_group"] = written_together
        return
    decide = deciding.__dict__["decide"]

    def decided(program: Any, state: Any, given: Any, *rest: Any) -> Any:
        is_refused = getattr(given, "problem", None) is not None
        if type(given).__name__ == work and not is_refused and program.plan.name != "healthy":
            die()
        return decide(program, state, given, *rest)

    deciding.__dict__["decide"] = decided


async def begin(runtime: Embedded, source: str) -> str:
    """Have a run of the playbook `doomed` begun by somebody who does that again after a crash. Returns its id."""
    await runtime.api.register(RegisterRequest(DOOMED))
    if source == "request":
        return (await runtime.api.execute(ExecuteRequest(DOOMED))).execution_id
    if source == "child":
        parents = await runtime.api.list(path="healthy")
        if not parents:
            await runtime.api.execute(ExecuteRequest(PARENT))
        while not (runs := await runtime.api.list(path="doomed")):  # noqa: ASYNC110 - it is in the store
            await asyncio.sleep(0.05)
        return runs[0].execution_id
    runtime.start_scheduler()
    schedules = runtime.schedules()
    if not await schedules.list():
        await schedules.add(NewSchedule("doomed", "0 0 1 1 *", "doomed"))
        await schedules.backfill("doomed", "2020-06-01T00:00:00Z", "2022-06-01T00:00:00Z")
    while not (runs := await runtime.api.list(path="doomed")):  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(0.05)
    return runs[-1].execution_id


async def fire(runtime: Embedded, how: str, playbook: str) -> None:
    """Fire the timers of runs once all are due: those of one run `together` or `apart`, or those of many runs in a `group`."""
    setattr(runtime, "start_duties", lambda _: None)  # noqa: B010 - mypy does not let a method be assigned
    await runtime.start_worker(unattended=True)
    engine = runtime.engine
    if playbook:
        for _ in range(8 if how == "group" else 0):
            await runtime.api.execute(ExecuteRequest(HEALTHY_TIMER))
        started = await runtime.api.execute(ExecuteRequest(playbook))
        sys.stdout.write(started.execution_id + "\n")
        sys.stdout.flush()
    wanted = {"together": 2, "group": 9, "apart": 1}[how]
    while len(due := await engine.store.due_timers(engine.clock.now(), 100)) < wanted:  # noqa: ASYNC110 - it is in the store
        await asyncio.sleep(0.05)
    inputs = [(timer.execution_id, TimerFired(timer.timer_id)) for timer in due]
    if how == "together":
        await asyncio.gather(*(engine.put(*each) for each in inputs))
    elif how == "group":
        await engine.put_all(inputs)
    else:
        for each in inputs:
            await engine.put(*each)


async def main(home: str, what: str, argument: str) -> None:
    settings = Settings(
        {
            "home": home,
            "store.url": os.environ.get("STORE", ""),
            "engine.sweep_s": 0.05,
            "engine.duty_lease_s": 1.0,
            "engine.idle_s": 0.1,
            "leases.seconds": 1.0,
            "schedules.lease_s": 1.0,
            **({} if what == "release" else LOOSE),
        }
    )
    async with embedded(settings) as runtime, asyncio.timeout(60):
        await runtime.free_dead()
        if what in ("together", "apart", "group"):
            await fire(runtime, what, argument)
            return
        runtime.start_duties()
        await runtime.start_worker(unattended=True)
        if what == "begin":
            run = await begin(runtime, argument)
            await runtime.api.ended(run)
            summary = await runtime.api.summary(run)
            sys.stdout.write(json.dumps({"run": run, "state": summary.state, "error": str(summary.error)}))
        elif what == "retry":
            answer = await runtime.api.signal(os.environ["RUN"], SignalRequest("RETRY_RUN"))
            assert answer.started
            await runtime.api.ended(answer.started)
            sys.stdout.write((await runtime.api.summary(answer.started)).state)
        elif what == "start":
            started = await runtime.api.execute(ExecuteRequest(playbook=argument))
            sys.stdout.write(started.execution_id + "\n")
            sys.stdout.flush()
            if APART in argument:  # claimed by somebody who never reports
                worker = WorkerInfo(worker_id="gone", kinds=("noop",), pools=(APART,))
                assert await runtime.control.claim(worker, 1, 20.0)
            await runtime.api.ended(started.execution_id)
        elif what == "serve":
            healthy = await runtime.api.execute(ExecuteRequest(playbook=HEALTHY))
            await runtime.api.ended(healthy.execution_id)
            if argument == "wait":
                await asyncio.sleep(30)
            while argument == "held" and "poison" not in str(await runtime.api.why(os.environ["RUN"])):  # noqa: ASYNC110 - it is in the store
                await asyncio.sleep(0.05)
            try:
                why: object = await runtime.api.why(os.environ["RUN"])
            except Poisoned as problem:  # its log is not read
                why = problem
            state = (await runtime.api.summary(healthy.execution_id)).state
            sys.stdout.write(json.dumps({"healthy": state, "why": str(why)}))
        else:
            answer = await runtime.api.signal(os.environ["RUN"], SignalRequest("RESUME"))
            await runtime.api.ended(os.environ["RUN"])
            summary = await runtime.api.summary(os.environ["RUN"])
            sys.stdout.write(json.dumps({"state": summary.state, "error": str(summary.error), "answer": str(answer)}))


if __name__ == "__main__":
    if not os.environ.get("CAGED"):
        threading.Thread(target=watch, args=(300 * MIB,), daemon=True).start()
    if os.environ.get("DIES_AT"):
        die_at(os.environ["DIES_AT"])
    asyncio.run(main(*sys.argv[1:4]))
