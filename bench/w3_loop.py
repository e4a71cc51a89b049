"""W3 loop: noop items in one run, ten at a time and one after the other, and how the time grows with the items."""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.harness import (
    Findings,
    Goal,
    Line,
    Options,
    Sample,
    Samples,
    Spread,
    child,
    dbos_is_there,
    expect,
    in_new_folder,
    interleaved,
    spread,
    write,
)
from bench.playbooks import check_run, loop, parallel_loop

PACE_GOAL = Goal(">=", 5000.0)
DBOS_GOAL = Goal(">=", 10.0)
GROWTH_GOAL = Goal("<=", 11.0)


def measure(options: Options) -> Findings:
    findings = Findings("W3", "loop: noop items in one run, parallel with max_in_flight 10, every item in the log")
    items = options.size(1000, 100)
    contenders: dict[str, Callable[[], Sample]] = {
        "parallel": in_new_folder(options, lambda folder: arclog(folder, items, parallel_loop(items))),
        "sequential": in_new_folder(options, lambda folder: arclog(folder, items, loop(items))),
        "ten times": in_new_folder(options, lambda folder: arclog(folder, 10 * items, parallel_loop(10 * items))),
    }
    if dbos_is_there():
        contenders["DBOS"] = in_new_folder(options, lambda folder: dbos(folder, items))
    taken = interleaved(options.size(options.repeat, 1), contenders)
    ours = taken["parallel"]
    if "DBOS" in taken:
        findings.ratios.append(Line(f"DBOS ÷ arclog, {items} items", taken["DBOS"].over(ours, "run_s"), "×", DBOS_GOAL))
    growth = taken["ten times"].over(ours, "run_s")
    findings.ratios.append(Line(f"{10 * items} ÷ {items} items", growth, "×", GROWTH_GOAL))
    goal = Line(f"arclog, parallel, {items} items", pace(taken["parallel"], items), "items/s", PACE_GOAL, digits=0)
    findings.ratios.append(goal)
    findings.figures.append(
        Line(f"arclog, parallel, {10 * items} items", pace(taken["ten times"], 10 * items), "items/s", digits=0)
    )
    findings.figures.append(
        Line(f"arclog, sequential, {items} items", pace(taken["sequential"], items), "items/s", digits=0)
    )
    if "DBOS" in taken:
        findings.figures.append(Line(f"DBOS, {items} steps", pace(taken["DBOS"], items), "steps/s", digits=0))
    findings.notes.append("DBOS: one workflow of as many trivial steps; a workflow for each item is slower there (W4)")
    return findings


def pace(taken: Samples, items: int) -> Spread:
    return spread([items / sample["run_s"] for sample in taken.samples])


def arclog(folder: str, items: int, text: str, **variables: str) -> Sample:
    file = write(folder, "loop.yaml", text)
    sample = child("run_arclog.py", "one", file, os.path.join(folder, "home"), folder=folder, **variables)
    check_run(sample, steps=1, tasks=items)
    return sample


def dbos(folder: str, items: int, **variables: str) -> Sample:
    sample = child("run_dbos.py", "chain", folder, str(items), folder=folder, **variables)
    expect("steps done and recorded", (sample["done"], sample["recorded"]), (items, items))
    return sample
