"""W4 many runs: one-step runs submitted at once, in one process."""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.harness import (
    Findings,
    Goal,
    Line,
    Options,
    Sample,
    child,
    dbos_is_there,
    expect,
    in_new_folder,
    interleaved,
    spread,
    write,
)
from bench.playbooks import chain

PACE_GOAL = Goal(">=", 1000.0)


def measure(options: Options) -> Findings:
    findings = Findings("W4", "many runs: one-step runs submitted at once in one process")
    runs = options.size(200, 20)
    contenders: dict[str, Callable[[], Sample]] = {
        "arclog": in_new_folder(options, lambda folder: arclog(folder, runs))
    }
    if dbos_is_there():
        contenders["DBOS"] = in_new_folder(options, lambda folder: dbos(folder, runs))
    taken = interleaved(options.size(options.repeat, 1), contenders)
    if "DBOS" in taken:
        findings.ratios.append(Line(f"DBOS ÷ arclog, {runs} runs", taken["DBOS"].over(taken["arclog"], "run_s"), "×"))
    ours = spread([runs / sample["run_s"] for sample in taken["arclog"].samples])
    findings.ratios.append(Line(f"arclog, {runs} runs", ours, "runs/s", PACE_GOAL, digits=0))
    for name, samples in taken.items():
        pace = spread([runs / sample["run_s"] for sample in samples.samples])
        findings.figures.append(Line(f"{name}, {runs} runs", pace, "runs/s", digits=0))
        findings.figures.append(
            Line(f"{name}, {runs} runs, submit to end, p95", samples.of("p95_s", 1000), "ms", digits=0)
        )
    return findings


def arclog(folder: str, runs: int, steps: int = 1, **variables: str) -> Sample:
    file = write(folder, "runs.yaml", chain(steps))
    home = os.path.join(folder, "home")
    sample = child("run_arclog.py", "many", file, home, str(runs), folder=folder, **variables)
    ended = (sample["completed"], sample["distinct"], sample["one_terminal"])
    expect("runs completed, distinct, with one terminal event", ended, (runs, runs, runs))
    return sample


def dbos(folder: str, runs: int, **variables: str) -> Sample:
    sample = child("run_dbos.py", "many", folder, str(runs), folder=folder, **variables)
    expect("workflows done", sample["done"], runs)
    return sample
