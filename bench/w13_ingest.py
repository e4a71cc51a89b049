"""W13 ingest: events from outside over HTTP, each with an id of its own, all durable when they are answered."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from bench.harness import (
    CHILDREN,
    Findings,
    Goal,
    Line,
    Options,
    Sample,
    Samples,
    Spread,
    child,
    expect,
    in_new_folder,
    interleaved,
    spread,
)

BATCHED = Goal(">=", 5000)
SINGLY = Goal(">=", 0.6)
CONNECTIONS = 32
IN_A_BATCH = 500


def measure(options: Options) -> Findings:
    findings = Findings("W13", f"ingest: POST /api/events over {CONNECTIONS} connections, into the log of one run")
    many, single = options.size(40_000, 400), options.size(4_000, 100)
    taken = interleaved(
        options.size(options.repeat, 1),
        {
            "batched": in_new_folder(options, lambda folder: arclog(folder, many, 4, IN_A_BATCH)),
            "singly": in_new_folder(options, lambda folder: arclog(folder, single, CONNECTIONS, 0)),
            "bare": in_new_folder(options, lambda folder: bare(folder, single)),
        },
    )
    alone = taken["bare"].over(taken["singly"], "send_s")
    findings.ratios += [
        Line("arclog's rate, singly ÷ a bare FastAPI POST's", alone, "×", SINGLY),
        Line(f"arclog, {many} events in batches of {IN_A_BATCH}", _rate(taken["batched"], many), "1/s", BATCHED, 0),
    ]
    findings.figures += [
        Line(f"arclog, {single} events singly", _rate(taken["singly"], single), "1/s", digits=0),
        Line(f"bare FastAPI, {single} POSTs, nothing stored", _rate(taken["bare"], single), "1/s", digits=0),
    ]
    return findings


def _rate(taken: Samples, count: int) -> Spread:
    return spread([count / sample["send_s"] for sample in taken.samples])


@contextmanager
def server(*args: str) -> Iterator[tuple[str, str]]:
    """A server in a process of its own: its port, and the run that it has."""
    command = [sys.executable, os.path.join(CHILDREN, "run_ingest.py"), "serve", *args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port, execution_id = process.stdout.readline().split()
        yield port, execution_id
        assert process.stdin is not None
        process.stdin.close()


def arclog(folder: str, count: int, connections: int, batch: int) -> Sample:
    with server("arclog", os.path.join(folder, "home")) as (port, execution_id):
        sample = child(
            "run_ingest.py", "send", port, execution_id, str(count), str(connections), str(batch), folder=folder
        )
    expect("events taken", sample["good"], count)
    return sample


def bare(folder: str, count: int) -> Sample:
    with server("bare") as (port, execution_id):
        sample = child("run_ingest.py", "send", port, execution_id, str(count), str(CONNECTIONS), "0", folder=folder)
    expect("good answers", sample["good"], count)
    return sample
