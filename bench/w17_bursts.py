"""W17 bursts: timers, and schedules, that are due at the same moment, on SQLite and PostgreSQL; and what others feel of them.
On PostgreSQL also with two servers.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved
from bench.postgres import Databases, missing, postgres, postgres_is_there

#: until the last has fired, or has started its run
GOALS = {
    ("SQLite", "timers"): Goal("<=", 1.5),
    ("SQLite", "schedules"): Goal("<=", 5.0),
    ("PostgreSQL", "timers"): Goal("<=", 3.0),
    ("PostgreSQL", "schedules"): Goal("<=", 8.0),
}
TWO = "PostgreSQL with two servers"
STEP_GOAL = Goal("<=", 50.0)
#: from the making of the runs to the moment that they wait for
PREPARED_S, PREPARED_QUICK_S = 20, 5


def measure(options: Options) -> Findings:
    count, prepared = options.size(10_000, 100), options.size(PREPARED_S, PREPARED_QUICK_S)
    findings = Findings("W17", f"{count:,} timers, and {count:,} schedules, due at the same moment")
    rounds = options.size(options.repeat, 1)
    kinds = ("timers", "schedules")
    sqlite = {f"SQLite, {kind}": in_new_folder(options, _on_sqlite(kind, count, prepared)) for kind in kinds}
    taken = interleaved(rounds, sqlite)
    if postgres_is_there():
        with postgres(options.folder) as dsn:
            databases = Databases(dsn, options)
            on_postgres = {
                f"{name}, {kind}": databases.contender(_on_postgres(kind, count, prepared, servers))
                for name, servers in (("PostgreSQL", 1), (TWO, 2))
                for kind in kinds
            }
            taken |= interleaved(rounds, on_postgres)
    else:
        missing(findings)
    for name, samples in taken.items():
        store, _, kind = name.partition(", ")
        goal = GOALS[store.replace(TWO, "PostgreSQL"), kind]
        findings.ratios.append(Line(f"{name}: until the last", samples.of("took_s"), "s", goal))
        findings.ratios.append(
            Line(f"{name}: steps of another run meanwhile, p99", samples.of("step_p99_ms"), "ms", STEP_GOAL, digits=1)
        )
        findings.figures.append(Line(f"{name}: CPU of arclog", samples.of("cpu_s"), "s"))
        findings.figures.append(Line(f"{name}: steps of another run meanwhile", samples.of("steps"), "", digits=0))
        if store == TWO:
            for server, share in (("first", "share"), ("second", "share_beside")):
                figure = samples.of(share, 100)
                findings.figures.append(Line(f"{name}: share of the {server} server", figure, "%", digits=0))
    return findings


def _on_sqlite(kind: str, count: int, prepared: int) -> Callable[[str], Sample]:
    return lambda folder: burst(folder, kind, count, prepared)


def _on_postgres(kind: str, count: int, prepared: int, servers: int) -> Callable[[str, str], Sample]:
    return lambda folder, url: burst(folder, kind, count, prepared, servers, ARCLOG_STORE_URL=url)


def burst(folder: str, kind: str, count: int, prepared: int, servers: int = 1, **variables: str) -> Sample:
    home = os.path.join(folder, "home")
    words = (home, kind, str(count), str(prepared), str(servers))
    sample = child("run_burst.py", *words, folder=folder, **variables)
    expect(f"{kind} that fired, each once", sample["fired"], count)
    return {**sample, "share_beside": 1 - sample["share"]}
