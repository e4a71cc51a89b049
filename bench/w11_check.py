"""W11 check: how long a playbook of 500 steps takes to load, compile and lint, beside the bare YAML parser."""

from __future__ import annotations

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved

GOAL = Goal("<=", 0.30)


def measure(options: Options) -> Findings:
    steps = options.size(500, 50)
    findings = Findings("W11", f"check: a playbook of {steps} steps, three templates each, in a fresh process")
    contenders = {"arclog": in_new_folder(options, lambda folder: arclog(folder, steps))}
    ours = interleaved(options.size(2 * options.repeat + 1, 1), contenders)["arclog"]
    findings.ratios.append(Line("check, without start-up", ours.of("check_s"), "s", GOAL))
    findings.ratios.append(Line("check ÷ the YAML parser alone", ours.of("ratio"), "×"))
    findings.figures.append(Line("check", ours.of("check_s", 1000), "ms", digits=0))
    findings.figures.append(Line("the YAML parser alone (CSafeLoader)", ours.of("yaml_s", 1000), "ms", digits=0))
    findings.figures.append(Line("lines of YAML", ours.of("lines"), "", digits=0))
    return findings


def arclog(folder: str, steps: int) -> Sample:
    sample = child("run_check.py", str(steps), folder=folder)
    expect("steps and findings", (sample["steps"], sample["findings"]), (steps, 0))
    return {**sample, "ratio": sample["check_s"] / sample["yaml_s"]}
