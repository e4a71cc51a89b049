"""Two revisions by turns: ./x bench versus REVISION [W1 W2 W3 W7 P2 P4] [--rounds N] [--markdown] [--dir FOLDER]

The benchmarks of a revision are run by its own `./x bench` in a clone of its own, one round at a time, alternating with those of this
tree, so that a slow hour of the machine affects both. Figures and goals that both revisions report by the same name are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from bench.harness import ROOT
from bench.machine import machine

#: What a step, an item, a python task, a run and a start cost.
WORKLOADS = ("W1", "W2", "W3", "W7", "P2", "P4")
#: The first words of figures about arclog. Others are about what it is compared with.
OURS = ("arclog", "python", "task duration less")
TIMEOUT_S = 1800.0


class Figure(NamedTuple):
    workload: str
    what: str
    unit: str


def main(argv: list[str]) -> int:
    options = _arguments(argv)
    about = machine(options.dir)
    values: dict[Figure, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    with tempfile.TemporaryDirectory(dir=options.dir or None, prefix="arclog-bench-") as folder:
        os.chmod(folder, 0o755)  # PostgreSQL runs as another user, from the clone's packages
        other = _clone(options.revision, folder)
        for number in range(options.rounds):
            # The second of two runs finds the disk busier, so they take turns at being first.
            for index in (0, 1) if number % 2 else (1, 0):
                tree = (options.revision, "this tree")[index]
                print(f"round {number + 1}, {tree} …", file=sys.stderr, flush=True)
                for figure, value in _measured((other, ROOT)[index], options.workloads or WORKLOADS, options.dir):
                    values[figure][index].append(value)
    print(report(values, options.revision, about, markdown=options.markdown))
    return 0


def _clone(revision: str, folder: str) -> str:
    """Return a clone of this repository at a revision."""
    clone = os.path.join(folder, "revision")
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    subprocess.run(["git", "-C", clone, "-c", "advice.detachedHead=false", "checkout", "-q", revision], check=True)
    return clone


def _measured(tree: str, workloads: tuple[str, ...], folder: str) -> Iterator[tuple[Figure, float]]:
    """Yield the figures of one round of a tree."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        words = [os.path.join(tree, "x"), "bench", *workloads, "--repeat", "1", "--json", file.name]
        words += ["--dir", folder] if folder else []
        subprocess.run(
            words, cwd=tree, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT_S
        )
        findings = json.load(file)
    for finding in findings["workloads"]:
        # A goal may repeat a figure.
        lines = {line["what"]: line for line in (*finding["figures"], *finding["ratios"])}
        for line in lines.values():
            yield Figure(finding["workload"], line["what"], line["unit"]), line["spread"]["value"]


def report(
    values: dict[Figure, tuple[list[float], list[float]]], revision: str, about: dict[str, str], *, markdown: bool
) -> str:
    heads = ["workload", "figure", revision, "this tree", "ratio of the medians", "of the best rounds"]
    rows = [
        [
            *(figure.workload, figure.what),
            *(f"{median(taken):.3f} {figure.unit}" for taken in (before, now)),
            f"{median(now) / median(before):.2f}",
            f"{_best(figure, now) / _best(figure, before):.2f}",
        ]
        for figure, (before, now) in values.items()
        if before and now and median(before) and figure.what.startswith(OURS)
    ]
    facts = "; ".join(f"{name} {value}" for name, value in about.items())
    if markdown:
        lines = ["| " + " | ".join(heads) + " |", "| --- | --- | ---: | ---: | ---: | ---: |"]
        return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), "", f"Machine: {facts}."])
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [heads, *rows]
    ]
    return "\n".join([*table, "", facts])


def _best(figure: Figure, taken: list[float]) -> float:
    """Return the best round: other work on the machine only ever adds time."""
    return max(taken) if figure.unit.endswith("/s") else min(taken)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./x bench versus", description="Compare two revisions by turns.")
    parser.add_argument("revision", help="the revision to compare this tree with")
    parser.add_argument("workloads", nargs="*", type=str.upper, metavar="W", help=" ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each revision (3)")
    parser.add_argument("--markdown", action="store_true", help="print a table for docs/performance.md")
    parser.add_argument(
        "--dir", default="", metavar="FOLDER", help="where to make the clone and the stores; a real disk"
    )
    return parser.parse_args(argv)
