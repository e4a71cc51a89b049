"""W9 http: GETs to a local server in a parallel loop of one run, beside the bare client at the same concurrency."""

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
    write,
)
from bench.playbooks import NOOP, check_run, parallel_loop

GOAL = Goal(">=", 0.5)
AT_A_TIME = 10
RESULT = '{"ok": true, "items": [1, 2, 3]}'


def measure(options: Options) -> Findings:
    findings = Findings("W9", f"http: GETs to a local server, {AT_A_TIME} at a time, in one run, every one in the log")
    count = options.size(1000, 50)
    with server() as url:
        taken = interleaved(
            options.size(options.repeat, 1),
            {
                "arclog": in_new_folder(options, lambda folder: arclog(folder, url, count)),
                "bare": in_new_folder(options, lambda folder: bare(folder, url, count)),
                "noop": in_new_folder(options, lambda folder: noop(folder, count)),
            },
        )
    ours, theirs, nothing = taken["arclog"], taken["bare"], taken["noop"]
    findings.ratios.append(Line("arclog's rate ÷ the bare httpx2 client's", theirs.over(ours, "run_s"), "×", GOAL))
    findings.figures += [
        Line(f"arclog, {count} GETs", _rate(ours, count), "1/s", digits=0),
        Line(f"bare httpx2 client, {count} GETs", _rate(theirs, count), "1/s", digits=0),
        Line(f"arclog, {count} noops in the same loop", _rate(nothing, count), "1/s", digits=0),
        Line("arclog, CPU of a GET", ours.of("cpu_s", 1000 / count), "ms", digits=3),
        Line("bare httpx2 client, CPU of a GET", theirs.of("cpu_s", 1000 / count), "ms", digits=3),
    ]
    return findings


def _rate(taken: Samples, count: int) -> Spread:
    return spread([count / sample["run_s"] for sample in taken.samples])


@contextmanager
def server() -> Iterator[str]:
    """A server in a process of its own."""
    command = [sys.executable, os.path.join(CHILDREN, "run_http.py"), "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/"
        assert process.stdin is not None
        process.stdin.close()


def arclog(folder: str, url: str, count: int) -> Sample:
    tool = f'    tool: {{kind: http, url: "{url}", params: {{n: "{{{{ iter.item }}}}"}}}}\n'
    file = write(folder, "gets.yaml", parallel_loop(count, AT_A_TIME, tool))
    sample = child("run_arclog.py", "one", file, os.path.join(folder, "home"), folder=folder)
    check_run(sample, steps=1, tasks=count, result=RESULT)
    return sample


def noop(folder: str, count: int) -> Sample:
    file = write(folder, "noops.yaml", parallel_loop(count, AT_A_TIME, NOOP))
    return child("run_arclog.py", "one", file, os.path.join(folder, "home"), folder=folder)


def bare(folder: str, url: str, count: int) -> Sample:
    sample = child("run_http.py", "bare", url, str(count), str(AT_A_TIME), folder=folder)
    expect("good answers", sample["good"], count)
    return sample
