"""Playbook tests in pytest: each test of a `*.test.yaml` file is an item.

Turn it on in the conftest.py at the root of your tests: `pytest_plugins = ["arclog.testing.pytest_plugin"]`.
`pytest --update-playbook-snapshots` writes snapshots again.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from arclog.model.errors import PlaybookError
from arclog.plan.build import render_finding
from arclog.testing.playbook_tests.cases import SUFFIXES, read_cases
from arclog.testing.playbook_tests.runner import CaseReport, FileReport, run_file


class PlaybookTestFailed(Exception):
    """A playbook test did not come out as expected."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-playbook-snapshots", action="store_true", help="rewrite the snapshots of playbook tests")


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.name.endswith(SUFFIXES):
        return PlaybookTestFile.from_parent(parent, path=file_path)
    return None


class PlaybookTestFile(pytest.File):
    """One `*.test.yaml` file. It is run once, as a whole, with the first of its items."""

    _report: FileReport | None = None

    def collect(self) -> Iterable[pytest.Item]:
        try:
            cases = read_cases(self.path.read_bytes(), str(self.path)).cases
        except PlaybookError as error:
            shown = "\n".join(render_finding(finding, error.source, error.file) for finding in error.findings)
            raise self.CollectError(shown) from None
        for case in cases:
            yield PlaybookTestItem.from_parent(self, name=case.name)
        yield PlaybookTestItem.from_parent(self, name="defaults")

    def report(self) -> FileReport:
        if self._report is None:
            update = bool(self.config.getoption("--update-playbook-snapshots"))
            self._report = run_file(str(self.path), update=update)
        return self._report


class PlaybookTestItem(pytest.Item):
    """One test. `defaults` fails if a shared mock answers no call of any of them."""

    def runtest(self) -> None:
        parent = self.parent
        assert isinstance(parent, PlaybookTestFile)
        report = parent.report()
        if report.problem:
            raise PlaybookTestFailed(report.problem)
        for case in report.cases:
            if case.name == self.name:
                self._judge(case)

    def _judge(self, case: CaseReport) -> None:
        if case.status == "skipped":
            pytest.skip(" ".join(case.messages))
        if case.status == "failed":
            raise PlaybookTestFailed("\n".join(case.messages))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        if isinstance(excinfo.value, PlaybookTestFailed):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo, style))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name
