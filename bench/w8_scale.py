"""W8 scale: a run of many steps. Does a step cost more the longer the log is, and how long does a resume take?"""

from __future__ import annotations

import os

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved, write
from bench.playbooks import CYCLE

#: So many take a minute; the goals speak of 100,000, whose log is the same but longer.
STEPS = 20_000


def measure(options: Options) -> Findings:
    steps = options.size(STEPS, 1000)
    found = Findings("W8", f"scale: a cycle of two noop steps, {steps} step runs in one execution")
    contenders = {"arclog": in_new_folder(options, lambda folder: arclog(folder, steps))}
    ours = interleaved(1, contenders)["arclog"]
    found.ratios.append(Line("last tenth ÷ second tenth of the run", ours.of("growth"), "×", Goal("<=", 1.2)))
    found.ratios.append(Line("resume at its end", ours.of("resume_s"), "s", Goal("<=", 5.0)))
    found.figures.append(Line("a step", ours.of("run_s", 1000 / steps), "ms", digits=3))
    found.figures.append(Line("resume, from the newest snapshot", ours.of("resume_s", 1000), "ms", digits=1))
    found.figures.append(Line("resume, from the log alone", ours.of("fold_s", 1000), "ms", digits=1))
    found.figures.append(Line("events folded in a second, from the log alone", ours.of("pace"), "1/s", digits=0))
    return found


def arclog(folder: str, steps: int) -> Sample:
    file = write(folder, "cycle.yaml", CYCLE)
    sample = child("run_scale.py", str(steps), file, os.path.join(folder, "home"), folder=folder)
    expect("state and steps", (sample["state"], sample["steps"]), ("COMPLETED", steps + 1))
    expect("the snapshot gives the state of the log", sample["same"], True)
    return {**sample, "pace": sample["events"] / sample["fold_s"]}
