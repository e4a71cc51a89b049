"""W1 cold start: the whole process of `arclog run`, one task, a home that does not exist yet."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from bench.harness import (
    CHILDREN,
    ROOT,
    Findings,
    Goal,
    Line,
    Options,
    Sample,
    dbos_is_there,
    expect,
    in_new_folder,
    interleaved,
    run,
    write,
)
from bench.playbooks import NOOP, PYTHON, chain

GOAL = Goal("<=", 0.30)
FLOOR = "import asyncio, json, sqlite3"
KINDS = {"noop": chain(1, NOOP), "python": chain(1, PYTHON)}


def measure(options: Options) -> Findings:
    findings = Findings("W1", "cold start: whole process, one run on a fresh home")
    contenders: dict[str, Callable[[], Sample]] = {
        "arclog noop": in_new_folder(options, lambda folder: _text(folder, KINDS["noop"])),
        "arclog python": in_new_folder(options, lambda folder: _text(folder, KINDS["python"])),
        "arclog examples/hello.yaml": in_new_folder(options, _hello),
        "floor": in_new_folder(options, lambda folder: _timed([sys.executable, "-c", FLOOR], folder)),
    }
    if dbos_is_there():
        contenders["DBOS, one step"] = in_new_folder(options, _dbos)
    # Processes are short: more rounds cost little and calm the median.
    taken = interleaved(options.size(2 * options.repeat + 1, 1), contenders)
    noop = taken["arclog noop"]
    for name, samples in taken.items():
        goal = GOAL if name.startswith("arclog") else None
        if goal:
            findings.ratios.append(Line(f"{name}, wall", samples.of("wall_s"), "s", goal))
        findings.figures.append(Line(f"{name}, wall", samples.of("wall_s"), "s", digits=3))
        findings.figures.append(Line(f"{name}, peak memory", samples.of("rss_mib"), "MiB", digits=0))
    findings.ratios.append(Line("arclog noop ÷ floor", noop.over(taken["floor"], "wall_s"), "×"))
    if "DBOS, one step" in taken:
        theirs = taken["DBOS, one step"]
        findings.ratios.append(Line("DBOS to its result ÷ arclog noop whole", theirs.over(noop, "until_result_s"), "×"))
        findings.figures.append(Line("DBOS, one step, to its result", theirs.of("until_result_s"), "s", digits=3))
        findings.notes.append(
            "DBOS's shutdown waits up to a second for a thread that polls, so the ratio leaves it out"
        )
    findings.notes.append(f"floor: python -c {FLOOR!r}; peak memory: of the largest process, not of the tree")
    return findings


def _timed(command: list[str], folder: str, **variables: str) -> Sample:
    ran = run(command, folder, **variables)
    return {"wall_s": ran.wall_s, "until_result_s": ran.wall_s, "rss_mib": ran.rss_mib, "stdout": ran.stdout}


def _arclog(folder: str, file: str) -> Sample:
    program = os.path.join(os.path.dirname(sys.executable), "arclog")
    home = os.path.join(folder, "home")
    sample = _timed([program, "run", file, "--json"], folder, ARCLOG_HOME=home)
    sample["summary"] = json.loads(sample["stdout"])
    expect("state", sample["summary"]["state"], "COMPLETED")
    expect("terminal event", sample["summary"]["terminal_event"], "playbook.completed")
    return sample


def _text(folder: str, text: str) -> Sample:
    sample = _arclog(folder, write(folder, "one.yaml", text))
    steps = {name: (step["status"], step["runs"]) for name, step in sample["summary"]["steps"].items()}
    expect("steps", steps, {"start": ("done", 1)})
    return sample


def _hello(folder: str) -> Sample:
    sample = _arclog(folder, os.path.join(ROOT, "examples", "hello.yaml"))
    expect("result", sample["summary"]["result"], "HELLO, WORLD!")
    return sample


def _dbos(folder: str) -> Sample:
    sample = _timed([sys.executable, os.path.join(CHILDREN, "run_dbos.py"), "chain", folder, "1"], folder)
    answer = json.loads(sample["stdout"].strip().splitlines()[-1])
    expect("steps done and recorded", (answer["done"], answer["recorded"]), (1, 1))
    return {**sample, "until_result_s": answer["total_s"]}
