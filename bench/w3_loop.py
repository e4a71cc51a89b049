"""W3, so far only in part: a sequential loop over noop items in one run."""

from __future__ import annotations

import os

from bench.harness import Findings, Line, Options, Sample, child, in_new_folder, interleaved, spread, write
from bench.playbooks import check_run, loop


def measure(options: Options) -> Findings:
    found = Findings("W3", "loop: one run, sequential loop over noop items")
    items = options.size(1000, 100)
    taken = interleaved(
        options.size(options.repeat, 1), {"arclog": in_new_folder(options, lambda folder: arclog(folder, items))}
    )
    pace = spread([items / sample["run_s"] for sample in taken["arclog"].samples])
    found.figures.append(Line(f"arclog, {items} items", pace, "items/s", digits=0))
    found.notes.append("no goal yet: the goal is for the parallel loop")
    return found


def arclog(folder: str, items: int) -> Sample:
    file = write(folder, "loop.yaml", loop(items))
    sample = child("run_arclog.py", "one", file, os.path.join(folder, "home"), folder=folder)
    check_run(sample, steps=1, tasks=items)
    return sample
