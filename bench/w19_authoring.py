"""W19 authoring: small tests of playbooks, one after the other in one process, and the migration of many older playbooks."""

from __future__ import annotations

from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved

TESTS = Goal(">=", 200)
MIGRATED = Goal("<=", 10.0)


def measure(options: Options) -> Findings:
    tests, files = options.size(1000, 20), options.size(1000, 20)
    findings = Findings("W19", f"authoring: {tests} small tests of a playbook; {files} older playbooks migrated")
    contenders = {"arclog": in_new_folder(options, lambda folder: arclog(folder, tests, files))}
    ours = interleaved(options.size(2 * options.repeat + 1, 1), contenders)["arclog"]
    findings.ratios.append(Line("tests a second, after start", ours.of("tests_per_s"), "/s", TESTS, digits=0))
    findings.ratios.append(Line("1,000 files migrated, start included", ours.of("migrate_1000_s"), "s", MIGRATED))
    findings.figures.append(Line("lines of one of them", ours.of("lines"), "", digits=0))
    return findings


def arclog(folder: str, tests: int, files: int) -> Sample:
    sample = child("run_authoring.py", str(tests), str(files), folder=folder)
    expect("tests passed and files left undecided", (sample["passed"], sample["undecided"]), (tests, 0))
    return sample
