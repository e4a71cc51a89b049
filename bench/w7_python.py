"""W7 python task: what a warm `python` task costs over calling its function."""

from __future__ import annotations

import os

from bench.harness import (
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
    write,
)
from bench.playbooks import NOOP, PYTHON, check_run, loop

GOAL = Goal("<=", 1.0)


def measure(options: Options) -> Findings:
    findings = Findings("W7", "python task: warm `def main(): return 1` in a sequential loop of one run")
    tasks = options.size(500, 50)
    taken = interleaved(
        options.size(options.repeat, 1),
        {
            "python": in_new_folder(options, lambda folder: arclog(folder, tasks, PYTHON, "1")),
            "noop": in_new_folder(options, lambda folder: arclog(folder, tasks, NOOP, "null")),
            "pipe": in_new_folder(options, lambda folder: pipe(folder, tasks)),
        },
    )
    python, noop, bare = taken["python"], taken["noop"], taken["pipe"]
    call_ms = bare.of("call_ms").value
    findings.ratios.append(
        Line("task duration less the call, median", _less(python.of("task_ms"), call_ms), "ms", GOAL)
    )
    findings.ratios.append(Line("task duration ÷ bare pipe round trip", python.over(bare, "task_ms"), "×"))
    findings.notes.append(
        "an iteration also holds a durable commit: an effectful task is acknowledged before the next one starts"
    )
    findings.figures += [
        Line(f"python, {tasks} tasks, an iteration, median pace in the log", python.of("pace_ms"), "ms", digits=3),
        Line(f"python, {tasks} tasks, duration, median", python.of("task_ms"), "ms", digits=3),
        Line(f"python, {tasks} tasks, duration, p95", python.of("task_p95_ms"), "ms", digits=3),
        Line("python, first task (starts its process)", python.of("first_task_ms"), "ms", digits=1),
        Line(f"python, {tasks} tasks, an iteration, wall", _each(python, tasks), "ms", digits=3),
        Line(f"noop, {tasks} tasks, an iteration, wall", _each(noop, tasks), "ms", digits=3),
        Line("bare pipe round trip", bare.of("task_ms"), "ms", digits=3),
        Line("the function, called in process", bare.of("call_ms"), "ms", digits=6),
    ]
    return findings


def _less(spread: Spread, amount: float) -> Spread:
    return Spread(spread.value - amount, spread.low - amount, spread.high - amount)


def _each(samples: Samples, tasks: int) -> Spread:
    return samples.of("run_s", 1000 / tasks)


def arclog(folder: str, tasks: int, tool: str, result: str) -> Sample:
    file = write(folder, "loop.yaml", loop(tasks, tool))
    sample = child("run_arclog.py", "one", file, os.path.join(folder, "home"), folder=folder)
    check_run(sample, steps=1, tasks=tasks, result=result)
    return sample


def pipe(folder: str, tasks: int) -> Sample:
    sample = child("run_pipe.py", str(tasks), folder=folder)
    expect("right answers", sample["right"], tasks)
    return sample
