"""P4 many runs on PostgreSQL: executions at the same time in one process, and one-step runs beside DBOS."""

from __future__ import annotations

from collections.abc import Callable

from bench import w4_runs
from bench.harness import Findings, Goal, Line, Options, Sample, Samples, Spread, dbos_is_there, interleaved, spread
from bench.postgres import Databases, missing, postgres, postgres_is_there

STEPS_GOAL = Goal(">=", 2000.0)
RUNS_GOAL = Goal(">=", 600.0)
STEPS = 10


def measure(options: Options) -> Findings:
    findings = Findings("P4", f"many runs: of {STEPS} steps each, and of one, at the same time (PostgreSQL, fsync on)")
    if not postgres_is_there():
        return missing(findings)
    runs, short = options.size(1000, 10), options.size(200, 10)
    with postgres(options.folder) as dsn:
        databases = Databases(dsn, options)
        contenders: dict[str, Callable[[], Sample]] = {
            "chains": databases.contender(
                lambda folder, url: w4_runs.arclog(
                    folder, runs, STEPS, ARCLOG_STORE_URL=url, ARCLOG_WORKER_SLOTS=str(runs)
                )
            ),
            "arclog": databases.contender(lambda folder, url: w4_runs.arclog(folder, short, ARCLOG_STORE_URL=url)),
        }
        if dbos_is_there():
            contenders["DBOS"] = databases.contender(
                lambda folder, url: w4_runs.dbos(folder, short, BENCH_DATABASE=url)
            )
        taken = interleaved(options.size(options.repeat, 1), contenders)
    steps = _rate(taken["chains"], runs * STEPS)
    findings.ratios.append(Line(f"arclog, {runs} executions at the same time", steps, "steps/s", STEPS_GOAL, digits=0))
    ours = _rate(taken["arclog"], short)
    findings.ratios.append(Line(f"arclog, {short} one-step runs", ours, "runs/s", RUNS_GOAL, digits=0))
    findings.figures.append(
        Line(
            f"arclog, {runs} executions, CPU a step", taken["chains"].of("cpu_s", 1000 / (runs * STEPS)), "ms", digits=3
        )
    )
    if "DBOS" in taken:
        ratio = taken["DBOS"].over(taken["arclog"], "run_s")
        findings.ratios.append(Line(f"DBOS ÷ arclog, {short} one-step runs", ratio, "×"))
        findings.figures.append(Line(f"DBOS, {short} one-step runs", _rate(taken["DBOS"], short), "runs/s", digits=0))
    return findings


def _rate(taken: Samples, count: int) -> Spread:
    return spread([count / sample["run_s"] for sample in taken.samples])
