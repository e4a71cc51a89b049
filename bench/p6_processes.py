"""P6 processes: `arclog server --processes 2` beside one process, with many executions at the same time and a worker over HTTP."""

from __future__ import annotations

import os
from functools import partial

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, interleaved, spread, write
from bench.playbooks import chain, routed_chain
from bench.postgres import Databases, missing, postgres, postgres_is_there

GOAL = Goal(">=", 1.0)
STEPS = 5
#: steps without any template, which cost a server least, and steps with conditions and arguments
PLAYBOOKS = {"empty steps": chain(STEPS), "routed steps": routed_chain(STEPS)}
COUNTS = {"one process": 1, "two processes": 2}
#: the processes that share the cores
PARTS = ("server", "postgres", "worker", "generator")


def measure(options: Options) -> Findings:
    findings = Findings(
        "P6", f"arclog server --processes: executions of {STEPS} steps at the same time (PostgreSQL, fsync on)"
    )
    if not postgres_is_there():
        return missing(findings)
    runs = options.size(1000, 10)
    for name, text in PLAYBOOKS.items():
        with postgres(options.folder) as dsn:
            databases = Databases(dsn, options)
            contenders = {
                words: databases.contender(partial(processes, count=count, runs=runs, text=text))
                for words, count in COUNTS.items()
            }
            taken = interleaved(options.size(options.repeat, 1), contenders)
        faster = taken["one process"].over(taken["two processes"], "run_s")
        findings.ratios.append(
            Line(f"{name}: two processes ÷ one, {runs} executions at the same time", faster, "×", GOAL)
        )
        for words in COUNTS:
            samples = taken[words].samples
            title = f"{name}: {words}"
            pace = spread([runs * STEPS / sample["run_s"] for sample in samples])
            findings.figures.append(Line(title, pace, "steps/s", digits=0))
            for part in PARTS:
                figure = spread([sample[f"{part}_each"] * 1000 for sample in samples])
                findings.figures.append(Line(f"{title}: CPU of {part}, an execution", figure, "ms", digits=2))
            figure = spread([sum(sample[f"{part}_each"] for part in PARTS) * 1000 for sample in samples])
            findings.figures.append(Line(f"{title}: CPU of all, an execution", figure, "ms", digits=2))
            figure = spread([sample["transactions_each"] for sample in samples])
            findings.figures.append(Line(f"{title}: transactions, an execution", figure, "", digits=1))
    return findings


def processes(folder: str, url: str, *, count: int, runs: int, text: str) -> Sample:
    file = write(folder, "chain.yaml", text)
    home = os.path.join(folder, "home")
    sample = child("run_processes.py", file, home, str(count), str(runs), folder=folder, ARCLOG_STORE_URL=url)
    expect("runs that completed", sample["completed"], runs)
    return sample
