"""W2 chain: sequential noop steps in one run, beside the floor and DBOS."""

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
    write,
)
from bench.playbooks import chain, check_run

FLOOR_GOAL = Goal("<=", 2.0)
DBOS_GOAL = Goal(">=", 2.0)
EVENTS_PER_FLOOR_STEP = 7


def measure(options: Options) -> Findings:
    findings = Findings("W2", "chain: sequential noop steps in one run, every step durable (SQLite, WAL, FULL)")
    for steps in (100,) if options.quick else (1000, 100):
        _measure(findings, options, steps)
    return findings


def _measure(findings: Findings, options: Options, steps: int) -> None:
    contenders: dict[str, Callable[[], Sample]] = {
        "arclog": in_new_folder(options, lambda folder: arclog(folder, steps)),
        "floor": in_new_folder(options, lambda folder: floor(folder, steps)),
    }
    if dbos_is_there():
        contenders["DBOS"] = in_new_folder(options, lambda folder: dbos(folder, steps))
    taken = interleaved(options.size(options.repeat, 1), contenders)
    ours = taken["arclog"]
    findings.ratios.append(Line(f"arclog ÷ floor, {steps} steps", ours.over(taken["floor"], "run_s"), "×", FLOOR_GOAL))
    best = ours.best_over(taken["floor"], "run_s")
    findings.ratios.append(Line(f"arclog ÷ floor, {steps} steps, best rounds", best, "×"))
    if "DBOS" in taken:
        findings.ratios.append(Line(f"DBOS ÷ arclog, {steps} steps", taken["DBOS"].over(ours, "run_s"), "×", DBOS_GOAL))
        best = taken["DBOS"].best_over(ours, "run_s")
        findings.ratios.append(Line(f"DBOS ÷ arclog, {steps} steps, best rounds", best, "×"))
    step_ms = 1000 / steps
    for name, samples in taken.items():
        findings.figures.append(Line(f"{name}, {steps} steps, a step", samples.of("run_s", step_ms), "ms", digits=3))
        findings.figures.append(
            Line(f"{name}, {steps} steps, CPU a step", samples.of("cpu_s", step_ms), "ms", digits=3)
        )
        with_start = samples.of("total_s", step_ms)
        findings.figures.append(Line(f"{name}, {steps} steps, a step with process start", with_start, "ms", digits=3))
    findings.figures.append(
        Line(f"arclog, {steps} steps, compile and submit", ours.of("compile_s", 1000), "ms", digits=0)
    )
    findings.figures.append(Line(f"arclog, {steps} steps, gap between steps (W5)", ours.of("gap_ms"), "ms", digits=3))


def arclog(folder: str, steps: int, **variables: str) -> Sample:
    file = write(folder, "chain.yaml", chain(steps))
    sample = child("run_arclog.py", "one", file, os.path.join(folder, "home"), folder=folder, **variables)
    check_run(sample, steps=steps, tasks=steps)
    return sample


def floor(folder: str, steps: int) -> Sample:
    sample = child("run_floor.py", str(steps), folder, folder=folder)
    expect("rows and head", (sample["rows"], sample["head"]), (steps, steps * EVENTS_PER_FLOOR_STEP))
    return sample


def dbos(folder: str, steps: int, **variables: str) -> Sample:
    sample = child("run_dbos.py", "chain", folder, str(steps), folder=folder, **variables)
    expect("steps done and recorded", (sample["done"], sample["recorded"]), (steps, steps))
    return sample
