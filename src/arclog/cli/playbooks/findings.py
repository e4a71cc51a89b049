"""The problems of a playbook, as text for people and data for scripts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from arclog.cli.render import Out, clean, counted, json_text, printable
from arclog.model.errors import Finding, PlaybookError

#: Warnings that `run` prints; `check` prints all.
_MOST_WARNINGS = 5
_COLOURS = {"error": ("red", "bold"), "warning": ("yellow", "bold"), "info": ("blue",)}


def as_data(finding: Finding, file: str) -> dict[str, Any]:
    return {
        "file": file,
        "line": finding.at.line,
        "column": finding.at.column,
        "severity": finding.severity,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
    }


def as_text(finding: Finding, source: str, file: str, out: Out) -> str:
    """The finding with its source line and caret, painted by its severity."""
    from arclog.plan.build import render_finding

    text = clean(render_finding(finding, source, file))
    if not out.colour:
        return text
    styles = _COLOURS.get(finding.severity, ())
    lines = text.split("\n")
    lines[0] = lines[0].replace(finding.severity, out.paint(finding.severity, *styles), 1)
    for index in range(1, len(lines)):
        if lines[index].strip(" |│") and not lines[index].strip(" |│^~"):
            lines[index] = out.paint(lines[index], *styles)
    return "\n".join(lines)


def tally(findings: Sequence[Finding]) -> str:
    """'2 errors, 1 warning'; '' when there is none."""
    words = (("error", "error"), ("warning", "warning"), ("info", "note"))
    numbers = [(sum(finding.severity == severity for finding in findings), word) for severity, word in words]
    return ", ".join(counted(number, word) for number, word in numbers if number)


def warn(findings: Sequence[Finding], source: str, file: str, *, as_json: bool) -> None:
    """Print the warnings of `check` to stderr, before the playbook is run."""
    warnings = [finding for finding in findings if finding.severity == "warning"]
    if not warnings:
        return
    if as_json:
        print(json_text({"warnings": [as_data(finding, file) for finding in warnings]}), file=sys.stderr)
        return
    out = Out(stream=sys.stderr)
    for finding in warnings[:_MOST_WARNINGS]:
        sys.stderr.write(printable(as_text(finding, source, file, out) + "\n\n", sys.stderr))
    if len(warnings) > _MOST_WARNINGS:
        sys.stderr.write(f"{counted(len(warnings) - _MOST_WARNINGS, 'more warning')}: arclog check {file}\n")
    sys.stderr.flush()


def complain(error: PlaybookError, as_json: bool) -> None:
    """Print to stderr why a playbook cannot run."""
    file = error.file or "playbook"
    message = f"{file} cannot run: {tally(error.findings)}"
    if as_json:
        body = {
            "kind": "PlaybookError",
            "message": message,
            "findings": [as_data(finding, file) for finding in error.findings],
        }
        print(json_text({"error": body}), file=sys.stderr)
        return
    out = Out(stream=sys.stderr)
    for finding in error.findings:
        if finding.severity == "error":
            sys.stderr.write(printable(as_text(finding, error.source, file, out) + "\n\n", sys.stderr))
    sys.stderr.write(printable(f"arclog: error: {clean(message)}\n", sys.stderr))
