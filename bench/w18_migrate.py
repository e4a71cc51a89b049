"""W18 migration: a store of the schema before, with 100,000 runs, is brought up to date; on PostgreSQL beside a server that writes."""

from __future__ import annotations

import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved
from bench.postgres import Databases, missing, postgres, postgres_is_there

GOAL = Goal("<=", 60.0)
WAIT_GOAL = Goal("<=", 1000.0)


def measure(options: Options) -> Findings:
    count = options.size(100_000, 200)
    findings = Findings("W18", f"a store of the schema before with {count:,} runs is brought up to date")
    taken = interleaved(1, {"SQLite": in_new_folder(options, lambda folder: migrate(folder, count))})
    if postgres_is_there():
        with postgres(options.folder) as dsn:
            contender = Databases(dsn, options).contender(
                lambda folder, url: migrate(folder, count, ARCLOG_STORE_URL=url)
            )
            taken |= interleaved(1, {"PostgreSQL": contender})
    else:
        missing(findings)
    for name, samples in taken.items():
        findings.ratios.append(Line(f"{name}, {count:,} runs", samples.of("took_s"), "s", GOAL))
    if "PostgreSQL" in taken:
        waited = taken["PostgreSQL"].of("longest_wait_ms")
        findings.ratios.append(
            Line("PostgreSQL, longest wait of a writer meanwhile", waited, "ms", WAIT_GOAL, digits=0)
        )
    return findings


def migrate(folder: str, count: int, **variables: str) -> Sample:
    sample = child("run_migrate.py", os.path.join(folder, "home"), str(count), folder=folder, **variables)
    expect("runs after the migration", sample["runs"], count)
    return sample
