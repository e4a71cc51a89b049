"""The report as text, as Markdown to paste, and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict

from bench.harness import Findings, Goal, Line, Spread

NOISE = "Medians, range of the rounds in brackets; only the ratios of one run compare, and below 1.5× is a tie."
#: above this, waiting for commits is nearly all that a durable step costs
SLOW_DISK_US = 1000
SIGNS = {"<=": "≤", ">=": "≥"}


def text(findings: list[Findings], machine: dict[str, str], problems: list[str]) -> str:
    rows = [(finding.workload, line) for finding in findings for line in finding.ratios]
    lines = [f"WRONG RESULT  {problem}" for problem in problems]
    lines += [f"NOISY  {warning}" for warning in _warnings(machine)]
    lines += ["RATIOS AND GOALS", *_table(rows, with_goal=True), "", "FIGURES"]
    for finding in findings:
        lines += [f"{finding.workload}  {finding.title}", *_table(("", line) for line in finding.figures)]
        lines += [f"    ({note})" for note in finding.notes]
    lines += ["", "MACHINE", *(f"  {name:<13} {value}" for name, value in machine.items()), "", NOISE]
    return "\n".join(lines)


def markdown(findings: list[Findings], machine: dict[str, str], problems: list[str]) -> str:
    lines = [f"**Wrong result:** {problem}\n" for problem in problems]
    lines += [f"**Noisy:** {warning}\n" for warning in _warnings(machine)]
    lines += ["| workload | ratio or goal | measured | range | goal | |", "| --- | --- | ---: | --- | --- | --- |"]
    for finding in findings:
        for line in finding.ratios:
            value, rounds, goal, verdict = _cells(line)
            lines.append(f"| {finding.workload} | {line.what} | {value} | {rounds} | {goal} | {verdict} |")
    lines += ["", "| workload | figure | measured | range |", "| --- | --- | ---: | --- |"]
    for finding in findings:
        for line in finding.figures:
            value, rounds, _, _ = _cells(line)
            lines.append(f"| {finding.workload} | {line.what} | {value} | {rounds} |")
    notes = [f"- {finding.workload}: {note}" for finding in findings for note in finding.notes]
    about = "; ".join(f"{name} {value}" for name, value in machine.items())
    return "\n".join([*lines, "", *notes, "", f"Machine: {about}.", NOISE])


def as_json(findings: list[Findings], machine: dict[str, str], problems: list[str]) -> str:
    whole = {"machine": machine, "problems": problems, "workloads": [asdict(finding) for finding in findings]}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _warnings(machine: dict[str, str]) -> list[str]:
    load, cores = float(machine.get("load before", 0)), int(machine.get("cores", 1))
    slowest = max(map(int, re.findall(r"(\d+) µs", machine.get("fdatasync", ""))), default=0)
    warnings: list[str] = []
    if load > cores / 4:
        warnings.append(
            f"the machine was busy before the benchmarks began (load {load:.2f}, {cores} cores): measure again, no goal counts"
        )
    if slowest > SLOW_DISK_US:
        warnings.append(
            f"an fdatasync takes {slowest} µs (slow disk, or others on the cores): it hides what the engine costs"
        )
    return warnings


def _table(rows: Iterable[tuple[str, Line]], *, with_goal: bool = False) -> list[str]:
    out: list[str] = []
    for head, line in rows:
        value, rounds, goal, verdict = _cells(line)
        tail = f"  {goal:<12} {verdict}" if with_goal else ""
        out.append(f"  {head:<3} {line.what:<54} {value:>13}  {rounds:<17}{tail}".rstrip())
    return out


def _cells(line: Line) -> tuple[str, str, str, str]:
    goal = _goal(line.goal, line.unit)
    verdict = "" if line.goal is None else line.goal.verdict(line.spread)
    return _amount(line.spread.value, line), _range(line.spread, line), goal, verdict


def _amount(value: float, line: Line) -> str:
    return f"{value:,.{line.digits}f} {line.unit}"


def _range(spread: Spread, line: Line) -> str:
    if spread.low == spread.high:
        return ""
    return f"[{spread.low:,.{line.digits}f} – {spread.high:,.{line.digits}f}]"


def _goal(goal: Goal | None, unit: str) -> str:
    return "" if goal is None else f"{SIGNS[goal.sign]} {goal.bound:g} {unit}"
