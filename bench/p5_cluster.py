"""P5 cluster: PostgreSQL and NATS; the gap between steps with a worker over HTTP, and what a second server adds."""

from __future__ import annotations

import importlib.util
import os

from bench import w14_remote
from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, interleaved, spread, write
from bench.nats import nats
from bench.playbooks import chain
from bench.postgres import Databases, missing, postgres, postgres_is_there

GAP_GOAL = Goal("<=", 8.0)
TWO_GOAL = Goal(">=", 1.0)
#: of a run: enough that the servers are what is full, and not the program that hands runs to them over HTTP
STEPS = 40


def measure(options: Options) -> Findings:
    findings = Findings("P5", "cluster: PostgreSQL (fsync on), NATS JetStream, servers and workers as processes")
    if not postgres_is_there() or importlib.util.find_spec("nats") is None:
        return missing(findings)
    steps, runs = options.size(500, 20), options.size(120, 4)
    with postgres(options.folder) as dsn, nats() as bus:
        databases = Databases(dsn, options)
        gap = databases.contender(
            lambda folder, url: w14_remote.arclog(folder, steps, ARCLOG_STORE_URL=url, ARCLOG_BUS_URL=bus)
        )
        one = databases.contender(lambda folder, url: servers(folder, 1, runs, url, bus))
        two = databases.contender(lambda folder, url: servers(folder, 2, runs, url, bus))
        taken = interleaved(options.size(options.repeat, 1), {"gap": gap, "one": one, "two": two})
    findings.ratios.append(
        Line(f"step to step, {steps} steps, p50 (W5)", taken["gap"].of("step_p50_ms"), "ms", GAP_GOAL)
    )
    faster = taken["one"].over(taken["two"], "run_s")
    findings.ratios.append(Line("two servers ÷ one, runs a second", faster, "×", TWO_GOAL))
    findings.figures.append(Line(f"step to step, {steps} steps, p95", taken["gap"].of("step_p95_ms"), "ms"))
    for name in ("one", "two"):
        pace = spread([runs * STEPS / sample["run_s"] for sample in taken[name].samples])
        findings.figures.append(Line(f"{name} server(s), each with its worker", pace, "steps/s", digits=0))
    return findings


def servers(folder: str, count: int, runs: int, url: str, bus: str) -> Sample:
    file = write(folder, "chain.yaml", chain(STEPS))
    where = {"ARCLOG_STORE_URL": url, "ARCLOG_BUS_URL": bus, "ARCLOG_WORKER_SLOTS": "100"}
    sample = child("run_cluster.py", file, os.path.join(folder, "home"), str(count), str(runs), folder=folder, **where)
    expect("runs that completed", sample["completed"], runs)
    return sample
