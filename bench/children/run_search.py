"""HOME fill EVENTS | HOME measure ROUNDS: a store with so many events of many runs, and the first pages of searches through them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from arclog.model.ids import timestamp
from arclog.wiring.embedded import embedded
from arclog.wiring.settings import load_settings

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)

from bench.children import copied_runs, run_history  # noqa: E402 - its path is set above

#: Items of the loop of each run: a thousand events.
ITEMS = 248
#: Tables that a search reads.
TABLES = ("executions", "log", "mark")


async def fill(home: str, events: int) -> dict[str, float]:
    began = time.perf_counter()
    async with embedded(load_settings({"home": home})) as embedding:
        await embedding.start_worker(unattended=True)
        run, head = await run_history.ran(embedding.api, run_history.LOOP, items=ITEMS)
        copies = -(-events // head)
        await copied_runs.make_spans(embedding.engine.store, copies, int(run))
    copied_runs.copy(home, {int(run): tuple(range(1, copies + 1))}, tables=TABLES)
    if not os.environ.get("ARCLOG_STORE_URL"):
        move_to_the_end(os.path.join(home, "arclog.db"), int(run))
    return {"fill_s": time.perf_counter() - began, "events": float(head * (copies + 1)), "runs": float(copies + 1)}


def move_to_the_end(file: str, run: int) -> None:
    """The run that was copied is the newest."""
    import apsw

    connection = apsw.Connection(file)
    connection.execute("UPDATE log SET pos = pos + (SELECT max(pos) FROM log) WHERE execution_id = ?", (run,))
    connection.close()


async def measure(home: str, rounds: int) -> dict[str, Any]:
    ms: dict[str, float] = {}
    cpu_ms: dict[str, float] = {}
    async with embedded(load_settings({"home": home})) as embedding:
        newest, oldest = (await embedding.api.list(limit=1))[0], await embedding.api.search(limit=1)
        first, last = oldest.events[0]["timestamp"], (await embedding.api.status(newest.execution_id)).started_at
        middle = timestamp((micros(first) + micros(str(last))) // 2)
        searches: dict[str, dict[str, Any]] = {
            "any event": {},
            "a type": {"types": ("task.done",)},
            "a type, from the middle on": {"types": ("task.done",), "since": middle},
            "a marked type, from the middle on": {"types": ("playbook.finished",), "since": middle},
            "a rare type, from the middle on": {"types": ("workflow.finished",), "since": middle},
            "a type that no event has": {"types": ("step.failed",)},
            "an entity": {"entity": "step:end"},
            "a condition": {"types": ("step.done",), "where": "event.step == 'end'", "since": middle},
        }
        for name, asked in searches.items():
            took = []
            used = time.process_time()
            for _ in range(rounds):
                began = time.perf_counter()
                page = await embedding.api.search(**asked, limit=100)
                took.append((time.perf_counter() - began) * 1000)
            cpu_ms[name] = (time.process_time() - used) * 1000 / rounds
            ms[name] = sorted(took)[len(took) // 2]
            if name != "a type that no event has" and not page.events:
                raise SystemExit(f"{name}: nothing was found")
    return {"ms": ms, "cpu_ms": cpu_ms}


def micros(text: str) -> int:
    from arclog.model.ids import micros as parsed

    return parsed(text)


if __name__ == "__main__":
    home, action, number = sys.argv[1:4]
    print(json.dumps(asyncio.run((fill if action == "fill" else measure)(home, int(number)))))
