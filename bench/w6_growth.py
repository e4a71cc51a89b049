"""W6 growth of the store: bytes on the disk for a simple step, once the store is closed."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing

from bench.harness import Findings, Goal, Line, Options, child, dbos_is_there, spread
from bench.w2_chain import arclog, dbos

GOAL = Goal("<=", 2.0)
TEXTS = ("plans", "catalog")


def measure(options: Options) -> Findings:
    """One round: sizes do not depend on how busy the machine is."""
    findings = Findings("W6", "growth of the store: kB on the disk a step, closed store, less an empty one")
    steps = options.size(1000, 100)
    with tempfile.TemporaryDirectory(dir=options.folder or None, prefix="arclog-bench-") as folder:
        arclog(folder, steps)
        home = os.path.join(folder, "home")
        blank = os.path.join(folder, "blank")
        child("run_arclog.py", "empty", blank, folder=folder)
        size = used(home) - used(blank)
        with_run, without = (
            child("run_arclog.py", "tables", home_folder, folder=folder)["tables"] for home_folder in (home, blank)
        )
        grown = {name: with_run[name] - without[name] for name in with_run}
        texts = sum(grown[name] for name in TEXTS)
    _add(findings, findings.ratios, f"arclog, {steps} steps, everything", size, steps, GOAL)
    _add(findings, findings.ratios, f"arclog, {steps} steps, without plan and playbook text", size - texts, steps, GOAL)
    for name, bytes_ in sorted(grown.items(), key=lambda item: -item[1]):
        if bytes_ > 0:
            _add(findings, findings.figures, f"arclog, table {name} with its indexes", bytes_, steps)
    if dbos_is_there() and not options.quick:  # each of the two takes a second to shut down
        theirs = dbos_bytes(options, steps) - dbos_bytes(options, 0)
        _add(findings, findings.figures, f"DBOS, {steps} steps", theirs, steps)
        findings.notes.append("DBOS keeps a step's result; arclog keeps every event of the step")
    return findings


def _add(findings: Findings, where: list[Line], what: str, size: float, steps: int, goal: Goal | None = None) -> None:
    where.append(Line(what, spread([size / steps / 1000]), "kB", goal))
    if where is not findings.figures:
        findings.figures.append(Line(what, spread([size / steps / 1000]), "kB", digits=3))


def dbos_bytes(options: Options, steps: int) -> int:
    with tempfile.TemporaryDirectory(dir=options.folder or None, prefix="arclog-bench-") as folder:
        dbos(folder, steps)
        return used(folder)


def used(folder: str) -> int:
    """Bytes of the database files in a folder, write-ahead logs and journals included, less the free pages inside:
    DBOS's migrations leave some, into which the first steps go.
    """
    files = [os.path.join(folder, name) for name in os.listdir(folder) if ".db" in name]
    return sum(map(os.path.getsize, files)) - sum(map(_free, (file for file in files if file.endswith(".db"))))


def _free(file: str) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
        ((pages,),) = connection.execute("PRAGMA freelist_count")
        ((size,),) = connection.execute("PRAGMA page_size")
    return int(pages) * int(size)
