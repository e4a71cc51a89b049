"""Drives arclog in this process and prints what it took, and what came out, as JSON.

one FILE HOME       one run of a playbook, start to end
many FILE HOME N    N runs of it, submitted at once
empty HOME          a store in which nothing ever ran
tables HOME         bytes of the store's file by table and index
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from datetime import datetime
from itertools import pairwise
from statistics import median, quantiles
from typing import Any


async def one(file: str, home: str) -> dict[str, Any]:
    from arclog.ports.views.api import ExecuteRequest
    from arclog.wiring.embedded import embedded
    from arclog.wiring.settings import load_settings

    text = read(file)
    took = timed_tasks()
    async with embedded(load_settings({"home": home})) as embedding:
        t0 = time.perf_counter()
        started = await embedding.api.execute(ExecuteRequest(playbook=text, file=file))
        t1, cpu = time.perf_counter(), time.process_time()
        await embedding.start_worker(started.execution_id)
        await ended(embedding, started.execution_id)
        t2, cpu_s = time.perf_counter(), time.process_time() - cpu
        total_s = since_start()
        status = await embedding.api.status(started.execution_id)
        events = await all_events(embedding.api, started.execution_id)
    return {
        "compile_s": t1 - t0,
        "run_s": t2 - t1,
        "cpu_s": cpu_s,
        "total_s": total_s,
        "state": status.state,
        **facts(events),
        **tasks(took),
    }


async def many(file: str, home: str, count: int) -> dict[str, Any]:
    from arclog.ports.views.api import ExecuteRequest
    from arclog.wiring.embedded import embedded
    from arclog.wiring.settings import load_settings

    text = read(file)
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.start_worker()
        t0, cpu = time.perf_counter(), time.process_time()

        async def submitted() -> tuple[str, float]:
            started = await embedding.api.execute(ExecuteRequest(playbook=text, file=file))
            await ended(embedding, started.execution_id)
            return started.execution_id, time.perf_counter() - t0

        runs = await asyncio.gather(*(submitted() for _ in range(count)))
        run_s, cpu_s = time.perf_counter() - t0, time.process_time() - cpu
        states = Counter([(await embedding.api.status(execution_id)).state for execution_id, _ in runs])
        terminal = [facts(await all_events(embedding.api, execution_id))["terminal"] for execution_id, _ in runs]
    return {
        "run_s": run_s,
        "cpu_s": cpu_s,
        "p95_s": quantiles([took for _, took in runs], n=20)[-1],
        "completed": states["COMPLETED"],
        "distinct": len({execution_id for execution_id, _ in runs}),
        "one_terminal": terminal.count(1),
    }


async def empty(home: str) -> dict[str, Any]:
    from arclog.wiring.embedded import embedded
    from arclog.wiring.settings import load_settings

    async with embedded(load_settings({"home": home})):
        pass
    return {}


def tables(home: str) -> dict[str, Any]:
    import apsw

    with apsw.Connection(os.path.join(home, "arclog.db"), flags=apsw.SQLITE_OPEN_READONLY) as connection:
        rows: list[Any] = connection.execute(
            "SELECT coalesce(s.tbl_name, d.name), sum(d.pgsize) FROM dbstat d LEFT JOIN sqlite_schema s USING (name) GROUP BY 1"
        ).fetchall()
    return {"tables": dict(rows)}


async def ended(embedding: Any, execution_id: str) -> None:
    """The run's end, or what stopped the worker before it."""
    end = asyncio.ensure_future(embedding.api.ended(execution_id))
    await asyncio.wait({end, embedding.worker}, return_when=asyncio.FIRST_COMPLETED)
    if not end.done():
        embedding.worker.result()
        raise RuntimeError("the worker stopped before the run ended")
    await end


async def all_events(api: Any, execution_id: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while page := await api.events(execution_id, after=len(events), limit=1000):
        events += page
    return events


def facts(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the log tells: counts by type, gaps between steps, results."""
    from arclog.model.events import TERMINAL

    counts = Counter(event["event_type"] for event in events)
    done = [event for event in events if event["event_type"] == "task.done"]
    ends = [at(event) for event in events if event["event_type"] == "step.done"]
    starts = [at(event) for event in events if event["event_type"] == "step.started"]
    gaps = [(start - end) * 1000 for end, start in zip(ends, starts[1:], strict=False)]
    paces = [(at(later) - at(earlier)) * 1000 for earlier, later in pairwise(done)]
    return {
        "events": len(events),
        "gapless": [event["seq"] for event in events] == list(range(1, len(events) + 1)),
        "counts": dict(counts),
        "terminal": sum(counts[name] for name in TERMINAL),
        "gap_ms": median(gaps) if gaps else None,
        "pace_ms": median(paces) if paces else None,
        "results": Counter(json.dumps(event["payload"]["outcome"].get("data")) for event in done),
    }


def timed_tasks() -> list[float]:
    """Milliseconds that each task takes from now on; the log has whole ones, and a warm task takes less than one."""
    from arclog.worker.toolbox import Toolbox

    took: list[float] = []
    run = Toolbox.run

    async def timed(*args: Any) -> Any:
        begun = time.perf_counter()
        try:
            return await run(*args)
        finally:
            took.append((time.perf_counter() - begun) * 1000)

    setattr(Toolbox, "run", timed)  # noqa: B010 - this process does nothing else
    return took


def tasks(took: list[float]) -> dict[str, Any]:
    """What the tasks took. The first one of a run brings its process up: it is told apart."""
    warm = took[1:]
    return {
        "first_task_ms": took[0] if took else None,
        "task_ms": median(warm) if warm else None,
        "task_p95_ms": quantiles(warm, n=20)[-1] if len(warm) > 1 else None,
    }


def at(event: dict[str, Any]) -> float:
    return datetime.fromisoformat(event["timestamp"]).timestamp()


def read(file: str) -> str:
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def since_start() -> float:
    """Seconds since the parent started this process."""
    return time.time() - float(os.environ["BENCH_T0"])


def main(argv: list[str]) -> None:
    from arclog.wiring.process import run

    briefly = "ARCLOG_STORE_URL" not in os.environ  # as `arclog run` decides
    match argv:
        case ["one", file, home]:
            answer = run(one(file, home), briefly=briefly)
        case ["many", file, home, count]:
            answer = run(many(file, home, int(count)), briefly=briefly)
        case ["empty", home]:
            answer = run(empty(home), briefly=briefly)
        case ["tables", home]:
            answer = tables(home)
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
