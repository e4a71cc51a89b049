"""One playbook with every key that compiles to the core, in every tool for authors."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from arclog.authoring.fmt import formatted
from arclog.authoring.lsp.features import Features, Place
from arclog.authoring.lsp.server import Server
from arclog.authoring.migrate import migrate
from arclog.authoring.playbook_files import FilesBeside
from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.plan.build import build
from arclog.plan.expanded import as_playbook
from arclog.playbook.load import as_yaml
from arclog.testing.playbook_tests.runner import run_file
from arclog.wiring.kinds import installed_kinds

FLOW = """\
metadata: {name: flow, path: flows/flow}
executor:
  spec:
    sequence: true
    final_step: tidy_up
    result: "{{ ctx.total }}"
    retry: {attempts: 2, delay: 1}
    inputs:
      region: {type: string, enum: [north, south], default: north}
      token: {type: secret}
    on_failure: [{email: ops@example.org}, {webhook: "https://ops.example.org/hook"}]
    on_success: [{email: [a@example.org, b@example.org]}]
    schedules: [{cron: "0 6 * * 1-5", tz: Europe/Berlin, workload: {region: south}}]
workflow:
  - step: rows
    tool:
      - name: query
        kind: sqlite
        database: x.db
        file: sql/rows.sql
        spec:
          retry: {delays: [1, 5], on: [not_found]}
          set_ctx: {day: "{{ run.started_at | date_format('%Y-%m-%d') }}"}
      - {name: sure, kind: assert, that: ["query.data | length > 0", "ctx.day is defined"], message: "no rows on {{ ctx.day }}"}
  - step: total
    tool:
      - name: sum_up
        kind: python
        module: jobs.total
        function: add
        args: {rows: [1, 2], token: "{{ keychain.token.value }}"}
        spec:
          set_ctx: {total: "{{ outcome.data }}"}
          policy:
            rules:
              - when: "{{ outcome.status == 'error' }}"
                then: {do: fail, message: "cannot add: {{ outcome.error.message }}", code: SUM}
              - else: {then: {do: continue}}
    next:
      spec: {mode: inclusive}
      arcs: [{step: a}, {step: b}]
  - {step: a, tool: {kind: shell, file: run.sh}, next: {arcs: [{step: both}]}}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: both}]}}
  - step: both
    spec: {join: all_ok, end: completed}
    tool: {kind: noop, data: "{{ ctx.total }}"}
  - step: tidy_up
    tool: {kind: noop, data: {state: "{{ outcome.state }}", why: "{{ error.message if error else '' }}"}}
"""
TESTS = """\
tests:
  - name: all goes well
    workload: {token: abcdefgh}
    python: run
    mocks:
      - {step: rows, task: query, ok: [{n: 1}]}
      - {step: a, ok: {}}
    expect: {state: completed, result: 11, path: [rows, total, a, b, both, tidy_up]}
  - name: no rows
    workload: {token: abcdefgh}
    mocks: [{step: rows, task: query, ok: []}]
    expect: {state: failed, path: [rows, tidy_up], error: {message: no rows on 2027-01-15}}
  - name: another region
    workload: {region: west}
    expect: {state: refused}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    for folder in ("sql", "jobs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "sql/rows.sql").write_text("SELECT n FROM rows WHERE region = {{ workload.region }}\n")
    (tmp_path / "jobs/total.py").write_text("def add(rows, token):\n    return sum(rows) + len(token)\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho done\n")
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "flow.test.yaml").write_text(TESTS)
    return tmp_path / "flow.yaml"


def test_check_finds_nothing(flow: Path) -> None:
    beside = FilesBeside(Settings()).of(str(flow))
    findings = build(FLOW, str(flow), installed_kinds(), None, beside, thorough=True).findings
    assert [finding for finding in findings if finding.severity != "info"] == []


def test_check_and_migrate_know_files_of_tests(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests = flow.with_name("flow.test.yaml")
    assert command(["check", "--strict", str(flow), str(tests)]) == 0
    assert command(["migrate", "--diff", str(flow), str(tests)]) == 0
    tests.write_text("tests:\n  - {name: a, expekt: {}}\n")
    capsys.readouterr()
    assert command(["check", str(tests)]) == 2
    assert "flow.test.yaml:2" in capsys.readouterr().out


def test_its_tests_pass(flow: Path) -> None:
    report = run_file(str(flow.with_name("flow.test.yaml")))
    assert report.passed, (report.problem, [(case.name, case.messages) for case in report.cases])


def test_fmt_and_migrate_leave_it_alone(flow: Path) -> None:
    assert formatted(FLOW).split() == FLOW.split(), "only white space may change"
    done = migrate(FLOW, str(flow), installed_kinds())
    assert (done.text, done.undecided) == (FLOW, [])


def test_its_expanded_form_has_the_same_net(flow: Path) -> None:
    beside = FilesBeside(Settings()).of(str(flow))
    plan = build(FLOW, str(flow), installed_kinds(), None, beside).plan
    assert plan is not None
    again = build(as_yaml(as_playbook(plan)), str(flow), installed_kinds(), None, beside)
    assert again.plan is not None, again.errors
    assert (again.plan.net, again.plan.final_step, again.plan.webhooks, again.plan.schedules) == (
        plan.net,
        plan.final_step,
        plan.webhooks,
        plan.schedules,
    )


def test_the_language_server_completes_and_explains_the_keys(flow: Path) -> None:
    text = FLOW.replace("    final_step: tidy_up\n", "    \n")
    features = Features(text, str(flow), installed_kinds())
    assert {"final_step", "priority"} <= {candidate.word for candidate in features.complete(Place(5, 5))}
    assert "whether the run succeeded or failed" in Features(FLOW, str(flow), installed_kinds()).hover(Place(5, 7))


def test_the_language_server_reads_the_files_beside_it(flow: Path) -> None:
    (flow.parent / "jobs/total.py").write_text("def add(rows, token):\n    return sum(rowz)\n")
    sent: list[dict[str, Any]] = [
        {"method": "textDocument/didOpen", "params": {"textDocument": {"uri": flow.as_uri(), "text": FLOW}}},
        {"method": "exit"},
    ]
    source, target = io.BytesIO(), io.BytesIO()
    for message in sent:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        source.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    source.seek(0)
    Server(source, target, installed_kinds()).run()
    assert "jobs/total.py:2: python: the name 'rowz' is not defined" in target.getvalue().decode()


def test_the_plan_is_drawn(flow: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["plan"], ["plan", "--format", "svg"], ["plan", "--format", "mermaid"], ["plan", "--expanded"]):
        assert command([*words, str(flow)]) == 0
        assert "tidy_up" in capsys.readouterr().out
