"""W16 idle: what workers without work ask of the store, by HTTP, on SQLite, PostgreSQL, and PostgreSQL with NATS."""

from __future__ import annotations

import importlib.util
import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, in_new_folder, interleaved
from bench.nats import nats
from bench.postgres import Databases, missing, postgres, postgres_is_there

#: once in five seconds
GOAL = Goal("<=", 0.2)


def measure(options: Options) -> Findings:
    workers, seconds = options.size(200, 3), options.size(60, 2)
    findings = Findings("W16", f"{workers} idle workers by HTTP for {seconds} s: store queries a second for each")
    rounds = options.size(options.repeat, 1)
    taken = interleaved(rounds, {"SQLite": in_new_folder(options, lambda folder: idle(folder, workers, seconds))})
    if postgres_is_there() and importlib.util.find_spec("nats") is not None:
        with postgres(options.folder) as dsn, nats() as bus:
            databases = Databases(dsn, options)
            plain = databases.contender(lambda folder, url: idle(folder, workers, seconds, ARCLOG_STORE_URL=url))
            both = databases.contender(
                lambda folder, url: idle(folder, workers, seconds, ARCLOG_STORE_URL=url, ARCLOG_BUS_URL=bus)
            )
            taken |= interleaved(rounds, {"PostgreSQL": plain, "PostgreSQL and NATS": both})
    else:
        missing(findings)
    for name, samples in taken.items():
        findings.ratios.append(Line(name, samples.of("queries_per_worker_s"), "1/s", GOAL, digits=3))
        findings.figures.append(Line(f"{name}: CPU of server and workers", samples.of("cpu_percent"), "%", digits=1))
    return findings


def idle(folder: str, workers: int, seconds: int, **variables: str) -> Sample:
    home = os.path.join(folder, "home")
    return child("run_idle.py", home, str(workers), str(seconds), folder=folder, **variables)
