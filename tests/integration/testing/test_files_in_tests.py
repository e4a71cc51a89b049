"""Tests of playbooks with files: mocks that give them, code that writes them, and runs that are recorded with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from arclog.cli.main import command
from arclog.testing.playbook_tests.runner import FileReport, run_file

CHILD = "metadata: {name: child}\nworkload: {n: 0}\nworkflow: [{step: start, tool: {kind: noop, data: {n: '{{ workload.n * 2 }}'}}}]\n"
FLOW = """\
metadata: {name: flow}
workload: {numbers: [1, 2]}
workflow:
  - step: each
    loop: {in: "{{ workload.numbers }}", iterator: n}
    tool:
      - name: flaky
        kind: python
        file: flaky.py
        args: {n: "{{ iter.n }}", attempt: "{{ _attempt }}"}
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 0}}, {else: {then: {do: continue}}}]}}
    next: {arcs: [{step: called}]}
  - step: called
    tool: {kind: playbook, file: child.yaml, args: {n: 21}}
    next: {arcs: [{step: write}]}
  - step: write
    tool:
      - name: make
        kind: python
        outputs: {report: $ARCLOG_SCRATCH/report.csv, picture: $ARCLOG_SCRATCH/p.bin}
        code: |
          import os
          with open(os.environ["ARCLOG_SCRATCH"] + "/report.csv", "w") as file:
              file.write("a,b\\n1,2\\n")
          with open(os.environ["ARCLOG_SCRATCH"] + "/p.bin", "wb") as file:
              file.write(bytes(range(256)))
      - name: large
        kind: python
        code: result = "x" * 70000
      - name: read
        kind: python
        args: {path: "{{ make.files.report }}", picture: "{{ make.files.picture }}", large: "{{ large.data }}"}
        code: |
          with open(path) as file:
              text = file.read()
          with open(picture, "rb") as file:
              size = len(file.read())
          result = {"text": text, "size": size, "large": len(large), "name": path.rsplit("/", 1)[1]}
"""
FLAKY = (
    "def main(n, attempt):\n    if n == 2 and attempt < 2:\n        raise ValueError('not yet')\n    return n * 10\n"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in (("flow.yaml", FLOW), ("child.yaml", CHILD), ("flaky.py", FLAKY)):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCLOG_HOME", str(tmp_path / "home"))
    return tmp_path


def ran(folder: Path, tests: str) -> FileReport:
    (folder / "flow.test.yaml").write_text(tests)
    return run_file(str(folder / "flow.test.yaml"))


def failures(report: FileReport) -> list[str]:
    return [message for case in report.cases for message in case.messages] + (
        [report.problem] if report.problem else []
    )


def test_mocks_give_files_and_code_that_runs_writes_them(folder: Path) -> None:
    report = ran(
        folder,
        """\
defaults:
  python: run
  mocks: [{step: called, ok: {n: 1}}]
tests:
  - name: files of a mock, and an empty one that it leaves out
    mocks: [{step: write, task: make, ok: null, files: {report: "{{ workload.numbers | length }} rows"}}]
    expect: {result: {text: 2 rows, size: 0, large: 70000, name: report.csv}}
  - name: bytes
    mocks: [{step: write, task: make, ok: null, files: {picture: {base64: AAEC}}}]
    expect: {result: {text: "", size: 3, large: 70000, name: report.csv}}
  - name: files of code that runs
    expect: {result: {text: "a,b\\n1,2\\n", size: 256, large: 70000, name: report.csv}}
""",
    )
    assert failures(report) == []
    assert len(report.cases) == 3


@pytest.mark.parametrize(
    ("mock", "message"),
    [
        ("ok: 1, files: {reprot: x}", "the outputs of write.make have no file 'reprot'; they are picture, report"),
        ("ok: 1, files: {report: 7}", "files.report is the text of a file, or {base64: …}"),
        ("ok: 1, files: {report: {base64: '*'}}", "files.report: this is not base64"),
        ("error: timeout, files: {report: x}", "only an attempt that succeeds, and is mocked, has files"),
        ("ok: 1, files: [x]", "files is a map"),
    ],
)
def test_files_that_a_mock_cannot_give(folder: Path, mock: str, message: str) -> None:
    report = ran(folder, f"tests: [{{name: one, mocks: [{{step: write, task: make, {mock}}}]}}]")
    assert message in report.problem
    assert "flow.test.yaml:1" in report.problem


def test_a_task_without_outputs_has_no_files(folder: Path) -> None:
    report = ran(folder, "tests: [{name: one, mocks: [{step: write, task: large, ok: 1, files: {a: b}}]}]")
    assert "the outputs of write.large have no file 'a'; it has no outputs" in report.problem


def test_a_run_with_files_loops_retries_and_children_is_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["run", "flow.yaml", "-q"]) == 0
    assert command(["test", "record", "last", "-o", "flow.test.yaml"]) == 0
    text = (folder / "flow.test.yaml").read_text()
    assert "playbook: flow.yaml" in text
    assert "report: |\n        a,b\n        1,2\n" in text
    assert "base64: AAECAw" in text
    assert "write.large: noetl://execution/" in text, "it is above tests.record_max_bytes, and listed"
    capsys.readouterr()
    assert command(["test", "flow.test.yaml", "--coverage"]) == 0, capsys.readouterr().out
    assert "100% of its steps, arcs and rules are covered" in capsys.readouterr().out


def test_what_rules_read_of_an_answer_is_recorded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "flow.yaml").write_text(
        "metadata: {name: flow}\nworkflow:\n  - step: start\n    tool:\n      kind: shell\n      command: [sh, -c, 'exit 3']\n"
        "      spec: {policy: {rules: [{when: outcome.sh.exit_code == 3, then: {do: continue}}, {else: {then: {do: fail}}}]}}\n"
    )
    assert command(["run", "flow.yaml", "-q"]) == 0
    assert command(["test", "record", "last", "-o", "flow.test.yaml"]) == 0
    assert "exit_code: 3" in (folder / "flow.test.yaml").read_text()
    capsys.readouterr()
    assert command(["test", "flow.test.yaml"]) == 0, capsys.readouterr().out
