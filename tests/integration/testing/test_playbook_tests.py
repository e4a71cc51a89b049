"""Tests of playbooks: mocks, virtual time, expectations, snapshots, coverage, recording, reports."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from arclog.cli.main import command
from arclog.testing.playbook_tests.runner import FileReport, as_junit, find_files, run_file, run_files

pytest_plugins = ["pytester"]

FLOW = """\
metadata: {name: flow}
workload: {limit: 3}
executor: {spec: {result: "{{ ctx.total }}"}}
workflow:
  - step: start
    tool:
      kind: http
      url: "http://example.org/{{ workload.limit }}"
      spec:
        policy:
          rules:
            - when: "{{ outcome.status == 'error' and outcome.error.retryable }}"
              then: {do: retry, attempts: 3, delay: 600}
            - when: "{{ outcome.status == 'error' }}"
              then: {do: fail}
            - else: {then: {do: continue, set_ctx: {total: "{{ outcome.data.n }}"}}}
    next:
      arcs:
        - {step: many, when: "{{ start.n > 1 }}"}
        - {step: few}
  - step: many
    loop: {in: "{{ range(start.n) }}", iterator: i, spec: {mode: parallel}}
    tool: {kind: shell, command: [work, "{{ iter.i | string }}"]}
    next: {arcs: [{step: gate}]}
  - step: few
    tool: {kind: noop, data: 1}
  - step: gate
    tool: {kind: approval, prompt: go?}
    next: {arcs: [{step: rest}]}
  - step: rest
    tool: {kind: wait, for_s: 86400}
"""


def ran(folder: Path, tests: str, flow: str = FLOW, **options: Any) -> FileReport:
    (folder / "flow.yaml").write_text(flow)
    (folder / "flow.test.yaml").write_text(tests)
    return run_file(str(folder / "flow.test.yaml"), **options)


def messages(report: FileReport) -> str:
    return report.problem + "\n".join(message for case in report.cases for message in case.messages)


def test_outcomes_are_mocked_by_step_task_item_and_attempt_in_virtual_time(tmp_path: Path) -> None:
    began = time.process_time()
    report = ran(
        tmp_path,
        """\
tests:
  - name: all the way
    workload: {limit: 9}
    mocks:
      - {step: start, attempt: 1, error: {kind: timeout, message: slow}}
      - {step: start, attempt: 2, error: connection}
      - {step: start, with: {url: "http://example.org/9"}, ok: {n: 3}}
      - {step: many, item: 1, ok: "second of {{ workload.limit }}", takes_s: 5}
      - {step: many, task: many_task, ok: other}
    signals:
      - {signal: APPROVE, step: gate, at: 7200}
    expect:
      state: completed
      path: [start, many, gate, rest]
      not_run: [few]
      calls:
        start: 3
        many.many_task: [{command: [work, "0"]}, {command: [work, "1"]}, {command: [work, "2"]}]
      ctx: {total: 3}
      result: "{{ value == 3 }}"
      duration_s: 93600
      events:
        - {type: policy.task.evaluated, step: start}
        - {type: task.done, item: 1, payload: {outcome: {result: second of 9}}}
        - playbook.finished
      that: ["{{ start.n == 3 }}", "{{ state == 'completed' }}"]
""",
    )
    assert messages(report) == ""
    assert report.passed
    assert time.process_time() - began < 5, "a day of waiting costs no time"


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ("path: [start]", "path: expected start\n      took     start → few"),
        ("result: 2", "result: expected 2\n        got      1"),
        ("ctx: {total: 2, other: 1}", "ctx.other: not set; ctx has total"),
        ("calls: {start: 2}", "calls.start: expected 2, there were 1"),
        ("calls: {start: [{url: x}]}", "calls.start[0].url: expected"),
        ("state: failed", "state: expected failed, the run is completed"),
        ("error: broken", "error: expected"),
        ("events: [loop.started]", "events[0]: no"),
        ("events: [step.beginning]", "there is no event type 'step.beginning'"),
        ("duration_s: {min: 1}", "took 0 virtual seconds"),
        ('that: "{{ few.data == 2 }}"', "{{ few.data == 2 }} is false"),
        ("not_run: [few]", "step few ran"),
        ('result: "{{ value > 4 }}"', "does not hold for 1"),
        ("snapshot: true", "arclog test --update"),
    ],
)
def test_every_difference_is_named(tmp_path: Path, expect: str, message: str) -> None:
    text = f"tests:\n  - name: one\n    mocks: [{{step: start, ok: {{n: 1}}}}]\n    expect: {{{expect}}}\n"
    report = ran(tmp_path, text)
    assert not report.passed
    assert message in messages(report)


def test_true_is_not_one(tmp_path: Path) -> None:
    report = ran(tmp_path, "tests: [{name: one, mocks: [{step: start, ok: {n: true}}], expect: {ctx: {total: 1}}}]")
    assert "ctx.total: expected 1" in messages(report)


def test_a_mock_that_answers_nothing_is_an_error(tmp_path: Path) -> None:
    mocks = "[{step: start, ok: {n: 1}}, {step: many, ok: 1}]"
    report = ran(tmp_path, f"tests: [{{name: one, mocks: {mocks}}}]")
    assert "the mock of many answered nothing" in messages(report)
    optional = mocks.replace("ok: 1}]", "ok: 1, optional: true}]")
    assert ran(tmp_path, f"tests: [{{name: one, mocks: {optional}}}]").passed


def test_a_default_mock_must_answer_in_some_test(tmp_path: Path) -> None:
    text = "defaults: {mocks: [{step: many, ok: 1}]}\ntests: [{name: one, mocks: [{step: start, ok: {n: 1}}]}]"
    assert "under defaults answered nothing in any test" in messages(ran(tmp_path, text))


def test_a_mock_of_what_is_not_there_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    report = ran(tmp_path, "tests: [{name: one, mocks: [{step: strat, ok: 1}, {step: start, task: x, ok: 1}]}]")
    assert "has no step 'strat'; it has start, many" in report.problem
    assert "step start has no task 'x'; it has start_task" in report.problem
    report = ran(tmp_path, "tests: [{name: one, mocks: [{step: gate, ok: 1}]}]")
    assert "end it with `signals:`" in report.problem


def test_a_call_without_a_mock_fails_the_test_and_says_what_to_add(tmp_path: Path) -> None:
    report = ran(tmp_path, "tests: [{name: one}]")
    assert "task start.start_task was called and no mock answers it" in messages(report)
    assert "add: - {step: start, task: start_task, ok: …}" in messages(report)


def test_a_run_that_never_ends_says_what_it_waits_for(tmp_path: Path) -> None:
    report = ran(tmp_path, "tests: [{name: one, mocks: [{step: start, ok: {n: 2}}, {step: many, ok: 1}]}]")
    assert "waits for an approval" in messages(report)


def test_a_signal_that_is_refused_fails_the_test(tmp_path: Path) -> None:
    text = "tests: [{name: one, signals: [{signal: APPROVE, step: gate, at: 5}], mocks: [{step: start, takes_s: 9, ok: {n: 1}}]}]"
    assert "signal APPROVE at 5 s (line 1)" in messages(ran(tmp_path, text))


def test_mistakes_in_a_test_file_come_all_at_once_with_their_lines(tmp_path: Path) -> None:
    report = ran(
        tmp_path,
        """\
tests:
  - name: one
    mock: []
    mocks:
      - {step: start, ok: 1, error: timeout}
      - {step: start, error: {kind: tiemout}}
      - {step: start, item: x, ok: 1}
    expect: {state: done}
  - {name: one}
""",
    )
    for part in ("3:5: error[unknown-key]", "did you mean mocks?", "not ok and error", "did you mean timeout?"):
        assert part in report.problem
    for part in ("item is the index", "state is one of", "two tests are called 'one'"):
        assert part in report.problem


def test_python_runs_in_a_test_that_asks_for_it(tmp_path: Path) -> None:
    flow = """\
metadata: {name: flow}
workflow:
  - step: start
    tool:
      - name: main_form
        kind: python
        args: {n: 2}
        code: |
          async def main(n):
              print("quiet")
              return {"n": n * 2}
      - name: script_form
        kind: python
        args: {n: "{{ main_form.n }}"}
        code: result = [n, context.step]
      - name: broken
        kind: python
        code: |
          def main():
              raise ValueError("no")
"""
    text = """\
defaults: {python: run}
tests:
  - name: fails as it would
    expect: {error: {kind: exception, message: "ValueError: no"}, calls: {start.script_form: [{args: {n: 4}}]}}
  - name: a mock wins
    mocks: [{step: start, task: broken, ok: {fine: true}}]
    expect: {result: {fine: true}, that: "{{ start.fine }}"}
  - name: mocked as a whole
    python: mock
    mocks: [{step: start, task: main_form, real: true}, {step: start, ok: 7}]
    expect: {result: 7}
"""
    report = ran(tmp_path, text, flow)
    assert messages(report) == ""


def test_children_and_secrets_are_mocked(tmp_path: Path) -> None:
    flow = """\
metadata: {name: flow}
keychain: [{name: api, kind: bearer}, {name: other, kind: secret}]
workflow:
  - step: start
    tool: {kind: playbook, path: reports/daily, args: {day: 1}}
    next: {arcs: [{step: send}]}
  - step: send
    tool: {kind: http, url: "http://x.org/{{ keychain.other.value }}", auth: api, method: POST}
"""
    text = """\
tests:
  - name: one
    keychain: {other: s3}
    mocks: [{step: start, ok: {rows: 4}}, {step: send, result: {status_code: 201, data: 5}, helper: {status: 201}}]
    expect: {result: 5, calls: {start: [{path: reports/daily, args: {day: 1}}], send: 1}, that: "{{ send.http.status == 201 }}"}
"""
    assert messages(ran(tmp_path, text, flow)) == ""


def test_snapshots_are_written_compared_and_pruned(tmp_path: Path) -> None:
    text = "tests: [{name: one, mocks: [{step: start, ok: {n: N}}], expect: {snapshot: true}}]"
    assert ran(tmp_path, text.replace("N", "1"), update=True).passed
    kept = tmp_path / "__snapshots__" / "flow.json"
    assert '"total": 1' in kept.read_text()
    assert ran(tmp_path, text.replace("N", "1")).passed
    assert '+    "total": 0' in messages(ran(tmp_path, text.replace("N", "0")))
    assert ran(tmp_path, text.replace("N", "0").replace("one", "two"), update=True).passed
    assert '"one"' not in kept.read_text()


def test_coverage_names_the_arcs_and_rules_that_no_test_took(tmp_path: Path) -> None:
    report = ran(tmp_path, "tests: [{name: one, mocks: [{step: start, ok: {n: 1}}]}]")
    missed = report.coverage.missed
    assert missed["arc start[0] → many"].line == 19
    assert "rule start.start_task[0]" in missed
    assert "rule start.start_task[2]" not in missed
    assert "step few" not in missed
    assert 0 < report.coverage.share < 1


def test_files_are_found_and_run_in_processes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        assert ran(tmp_path / name, "tests: [{name: one, mocks: [{step: start, ok: {n: 1}}]}]").passed
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "x.test.yaml").write_text("")
    files = list(find_files([str(tmp_path)]))
    assert [Path(file).parent.name for file in files] == ["a", "b"]
    assert [report.passed for report in run_files(files, jobs=2)] == [True, True]


def test_a_junit_report_holds_every_test(tmp_path: Path) -> None:
    report = ran(
        tmp_path,
        "tests: [{name: 'a <&\"', mocks: [{step: start, ok: {n: 1}}]}, {name: b}, {name: c, skip: later}]",
    )
    root = ET.fromstring(as_junit([report, FileReport("x.test.yaml", problem="no <such> file")]))
    suite = root[0]
    assert suite.attrib["tests"] == "3"
    assert (suite.attrib["failures"], suite.attrib["skipped"]) == ("1", "1")
    assert suite[0].attrib["name"] == 'a <&"'
    assert "no mock answers it" in suite[1][0].attrib["message"]
    assert root[1][0][0].text == "no <such> file"


def test_the_command_exits_0_or_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(tmp_path, "tests: [{name: one, mocks: [{step: start, ok: {n: 1}}]}]")
    report = tmp_path / "report.xml"
    assert command(["test", str(tmp_path), "--coverage", "--junit", str(report)]) == 0
    out = capsys.readouterr().out
    assert "1 passed" in out
    assert "arc start[0] → many" in out
    assert report.exists()
    assert command(["test", str(tmp_path), "--min-coverage", "99"]) == 1
    assert command(["test", str(tmp_path), "-k", "nothing so called"]) == 1
    assert command(["test", str(tmp_path), "--json"]) == 0
    ran(tmp_path, "tests: [{name: one}]")
    assert command(["test", str(tmp_path)]) == 1
    assert command(["test", str(tmp_path / "none")]) == 1
    (tmp_path / "empty").mkdir()
    assert command(["test", str(tmp_path / "empty")]) == 1


def test_a_run_is_recorded_as_a_test_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = """\
metadata: {name: flow}
workflow:
  - step: start
    loop: {in: [1, 2], iterator: n}
    tool: {kind: shell, command: [echo, "{{ iter.n | string }}"]}
    next: {arcs: [{step: bad}]}
  - step: bad
    tool: {kind: shell, command: ["false"]}
"""
    (tmp_path / "flow.yaml").write_text(flow)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARCLOG_HOME", str(tmp_path / "home"))
    assert command(["run", "flow.yaml", "-q"]) == 1
    assert command(["test", "record", "last", "-o", "flow.test.yaml"]) == 0
    text = (tmp_path / "flow.test.yaml").read_text()
    assert "item: 1" in text
    assert "state: failed" in text
    capsys.readouterr()
    assert command(["test", "flow.test.yaml"]) == 0, capsys.readouterr().out


def test_pytest_collects_playbook_tests(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makeconftest('pytest_plugins = ["arclog.testing.pytest_plugin"]')
    (pytester.path / "flow.yaml").write_text(FLOW)
    (pytester.path / "flow.test.yaml").write_text(
        "tests: [{name: one, mocks: [{step: start, ok: {n: 1}}]}, {name: two}, {name: three, skip: later}]"
    )
    outcome = pytester.runpytest("-p", "no:cacheprovider")
    outcome.assert_outcomes(passed=2, failed=1, skipped=1)
    outcome.stdout.fnmatch_lines(["*no mock answers it*"])
