"""P6 processes: `arclog server --processes 2` beside one process, with many executions at the same time and a worker over HTTP."""

from __future__ import annotations

import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, interleaved, spread, write
from bench.playbooks import chain
from bench.postgres import Databases, missing, postgres, postgres_is_there

GOAL = Goal(">=", 1.0)
STEPS = 5
#: what shares the cores
PARTS = ("server", "postgres", "worker", "generator")


def measure(options: Options) -> Findings:
    found = Findings(
        "P6", f"arclog server --processes: executions of {STEPS} steps at the same time (PostgreSQL, fsync on)"
    )
    if not postgres_is_there():
        return missing(found)
    runs = options.size(1000, 10)
    with postgres(options.folder) as dsn:
        databases = Databases(dsn, options)
        taken = interleaved(
            options.size(options.repeat, 1),
            {
                "one": databases.contender(lambda folder, url: processes(folder, 1, runs, url)),
                "two": databases.contender(lambda folder, url: processes(folder, 2, runs, url)),
            },
        )
    faster = taken["one"].over(taken["two"], "run_s")
    found.ratios.append(Line(f"two processes ÷ one, {runs} executions at the same time", faster, "×", GOAL))
    for name in ("one", "two"):
        pace = spread([runs * STEPS / sample["run_s"] for sample in taken[name].samples])
        found.figures.append(Line(f"{name} process(es)", pace, "steps/s", digits=0))
        samples = taken[name].samples
        for part in PARTS:
            each = spread([sample[f"{part}_each"] * 1000 for sample in samples])
            found.figures.append(Line(f"{name} process(es): CPU of {part}, an execution", each, "ms", digits=2))
        each = spread([sum(sample[f"{part}_each"] for part in PARTS) * 1000 for sample in samples])
        found.figures.append(Line(f"{name} process(es): CPU of all, an execution", each, "ms", digits=2))
        each = spread([sample["transactions_each"] for sample in samples])
        found.figures.append(Line(f"{name} process(es): transactions, an execution", each, "", digits=1))
    return found


def processes(folder: str, count: int, runs: int, url: str) -> Sample:
    file = write(folder, "chain.yaml", chain(STEPS))
    home = os.path.join(folder, "home")
    sample = child("run_processes.py", file, home, str(count), str(runs), folder=folder, ARCLOG_STORE_URL=url)
    expect("runs that completed", sample["completed"], runs)
    return sample
