"""W20 history: a retry, a fork and a replay of a long run, a comparison, a simulation and the first page of a search."""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack

from bench import harness
from bench.harness import Findings, Goal, Line, Options, Sample, child, expect, in_new_folder, interleaved, spread
from bench.postgres import missing, postgres, postgres_is_there

#: Ten million events are filled in minutes.
TIMEOUT_S = 3600.0


def measure(options: Options) -> Findings:
    events, short, steps = options.size(100_000, 4_000), options.size(10_000, 1_000), options.size(4_000, 100)
    findings = Findings("W20", f"history: a recorded run of {events:,} events, in a fresh process")
    contenders = {"arclog": in_new_folder(options, lambda folder: arclog(folder, events, short, steps))}
    ours = interleaved(options.size(options.repeat, 1), contenders)["arclog"]
    findings.ratios.append(Line("retry --from", ours.of("retry_s"), "s", Goal("<=", 1.0)))
    findings.ratios.append(Line("fork", ours.of("fork_s"), "s", Goal("<=", 1.0)))
    findings.ratios.append(Line("replay", ours.of("replay_rate"), "events/s", Goal(">=", 100_000), digits=0))
    findings.ratios.append(Line(f"diff of two runs of {short:,} events", ours.of("diff_s"), "s", Goal("<=", 2.0)))
    findings.ratios.append(Line("simulate", ours.of("simulate_rate"), "steps/s", Goal(">=", 5_000), digits=0))
    findings.ratios.append(Line("search, first page of 100", ours.of("search_s", 1000), "ms", Goal("<=", 100)))
    findings.figures += [
        Line(f"{name}, CPU", ours.of(f"{name}_cpu_s"), "s") for name in ("retry", "fork", "replay", "diff")
    ]
    if options.large:
        harness.TIMEOUT_S = TIMEOUT_S
        for store in ("sqlite", "postgres"):
            search(findings, store, options)
    return findings


def search(findings: Findings, store: str, options: Options) -> None:
    """The first pages of searches through a store with many events."""
    if store == "postgres" and not postgres_is_there():
        missing(findings)
        return
    events, rounds = options.size(10_000_000, 20_000), options.size(10, 2)
    with (
        tempfile.TemporaryDirectory(dir=options.folder or None, prefix="arclog-bench-") as folder,
        ExitStack() as stack,
    ):
        variables = {"ARCLOG_STORE_PARTITION_S": "3600"}
        if store == "postgres":
            variables["ARCLOG_STORE_URL"] = stack.enter_context(postgres(options.folder))
        home = os.path.join(folder, "home")
        filled = child("run_search.py", home, "fill", str(events), folder=folder, **variables)
        sample = child("run_search.py", home, "measure", str(rounds), folder=folder, **variables)
    slowest = max(sample["ms"], key=lambda name: sample["ms"][name])
    what = f"first page of 100 among {filled['events']:,.0f} events, {store}: {slowest}"
    findings.ratios.append(Line(what, spread([sample["ms"][slowest]]), "ms", Goal("<=", 100)))
    for name, took in sample["ms"].items():
        findings.figures.append(Line(f"{store}: {name}", spread([took]), "ms"))
        findings.figures.append(Line(f"{store}: {name}, CPU of this process", spread([sample["cpu_ms"][name]]), "ms"))
    findings.notes.append(f"{store}: {filled['runs']:,.0f} runs, filled in {filled['fill_s']:.0f} s")


def arclog(folder: str, events: int, short: int, steps: int) -> Sample:
    sample = child("run_history.py", str(events), str(short), str(steps), folder=folder)
    expect("replay and simulation agree", (sample["replayed"], sample["same"]), (1.0, 1.0))
    return {
        **sample,
        "replay_rate": sample["events"] / sample["replay_s"],
        "simulate_rate": sample["simulated"] / sample["simulate_s"],
    }
