"""Code in files beside a playbook, in every tool for authors: check, test, lsp, migrate."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.authoring.lsp.features import Features
from arclog.authoring.migrate import migrate
from arclog.cli.main import command
from arclog.testing.playbook_tests.runner import run_file
from arclog.wiring.kinds import installed_kinds

FLOW = """\
metadata: {name: flow}
workflow:
  - step: start
    tool: {name: clean, kind: python, file: jobs/clean.py, args: {rows: [1, 2]}}
    next: {arcs: [{step: total}]}
  - step: total
    tool:
      - {name: add, kind: python, module: jobs.total, function: add, args: {rows: "{{ start.data }}"}}
      - {name: sure, kind: assert, that: "add.data == 6"}
"""
CLEAN = "from jobs.shared import FACTOR\n\n\ndef main(rows):\n    return [row * FACTOR for row in rows]\n"
TOTAL = "from .shared import FACTOR\n\n\ndef add(rows):\n    return sum(rows) * FACTOR // 2\n"
TESTS = """\
tests:
  - name: with the real code
    python: run
    expect: {state: completed, path: [start, total]}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/clean.py").write_text(CLEAN)
    (tmp_path / "jobs/total.py").write_text(TOTAL)
    (tmp_path / "jobs/shared.py").write_text("FACTOR = 2\n")
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "flow.test.yaml").write_text(TESTS)
    return tmp_path / "flow.yaml"


def findings_of(flow: Path) -> list[str]:
    findings = Features(flow.read_text(), str(flow), installed_kinds()).findings()
    return [f"{finding.at.line} {finding.code} {finding.message}" for finding in findings]


def test_code_that_is_right_has_no_findings(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings_of(flow) == []
    assert command(["check", "--strict", str(flow)]) == 0
    assert command(["fmt", str(flow)]) == 0
    assert command(["fmt", "--check", str(flow)]) == 0
    assert migrate(flow.read_text(), str(flow), installed_kinds()).undecided == []


def test_findings_in_a_file_name_its_line(flow: Path) -> None:
    (flow.parent / "jobs/clean.py").write_text("def main(rows, limit):\n    return rowz[:limit]\n")
    assert findings_of(flow) == [
        "4 python-args jobs/clean.py:1: main() needs 'limit', which args does not give",
        "4 python-name jobs/clean.py:2: python: the name 'rowz' is not defined",
    ]


def test_findings_in_a_module_and_in_what_it_imports_are_reported_once(flow: Path) -> None:
    (flow.parent / "jobs/shared.py").write_text("FACTOR = two\n")
    (flow.parent / "jobs/total.py").write_text(TOTAL.replace("rows):", "rows, day):"))
    assert findings_of(flow) == [
        "4 python-name jobs/shared.py:1: python: the name 'two' is not defined",
        "8 python-args jobs/total.py:4: add() needs 'day', which args does not give",
    ]


def test_code_that_does_not_compile_is_an_error_of_the_playbook(flow: Path) -> None:
    (flow.parent / "jobs/clean.py").write_text("def main(:\n")
    assert [text.split(": ", 1)[0] for text in findings_of(flow)] == ["4 python-syntax jobs/clean.py:1"]


def test_tests_run_the_code_of_files_and_modules(flow: Path) -> None:
    report = run_file(str(flow.with_name("flow.test.yaml")))
    assert report.passed, report
    (flow.parent / "jobs/shared.py").write_text("FACTOR = 3\n")
    report = run_file(str(flow.with_name("flow.test.yaml")))
    assert "does not hold: add.data == 6" in report.cases[0].messages[0]


def test_a_missing_file_is_reported_by_every_tool(flow: Path) -> None:
    (flow.parent / "jobs/clean.py").unlink()
    assert findings_of(flow)[0].startswith("4 missing-file")
    assert "missing-file" in run_file(str(flow.with_name("flow.test.yaml"))).problem
    assert [finding.code for finding in migrate(FLOW, str(flow), installed_kinds()).undecided] == ["missing-file"]
