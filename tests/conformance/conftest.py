"""Ends a run of the suites with a table: which backend kept how many of its port's rules."""

from __future__ import annotations

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    counted: dict[tuple[str, str], Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            file, _, rest = getattr(report, "nodeid", "").partition("::")
            if "/conformance/test_" in file and rest.startswith("Test"):
                port = file.rpartition("/test_")[2].removesuffix(".py").partition("_")[0]
                counted.setdefault((port, rest.partition("::")[0]), Counter())[outcome] += 1
    if len(counted) > 1:
        terminalreporter.section("conformance")
        for (port, backend), outcomes in sorted(counted.items()):
            counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
            terminalreporter.write_line(f"{port:8} {backend.removeprefix('Test'):32} {counts}")
