"""P3 loop on PostgreSQL: noop items in one run, ten at a time, beside DBOS on the same server."""

from __future__ import annotations

from collections.abc import Callable

from bench import w3_loop
from bench.harness import Findings, Goal, Line, Options, Sample, dbos_is_there, interleaved
from bench.playbooks import parallel_loop
from bench.postgres import Databases, missing, postgres, postgres_is_there

DBOS_GOAL = Goal(">=", 10.0)


def measure(options: Options) -> Findings:
    findings = Findings("P3", "loop: noop items in one run, parallel with max_in_flight 10 (PostgreSQL, fsync on)")
    if not postgres_is_there():
        return missing(findings)
    items = options.size(1000, 50)
    text = parallel_loop(items)
    with postgres(options.folder) as dsn:
        databases = Databases(dsn, options)
        contenders: dict[str, Callable[[], Sample]] = {
            "arclog": databases.contender(lambda folder, url: w3_loop.arclog(folder, items, text, ARCLOG_STORE_URL=url))
        }
        if dbos_is_there():
            contenders["DBOS"] = databases.contender(
                lambda folder, url: w3_loop.dbos(folder, items, BENCH_DATABASE=url)
            )
        taken = interleaved(options.size(options.repeat, 1), contenders)
    if "DBOS" in taken:
        ratio = taken["DBOS"].over(taken["arclog"], "run_s")
        findings.ratios.append(Line(f"DBOS ÷ arclog, {items} items", ratio, "×", DBOS_GOAL))
    for name, samples in taken.items():
        findings.figures.append(Line(f"{name}, {items} items", w3_loop.pace(samples, items), "items/s", digits=0))
    return findings
