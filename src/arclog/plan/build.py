"""Builds a plan from the text of a playbook: load, normalize, compile, check.

All findings are returned at once; a plan is returned only if none of them is an error.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.errors import Finding, PlaybookError
from arclog.plan.compile import compile_playbook
from arclog.plan.lint.check import check
from arclog.plan.net import Plan
from arclog.playbook.document import lines_of
from arclog.playbook.engine_kinds import ENGINE_KINDS
from arclog.playbook.load import load
from arclog.playbook.normalize import normalize
from arclog.playbook.walk import Findings

_MOST_SHOWN = 160


class Build(Struct):
    """The result of building a playbook."""

    #: None if a finding is an error
    plan: Plan | None
    #: in order of position
    findings: list[Finding]
    source: str
    file: str

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.severity == "error"]


def build(
    text: str | bytes,
    file: str,
    kinds: Mapping[str, KindSpec],
    settings: Settings | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
    *,
    thorough: bool = False,
) -> Build:
    """Compile and check a playbook. Mistakes in the text become findings, never exceptions.

    `files` has the files that it includes, by path: the folder of `file` joined with the name. `thorough` adds the lint
    for authors.
    """
    settings = settings or Settings()
    try:
        document = load(text, file, settings)
    except PlaybookError as error:
        return Build(None, _in_order(error.findings), error.source, file)
    findings = Findings(document)
    # Not a single dict: an installed kind is imported when it is looked up.
    all_kinds = ChainMap(kinds, ENGINE_KINDS)  # type: ignore[arg-type]  # only read
    playbook = normalize(document, all_kinds, settings, findings, files)
    compiled = compile_playbook(playbook, document, findings)
    check(compiled, playbook, findings, settings)
    if thorough:
        from arclog.plan.lint.authors import lint  # imported late: runs do not need it

        lint(compiled, playbook, findings)
    ordered = _in_order(findings.items)
    if findings.left_out:
        ordered.append(
            Finding("too-many-findings", f"{findings.left_out:,} more findings are not shown", severity="info")
        )
    return Build(None if findings.errors else compiled.plan, ordered, document.source, file)


def build_or_raise(
    text: str | bytes,
    file: str,
    kinds: Mapping[str, KindSpec],
    settings: Settings | None = None,
    files: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """Return the plan. Raises PlaybookError with every finding."""
    made = build(text, file, kinds, settings, files)
    if made.plan is None:
        raise PlaybookError(made.findings, made.source, made.file)
    return made.plan


def render_finding(finding: Finding, source: str, file: str) -> str:
    """Format a finding for people: location, message, the source line, a caret, the remedy."""
    at = finding.at
    head = f"{file}:{at}: " if at.line else f"{file}: "
    parts = [f"{head}{finding.severity}[{finding.code}] {finding.message}"]
    lines = _lines(source)
    if 0 < at.line <= len(lines) and source:
        line = lines[at.line - 1].replace("\t", " ")
        column = max(at.column, 1)
        if len(line) > _MOST_SHOWN:
            first = max(0, column - _MOST_SHOWN // 2)
            line, column = line[first : first + _MOST_SHOWN], column - first
        gutter = f"{at.line:>5} | "
        parts.append(gutter + "".join(character if character.isprintable() else "�" for character in line))
        parts.append(" " * (len(gutter) - 2) + "| " + " " * (column - 1) + "^")
    if finding.hint:
        parts.append("hint: " + finding.hint)
    return "\n".join(parts)


@lru_cache(maxsize=1)
def _lines(source: str) -> list[str]:
    """Return the lines of a source. Cached, since the findings of a file are rendered one after the other."""
    return lines_of(source)


def _in_order(findings: list[Finding]) -> list[Finding]:
    """Sort findings by location and remove duplicates. Findings without a location come last."""
    unique = dict.fromkeys(
        (finding.at, finding.severity, finding.code, finding.message, finding.hint) for finding in findings
    )
    ordered = sorted(unique, key=lambda row: (row[0].line == 0, row[0]))
    return [Finding(code, message, at, severity, hint) for at, severity, code, message, hint in ordered]
