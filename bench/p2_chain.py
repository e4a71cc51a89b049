"""P2 chain on PostgreSQL: sequential noop steps in one run, beside the floor and DBOS on the same server."""

from __future__ import annotations

from collections.abc import Callable

from bench import w2_chain
from bench.harness import Findings, Goal, Line, Options, Sample, child, dbos_is_there, expect, interleaved
from bench.postgres import Databases, missing, postgres, postgres_is_there

FLOOR_GOAL = Goal("<=", 2.0)
DBOS_GOAL = Goal(">=", 3.0)


def measure(options: Options) -> Findings:
    findings = Findings("P2", "chain: sequential noop steps in one run, every step durable (PostgreSQL, fsync on)")
    if not postgres_is_there():
        return missing(findings)
    steps = options.size(1000, 20)
    with postgres(options.folder) as dsn:
        databases = Databases(dsn, options)
        contenders: dict[str, Callable[[], Sample]] = {
            "arclog": databases.contender(lambda folder, url: w2_chain.arclog(folder, steps, ARCLOG_STORE_URL=url)),
            "floor": databases.contender(lambda folder, url: floor(folder, steps, url)),
        }
        if dbos_is_there():
            contenders["DBOS"] = databases.contender(
                lambda folder, url: w2_chain.dbos(folder, steps, BENCH_DATABASE=url)
            )
        taken = interleaved(options.size(options.repeat, 1), contenders)
    ours = taken["arclog"]
    findings.ratios.append(Line(f"arclog ÷ floor, {steps} steps", ours.over(taken["floor"], "run_s"), "×", FLOOR_GOAL))
    if "DBOS" in taken:
        findings.ratios.append(Line(f"DBOS ÷ arclog, {steps} steps", taken["DBOS"].over(ours, "run_s"), "×", DBOS_GOAL))
    for name, samples in taken.items():
        findings.figures.append(Line(f"{name}, a step", samples.of("run_s", 1000 / steps), "ms", digits=3))
        findings.figures.append(Line(f"{name}, CPU a step", samples.of("cpu_s", 1000 / steps), "ms", digits=3))
    findings.figures.append(Line("arclog, gap between steps (W5)", ours.of("gap_ms"), "ms", digits=3))
    return findings


def floor(folder: str, steps: int, dsn: str) -> Sample:
    sample = child("run_floor_postgres.py", str(steps), dsn, folder=folder)
    wanted = (steps, steps * w2_chain.EVENTS_PER_FLOOR_STEP)
    expect("rows and head", (sample["rows"], sample["head"]), wanted)
    return sample
