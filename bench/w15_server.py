"""W15 server: a run followed by many clients at once, and how long a status takes while other runs go on."""

from __future__ import annotations

import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved

GOAL = Goal("<=", 20.0)
RUNS_AT_A_TIME = 8


def measure(options: Options) -> Findings:
    clients, asked = options.size(200, 5), options.size(1000, 20)
    findings = Findings(
        "W15", f"server: {clients} clients follow one run; {asked} status requests beside {RUNS_AT_A_TIME} runs"
    )
    taken = interleaved(
        options.size(options.repeat, 1),
        {
            "streams": in_new_folder(options, lambda folder: streams(folder, clients)),
            "status": in_new_folder(options, lambda folder: status(folder, asked)),
        },
    )
    told, answered = taken["streams"], taken["status"]
    findings.figures += [
        Line("status under load, p99", answered.of("p99_ms"), "ms", GOAL),
        Line("status under load, p50", answered.of("p50_ms"), "ms"),
        Line("runs of 21 steps beside it", answered.of("runs_per_s"), "1/s", digits=1),
        Line(f"approval to the end of the last of {clients} streams", told.of("last_s", 1000), "ms", digits=0),
    ]
    return findings


def streams(folder: str, clients: int) -> Sample:
    sample = child("run_server.py", "streams", os.path.join(folder, "home"), str(clients), folder=folder)
    expect("clients that were told everything once and in order", sample["whole"], clients)
    return sample


def status(folder: str, asked: int) -> Sample:
    home = os.path.join(folder, "home")
    sample = child("run_server.py", "status", home, str(asked), str(RUNS_AT_A_TIME), folder=folder)
    expect("good answers", sample["good"], asked)
    return sample
