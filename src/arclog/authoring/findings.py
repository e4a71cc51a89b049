"""Findings of `check`: repaired in the text of a playbook, and written in the formats of other programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from arclog import __version__
from arclog.model.errors import Finding
from arclog.playbook.document import lines_of

# ── fixes ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Repairs findings of `check` in the text itself, if the remedy is known: comments and layout are kept.
#
# Invariant: a repair only replaces one word with another, and only if the finding names both; a text that does not improve is
# returned unchanged.

#: Findings whose remedy is to replace one word.
FIXABLE = frozenset(
    {
        "unknown-key",
        "unknown-kind",
        "unknown-step",
        "unknown-task",
        "unknown-workbook",
        "unknown-keychain",
        "bad-value",
        "unknown-name",
        "unknown-iter",
        "unknown-workload",
        "http-method",
    }
)
_MEANT = re.compile(r"did you mean ([^\s?]+)\?")
_QUOTED = re.compile(r"'([^']+)'")
_DOTTED = re.compile(r"^((?:iter|workload)\.[\w.]+):")
#: The most passes over a text, since one finding can hide another.
_ROUNDS = 20


def fixed(text: str, findings_of: Callable[[str], Sequence[Finding]]) -> tuple[str, list[Finding]]:
    """The repaired text, and the findings that were repaired."""
    done: list[Finding] = []
    for _ in range(_ROUNDS):
        findings = findings_of(text)
        changed = _pass(text, findings, done)
        if changed == text:
            break
        text = changed
    return text, done


def _pass(text: str, findings: Sequence[Finding], done: list[Finding]) -> str:
    """Repair at most one finding on each line, from the last line to the first."""
    lines = lines_of(text)
    ends = _ends(text, lines)
    taken: set[int] = set()
    for finding in findings:
        at = finding.at
        words = _words(finding)
        if words is None or not 0 < at.line <= len(lines) or at.line in taken:
            continue
        wrong, right = words
        line = lines[at.line - 1]
        match = re.compile(rf"(?<![\w-]){re.escape(wrong)}(?![\w-])").search(line, max(at.column - 1, 0))
        if match is None:
            continue
        lines[at.line - 1] = line[: match.start()] + right + line[match.end() :]
        taken.add(at.line)
        done.append(finding)
    return "".join(line + end for line, end in zip(lines, ends, strict=True))


def _words(finding: Finding) -> tuple[str, str] | None:
    """The wrong word and the right one."""
    meant = _MEANT.search(finding.hint)
    if finding.code not in FIXABLE or meant is None:
        return None
    dotted = _DOTTED.match(finding.message)
    if dotted is not None:
        path = dotted[1]
        return path, f"{path.rpartition('.')[0]}.{meant[1]}"
    quoted = _QUOTED.findall(finding.message)
    return (quoted[0], meant[1]) if quoted else None


def _ends(text: str, lines: Sequence[str]) -> list[str]:
    """The line end of each line."""
    ends: list[str] = []
    at = 0
    for line in lines:
        at += len(line)
        end = "\r\n" if text.startswith("\r\n", at) else text[at : at + 1]
        ends.append(end)
        at += len(end)
    return ends


# ── formats ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Findings in the formats of other programs: SARIF for code scanning, annotations for GitHub's workflow logs.

_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def as_sarif(findings: Sequence[tuple[Finding, str]]) -> dict[str, Any]:
    """A SARIF 2.1.0 log of (finding, file)."""
    codes = list(dict.fromkeys(finding.code for finding, _ in findings))
    rules = [{"id": code, "help": {"text": f"docs/findings.md#{code}"}} for code in codes]
    results = [
        {
            "ruleId": finding.code,
            "ruleIndex": codes.index(finding.code),
            "level": _SARIF_LEVELS[finding.severity],
            "message": {"text": _with_hint(finding)},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(file)},
                        "region": {"startLine": max(finding.at.line, 1), "startColumn": max(finding.at.column, 1)},
                    }
                }
            ],
        }
        for finding, file in findings
    ]
    driver = {"name": "arclog", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def as_github(finding: Finding, file: str) -> str:
    """Return one workflow command, which GitHub shows next to the line."""
    where = f"file={_property(file)},line={max(finding.at.line, 1)},col={max(finding.at.column, 1)}"
    return f"::{_GITHUB_LEVELS[finding.severity]} {where},title={_property(finding.code)}::{_data(_with_hint(finding))}"


def _uri(file: str) -> str:
    """Return a path as a URI reference: other characters are percent-encoded, and an absolute path is a file: URI."""
    path = quote(file.replace("\\", "/"), safe="/")
    if path.startswith("/"):
        return f"file://{path}"
    return path


def _with_hint(finding: Finding) -> str:
    return f"{finding.message}. {finding.hint}" if finding.hint else finding.message


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
