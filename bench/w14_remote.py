"""W14 remote: sequential noop steps of one run, done by a worker in another process over HTTP."""

from __future__ import annotations

import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved, write
from bench.playbooks import chain, check_run

GOAL = Goal("<=", 10.0)


def measure(options: Options) -> Findings:
    findings = Findings("W14", "remote: sequential noop steps, a server and a worker over HTTP, every step durable")
    steps = 20 if options.quick else 500
    taken = interleaved(
        options.size(options.repeat, 1), {"arclog": in_new_folder(options, lambda folder: arclog(folder, steps))}
    )["arclog"]
    findings.ratios.append(Line(f"step to step, {steps} steps, p50", taken.of("step_p50_ms"), "ms", GOAL))
    findings.figures.append(Line(f"step to step, {steps} steps, p95", taken.of("step_p95_ms"), "ms"))
    findings.figures.append(Line(f"whole run, {steps} steps, a step", taken.of("run_s", 1000 / steps), "ms"))
    return findings


def arclog(folder: str, steps: int, **variables: str) -> Sample:
    file = write(folder, "chain.yaml", chain(steps))
    sample = child("run_remote.py", file, os.path.join(folder, "home"), folder=folder, **variables)
    check_run(sample, steps=steps, tasks=steps)
    expect("the worker's exit code", sample["left"], 0)
    return sample
