"""Findings in the formats of other programs: SARIF for code scanning, annotations for GitHub's workflow logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from arclog import __version__
from arclog.model.errors import Finding

_SARIF_LEVELS = {"error": "error", "warning": "warning", "info": "note"}
_GITHUB_LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def as_sarif(found: Sequence[tuple[Finding, str]]) -> dict[str, Any]:
    """A SARIF 2.1.0 log of (finding, file)."""
    codes = list(dict.fromkeys(finding.code for finding, _ in found))
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
        for finding, file in found
    ]
    driver = {"name": "arclog", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }


def as_github(finding: Finding, file: str) -> str:
    """One workflow command, which GitHub shows beside the line."""
    where = f"file={_property(file)},line={max(finding.at.line, 1)},col={max(finding.at.column, 1)}"
    return f"::{_GITHUB_LEVELS[finding.severity]} {where},title={_property(finding.code)}::{_data(_with_hint(finding))}"


def _uri(file: str) -> str:
    """A path as a URI reference: what a URI cannot hold is percent-encoded, an absolute path is a file: URI."""
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
