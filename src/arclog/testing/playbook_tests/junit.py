"""Reports of playbook tests as JUnit XML, which CI systems read."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from arclog.testing.playbook_tests.runner import CaseReport, FileReport


def as_junit(reports: Sequence[FileReport]) -> str:
    """One `testsuite` for each file."""
    suites = "\n".join(_suite(report) for report in reports)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name="arclog">\n{suites}\n</testsuites>\n'


def _suite(report: FileReport) -> str:
    failed = sum(case.status == "failed" for case in report.cases)
    skipped = sum(case.status == "skipped" for case in report.cases)
    took = sum(case.took_s for case in report.cases)
    cases = [_case(case) for case in report.cases]
    if report.problem:
        cases.append(_element(report.file, "file", 0.0, f"<error>{_text(report.problem)}</error>"))
    head = f'  <testsuite name={quoteattr(report.file)} tests="{len(cases)}" failures="{failed}"'
    head += f' errors="{int(bool(report.problem))}" skipped="{skipped}" time="{took:.3f}">'
    return "\n".join([head, *cases, "  </testsuite>"])


def _case(case: CaseReport) -> str:
    body = ""
    if case.status == "failed":
        first = case.messages[0].splitlines()[0]
        message = "\n".join(case.messages)
        body = f"<failure message={quoteattr(_printable(first))}>{_text(message)}</failure>"
    elif case.status == "skipped":
        body = f"<skipped message={quoteattr(_printable(' '.join(case.messages)))}/>"
    return _element(case.file, case.name, case.took_s, body, case.line)


def _element(file: str, name: str, took_s: float, body: str, line: int = 0) -> str:
    head = f'    <testcase classname={quoteattr(file)} name={quoteattr(_printable(name))} file={quoteattr(file)} line="{line}"'
    return f'{head} time="{took_s:.3f}">{body}</testcase>'


def _text(text: str) -> str:
    return escape(_printable(text))


def _printable(text: str) -> str:
    """The text in characters that XML allows."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
