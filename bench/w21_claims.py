"""W21 claims: one command after the other out of a long queue that many tenants share, on SQLite and PostgreSQL."""

from __future__ import annotations

import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved, spread
from bench.postgres import Databases, missing, postgres, postgres_is_there

GOAL = Goal("<=", 2.0)


def measure(options: Options) -> Findings:
    queued, tenants, count = options.size(50_000, 200), options.size(5_000, 20), options.size(2_000, 40)
    findings = Findings("W21", f"claims of one command, {queued:,} queued by {tenants:,} tenants")
    rounds = options.size(options.repeat, 1)
    taken = interleaved(
        rounds, {"SQLite": in_new_folder(options, lambda folder: claims(folder, queued, tenants, count))}
    )
    if postgres_is_there():
        with postgres(options.folder) as dsn:
            contender = Databases(dsn, options).contender(
                lambda folder, url: claims(folder, queued, tenants, count, ARCLOG_STORE_URL=url)
            )
            taken |= interleaved(rounds, {"PostgreSQL": contender})
    else:
        missing(findings)
    for name, samples in taken.items():
        findings.ratios.append(Line(f"{name}: a claim, p99", samples.of("p99_ms"), "ms", GOAL))
        findings.figures.append(Line(f"{name}: a claim, median", samples.of("p50_ms"), "ms"))
        findings.figures.append(Line(f"{name}: a bare UPDATE of one row, p99", samples.of("bare_p99_ms"), "ms"))
        for percentile in ("p50", "p99"):
            ratio = spread([sample[f"{percentile}_ms"] / sample[f"bare_{percentile}_ms"] for sample in samples.samples])
            findings.figures.append(Line(f"{name}: a claim ÷ a bare UPDATE, {percentile}", ratio, "×"))
        findings.figures.append(Line(f"{name}: CPU of arclog for a claim", samples.of("cpu_ms"), "ms"))
    return findings


def claims(folder: str, queued: int, tenants: int, count: int, **variables: str) -> Sample:
    home = os.path.join(folder, "home")
    sample = child("run_claims.py", home, str(queued), str(tenants), str(count), folder=folder, **variables)
    # Tenants take turns: until all have had theirs, nobody gets a second one.
    expect("tenants that were served", sample["tenants_served"], min(count, tenants))
    return sample
