"""W8 scale: a run of many steps. Does a step cost more the longer the log is, and how long does a resume take? And a run
of 1,000,000 events: how long does it take to show it as it was at any moment?
"""

from __future__ import annotations

import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved, write
from bench.playbooks import CYCLE, parallel_loop

#: So many take a minute; the goals speak of 100,000, whose log is the same but longer.
STEPS = 20_000
#: of a loop, whose run has a little more than 1,000,000 events
ITEMS, EVENTS = 250_000, 1_000_000


def measure(options: Options) -> Findings:
    steps, items = options.size(STEPS, 1000), options.size(ITEMS, 2000)
    findings = Findings("W8", f"scale: a cycle of two noop steps, {steps} step runs in one execution")
    contenders = {"arclog": in_new_folder(options, lambda folder: arclog(folder, steps))}
    ours = interleaved(1, contenders)["arclog"]
    findings.ratios.append(Line("last tenth ÷ second tenth of the run", ours.of("growth"), "×", Goal("<=", 1.2)))
    findings.ratios.append(Line("resume at its end", ours.of("resume_s"), "s", Goal("<=", 5.0)))
    contenders = {"arclog": in_new_folder(options, lambda folder: long_loop(folder, items))}
    long = interleaved(1, contenders)["arclog"]
    events = int(long.of("events").value)
    title = f"the state at any of 39 moments of a run of {events:,} events, the slowest"
    findings.ratios.append(Line(title, long.of("slowest_s"), "s", Goal("<=", 0.3)))
    findings.figures.append(
        Line("the state at a moment of that run, median", long.of("median_s", 1000), "ms", digits=1)
    )
    findings.figures.append(Line("snapshots of that run", long.of("snapshots_mib"), "MiB"))
    findings.figures.append(Line("its log", long.of("log_mib"), "MiB"))
    findings.figures.append(Line("a step", ours.of("run_s", 1000 / steps), "ms", digits=3))
    findings.figures.append(Line("resume, from the newest snapshot", ours.of("resume_s", 1000), "ms", digits=1))
    findings.figures.append(Line("resume, from the log alone", ours.of("fold_s", 1000), "ms", digits=1))
    findings.figures.append(Line("events folded in a second, from the log alone", ours.of("pace"), "1/s", digits=0))
    return findings


def arclog(folder: str, steps: int) -> Sample:
    file = write(folder, "cycle.yaml", CYCLE)
    sample = child("run_scale.py", str(steps), file, os.path.join(folder, "home"), folder=folder)
    expect("state and steps", (sample["state"], sample["steps"]), ("COMPLETED", steps + 1))
    expect("the snapshot gives the state of the log", sample["same"], True)
    return {**sample, "pace": sample["events"] / sample["fold_s"]}


def long_loop(folder: str, items: int) -> Sample:
    file = write(folder, "loop.yaml", parallel_loop(items))
    sample = child("run_moments.py", file, os.path.join(folder, "home"), folder=folder)
    expect("state", sample["state"], "COMPLETED")
    if items == ITEMS:
        expect("at least 1,000,000 events", sample["events"] >= EVENTS, True)
    expect("each state is that of its moment", sample["moments"], sample["shown"])
    return sample
