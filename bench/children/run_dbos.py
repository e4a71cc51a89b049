"""DBOS with its default settings, on SQLite or on the database in BENCH_DATABASE, in this process; prints what it took as JSON.

chain FOLDER N    one workflow of N trivial steps (0: only launch and shut down)
many FOLDER N     N workflows of one step, started at once
"""

from __future__ import annotations

import json
import os
import sys
import time
from statistics import quantiles
from typing import Any

from dbos import DBOS, SetWorkflowID


@DBOS.step()
def trivial(number: int) -> int:
    return number


@DBOS.workflow()
def steps(count: int) -> int:
    return sum(trivial(number) == number for number in range(count))


def chain(count: int) -> dict[str, Any]:
    if not count:
        return {"run_s": 0.0, "cpu_s": 0.0, "total_s": since_start(), "done": 0, "recorded": 0}
    t0, cpu = time.perf_counter(), time.process_time()
    with SetWorkflowID("chain"):
        done = steps(count)
    run_s, cpu_s, total_s = time.perf_counter() - t0, time.process_time() - cpu, since_start()
    recorded = len(DBOS.list_workflow_steps("chain"))
    return {"run_s": run_s, "cpu_s": cpu_s, "total_s": total_s, "done": done, "recorded": recorded}


def many(count: int) -> dict[str, Any]:
    t0 = time.perf_counter()
    handles = [DBOS.start_workflow(steps, 1) for _ in range(count)]
    done, times = 0, []
    for handle in handles:
        done += handle.get_result() == 1
        times.append(time.perf_counter() - t0)
    return {"run_s": times[-1], "p95_s": quantiles(times, n=20)[-1], "done": done}


def since_start() -> float:
    return time.time() - float(os.environ["BENCH_T0"])


def main(argv: list[str]) -> None:
    command, folder, count = argv
    url = os.environ.get("BENCH_DATABASE") or f"sqlite:///{os.path.join(folder, 'dbos.db')}"
    DBOS(config={"name": "bench", "system_database_url": url})
    DBOS.launch()
    answer = {"chain": chain, "many": many}[command](int(count))
    DBOS.destroy()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])
