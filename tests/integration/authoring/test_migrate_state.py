"""`arclog migrate`: `case`, `sink`, `vars`, `set` and `retry` of older releases, and that the migrated playbooks do the same."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from arclog.authoring.migrate import Migration, migrate
from arclog.cli.main import command
from arclog.testing import play
from arclog.wiring.kinds import installed_kinds

HEAD = "metadata: {name: p}\nworkload: {limit: 5}\nworkflow:\n"


def migrated(text: str) -> Migration:
    return migrate(text, "p.yaml", installed_kinds())


def clean(text: str) -> str:
    """The migrated text of a playbook that nothing is left of; a second run changes nothing."""
    done = migrated(text)
    assert [str(finding) for finding in done.undecided] == []
    again = migrated(done.text)
    assert again.text == done.text
    assert again.changes == []
    return done.text


def played(text: str, workload: dict[str, Any] | None = None, **mocks: Any) -> Any:
    return play(
        clean(text),
        workload=workload or {},
        mocks=[{"step": step, **mock} for step, mock in mocks.items()],
        python="run",
    )


def test_vars_of_a_step_are_kept_in_ctx() -> None:
    old = (
        HEAD + "  - step: start\n    tool:\n      kind: python\n      code: |\n        result = {'n': 3, 'who': {'name': 'Ada'}}\n"
        '    vars:   # for later\n      number: "{{ result.n }}"\n      name: "{{ start.who.name }}"   # of a person\n'
        "    next: [{step: last}]\n"
        '  - step: last\n    tool: {kind: noop, data: "{{ vars.name }}: {{ vars.number }}"}\n'
    )  # fmt: skip
    text = clean(old)
    assert 'spec: {set_ctx: {number: "{{ outcome.result.n }}", name: "{{ outcome.who.name }}"}}' in text
    assert 'data: "{{ ctx.name }}: {{ ctx.number }}"' in text
    assert "# for later" in text
    assert "# of a person" in text
    assert played(old).result == "Ada: 3"


def test_data_in_the_result_of_code_is_a_key_of_its_result() -> None:
    old = (
        HEAD + "  - step: start\n    tool:\n      kind: python\n      code: |\n"
        '        result = {"status": "success", "data": {"n": 3, "status": 1}}\n'
        '    set: {ctx.n: "{{ start.data.n }}"}\n    next: [{step: last}]\n'
        '  - step: last\n    tool: {kind: noop, data: "{{ start.data.n + ctx.n }} {{ start.data.status }}"}\n'
    )
    assert 'data: "{{ start.result.data.n + ctx.n }} {{ start.data.status }}"' in clean(old)
    assert played(old).result == "6 success"


def test_rows_are_what_an_sql_task_gave() -> None:
    old = (
        HEAD
        + "  - step: start\n    tool:\n      kind: sqlite\n      database: ':memory:'\n      command: SELECT 7 AS n\n"
        '    vars: {n: "{{ result[0].n }}", rows: "{{ result | length }}"}\n'
    )
    assert played(old, start={"ok": [{"n": 7}]}).ctx == {"n": 7, "rows": 1}


def test_root_vars_and_those_of_steps_stay_apart() -> None:
    old = (
        "metadata: {name: p}\nvars: {a: 1}\nworkflow:\n  - step: start\n    tool: {kind: noop, data: 2}\n"
        '    vars: {b: "{{ result }}"}\n    next: last\n'
        '  - step: last\n    tool: {kind: noop, data: "{{ vars.a + vars.b }}"}\n'
    )
    assert played(old).result == 3


def test_a_bare_set_of_a_task_is_read_by_the_tasks_after_it() -> None:
    old = (
        HEAD
        + "  - step: start\n    tool:\n      - name: make\n        kind: python\n        code: |\n          result = {'id': 4}\n"
        '        set:\n          extracted: "{{ output }}"\n      - name: use\n        kind: noop\n        data: "{{ extracted.id }}"\n'
    )
    text = clean(old)
    assert 'spec: {set_iter: {extracted: "{{ outcome.data }}"}}' in text
    assert 'data: "{{ iter.extracted.id }}"' in text
    assert played(old).result == 4


def test_a_bare_set_that_other_steps_read_is_kept_in_ctx() -> None:
    old = (
        HEAD + "  - step: start\n    tool:\n      - name: make\n        kind: noop\n        data: {id: 4}\n"
        '        set:\n          total: "{{ output.id }}"\n    next: last\n'
        '  - step: last\n    tool: {kind: noop, data: "{{ total + 1 }}"}\n'
    )
    assert 'data: "{{ ctx.total + 1 }}"' in clean(old)
    assert played(old).result == 5


def test_an_arc_that_sets_on_the_only_way() -> None:
    old = (
        HEAD
        + "  - step: start\n    tool:\n      kind: noop\n      data: {n: 1}\n    next:\n      arcs:\n        - step: last\n"
        "          set:\n            ctx.seen: '{{ start.n }}'   # so far\n"
        '  - step: last\n    tool: {kind: noop, data: "{{ ctx.seen }}"}\n'
    )
    text = clean(old)
    assert "spec: {set_ctx: {seen: '{{ outcome.n }}'}}" in text
    assert "# so far" in text
    assert played(old).result == 1


def test_arcs_that_set_different_values_lead_through_steps_that_set_them() -> None:
    old = (
        HEAD + "  - step: start\n    tool: {kind: noop}\n    next:\n      arcs:\n"
        '        - step: last\n          when: "{{ workload.limit > 3 }}"\n          set: {ctx.size: big}\n'
        "        - step: last\n          set: {ctx.size: small}   # else\n\n"
        '  - step: last\n    tool: {kind: noop, data: "{{ ctx.size }}"}\n'
    )
    text = clean(old)
    assert "- step: start_to_last\n    tool: {kind: noop, spec: {set_ctx: {size: big}}}" in text
    assert "# else" in text
    assert played(old).result == "big"
    assert played(old, {"limit": 1}).result == "small"


CASE = (
    HEAD
    + """\
  - step: start
    tool:
      kind: http
      url: https://example.org
    case:
      # a server that has trouble
      - when: "{{ event.name == 'call.error' and error.status in [500, 503] }}"
        then:
          retry:
            max_attempts: 4
            initial_delay: 1
            backoff_multiplier: 1.5   # slowly
            max_delay: 2
      - when: "{{ event.name == 'step.exit' and response is defined and response.data.total > limit }}"
        then:
          set:
            size: big
          next:
            - step: big
              args: {total: "{{ response.data.total }}"}
      - when: "{{ event.name == 'step.exit' and response is defined }}"
        then:
          - set:
              ctx: {size: small}
          - next: [{step: small}]
      - when: "{{ event.name == 'call.error' }}"
        then: {next: broken}
  - step: big
    tool: {kind: noop, data: "{{ size }} {{ args.total }}"}
  - step: small
    tool: {kind: noop, data: "{{ ctx.size }}"}
  - step: broken
    tool: {kind: noop, data: broken}
"""
)


def test_a_case_becomes_rules_and_arcs() -> None:
    text = clean(CASE)
    assert "case" not in text
    assert "# a server that has trouble" in text
    assert "# slowly" in text
    assert "delays: [1, 1.5, 2]" in text
    assert "outcome.status == 'error' and outcome.http.status in [500, 503]" in text


@pytest.mark.parametrize(
    ("answers", "result", "calls", "path"),
    [
        ([{"ok": {"total": 9}}], "big 9", 1, ["start", "big"]),
        ([{"ok": {"total": 2}}], "small", 1, ["start", "small"]),
        (
            [{"attempt": 1, "error": {"kind": "server_error"}, "helper": {"status": 503}}, {"ok": {"total": 2}}],
            "small",
            2,
            ["start", "small"],
        ),
        ([{"error": {"kind": "server_error"}, "helper": {"status": 503}}], "broken", 4, ["start", "broken"]),
        ([{"error": {"kind": "not_found"}, "helper": {"status": 404}}], "broken", 1, ["start", "broken"]),
    ],
)
def test_a_migrated_case_goes_where_it_went(
    answers: list[dict[str, Any]], result: Any, calls: int, path: list[str]
) -> None:
    run = play(clean(CASE), mocks=[{"step": "start", **answer} for answer in answers])
    assert run.result == result
    assert run.path == path
    assert len([call for call in run.calls if call.step == "start"]) == calls


def test_a_case_on_few_lines() -> None:
    old = (
        HEAD + "  - step: start\n    tool: {kind: noop, data: {n: 1}}\n    case:\n"
        '      - when: "{{ response.n == 1 }}"\n        then: {set: {n: "{{ response.n }}"}, next: last}\n'
        '  - step: last\n    tool: {kind: noop, data: "{{ n }}"}\n'
    )
    assert played(old).result == 1


def test_the_next_of_a_step_is_what_its_case_leaves() -> None:
    old = (
        HEAD + '  - step: start\n    case:\n      - when: "{{ workload.limit }} == 7"   # seven\n        then:\n          - step: a\n'
        "    next:\n      - step: b   # otherwise\n"
        "  - step: a\n    tool: {kind: noop, data: a}\n  - step: b\n    tool: {kind: noop, data: b}\n"
    )  # fmt: skip
    text = clean(old)
    assert "# seven" in text
    assert "# otherwise" in text
    assert played(old).result == "b"
    assert played(old, {"limit": 7}).result == "a"


SINK = """\
metadata: {name: sinks}
workload: {database: x.db, rows: [1, 2, 3]}
workflow:
  - step: start
    tool: {kind: sqlite, database: "{{ workload.database }}", command: "CREATE TABLE seen (id INTEGER PRIMARY KEY, name TEXT, big BOOLEAN)"}
    next: [{step: make}]
  - step: make
    loop:
      in: "{{ rows }}"
      iterator: row
      mode: sequential
    tool:
      # what is stored
      kind: python
      input: {row: "{{ row }}"}
      code: |
        result = {"id": row, "name": f"it's {row}"}

    case:
      - when: "{{ event.name == 'step.exit' and response is defined and response.id > 1 }}"
        then:
          - sink:
              tool:
                kind: sqlite
                database: "{{ workload.database }}"
                table: seen   # a table
                mode: upsert
                key: id
                args:
                  id: "{{ response.id }}"
                  name: "{{ response.name }}"
                  big: true
      - when: "{{ event.name == 'loop.done' }}"
        then:
          - next: [{step: last}]
  - step: last
    tool: {kind: noop, data: "{{ make.results }}"}
    sink:
      tool: event_log
      data: "{{ result }}"
"""


def test_sinks_are_tasks_and_the_step_still_gives_what_it_gave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sinks.yaml"
    file.write_text(SINK)
    assert command(["migrate", str(file), "--write"]) == 0, capsys.readouterr().err
    text = file.read_text()
    assert "# what is stored" in text
    assert "# a table" in text
    assert clean(text) == text
    capsys.readouterr()
    database = tmp_path / "seen.db"
    home = str(tmp_path / "home")
    assert command(["run", str(file), "--json", "--home", home, "--set", f"database={database}"]) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["result"] == [{"id": number, "name": f"it's {number}"} for number in (1, 2, 3)]
    with sqlite3.connect(database) as rows:
        assert rows.execute("SELECT * FROM seen ORDER BY id").fetchall() == [(2, "it's 2", 1), (3, "it's 3", 1)]


def retried(retry: str) -> str:
    return HEAD + f"  - step: start\n    tool:\n      kind: http\n      url: https://example.org\n      retry:\n{retry}"


FAILING = {"error": {"kind": "server_error"}, "helper": {"status": 503}}


@pytest.mark.parametrize(
    ("retry", "answers", "calls", "state"),
    [
        ('        max_attempts: 3\n        retry_when: "{{ status_code >= 500 and status_code < 600 }}"   # theirs\n', [FAILING], 3, "failed"),
        ('        max_attempts: 3\n        retry_when: "{{ status_code >= 500 }}"\n', [{"error": "connection"}], 1, "failed"),
        ('        max_attempts: 3\n        retry_when: "{{ error != None or success == False }}"\n', [{"error": "connection"}], 3, "failed"),
        ('        max_attempts: 3\n        retry_when: "{{ error != None }}"\n        jitter: false\n', [{"ok": 1}], 1, "completed"),
        ('        max_attempts: 3\n        retry_when: "{{ status_code != 200 }}"\n        stop_when: "{{ status_code == 200 }}"\n', [{"ok": 1}], 1, "completed"),
        ('        max_attempts: 3\n        retry_when: "{{ status_code != 200 }}"\n', [{"ok": 1, "helper": {"status": 202}}], 3, "completed"),
        ('        max_attempts: 2\n        retry_when: "{{ data.state == \'busy\' }}"\n', [{"attempt": 1, "ok": {"state": "busy"}}, {"ok": {"state": "idle"}}], 2, "completed"),
        ('        - when: "{{ error is defined }}"\n          then: {max_attempts: 2, initial_delay: 0.5}\n', [FAILING], 2, "failed"),
    ],
)  # fmt: skip
def test_retries_with_conditions(retry: str, answers: list[dict[str, Any]], calls: int, state: str) -> None:
    run = play(clean(retried(retry)), mocks=[{"step": "start", **answer} for answer in answers])
    assert len(run.calls) == calls
    assert run.state == state


def test_a_retry_of_a_step_belongs_to_its_task() -> None:
    old = HEAD + "  - step: start\n    tool: {kind: http, url: https://example.org}\n    retry: true   # three times\n"
    text = clean(old)
    assert "# three times" in text
    assert len(play(text, mocks=[{"step": "start", **FAILING}]).calls) == 3


def test_a_condition_that_compares_rendered_texts() -> None:
    old = (
        HEAD + "  - step: start\n    tool: {kind: noop}\n    next:\n"
        '      - when: "{{ workload.limit }} == 5"\n        then:\n          - step: a\n        args: {}\n      - step: b\n'
        "  - step: a\n    tool: {kind: noop, data: a}\n  - step: b\n    tool: {kind: noop, data: b}\n"
    )
    assert played(old).result == "a"
    assert played(old, {"limit": 6}).result == "b"


@pytest.mark.parametrize(
    ("step", "line", "words"),
    [
        ("    tool: {kind: noop}\n    case: [{when: x, then: {set: {a: 1}}}]\n", 6, "on one line"),
        ("    tool: {kind: noop}\n    case:\n      - when: \"{{ event.name == 'step.enter' }}\"\n        then: {next: a}\n", 7, "at the start of a step"),
        ("    tool: {kind: noop}\n    case:\n      - when: x\n        then:\n          collect: {into: pages}\n", 9, "collect"),
        ("    tool: {kind: noop}\n    case:\n      - then: {next: a}\n", 7, "{when, then}"),
        ("    tool: {kind: noop}\n    case:\n      - when: x\n        then: {next: [a, b]}\n      - else: {next: c}\n", 7, "several"),
        ("    tool: {kind: noop}\n    loop: {in: [1], iterator: n}\n    case:\n      - when: x\n        then:\n          set: {a: 1}\n", 10, "loop"),
        ("    tool: {kind: noop}\n    loop: {in: [1], iterator: n}\n    vars: {a: 1}\n", 7, "loop"),
        ("    tool: {kind: noop}\n    sink: {tool: postgres}\n", 6, "sink"),
        ("    tool: {kind: noop}\n    sink:\n      tool:\n        kind: gcs\n", 6, "no kind 'gcs'"),
        ('    tool: {kind: sqlite, database: x.db, command: SELECT 1}\n    vars: {n: "{{ result.command_0.rows }}"}\n', 6, "command_0"),
        ('    tool: {kind: http, url: https://x.org}\n    vars: {n: "{{ result.status }}"}\n', 6, "response.status"),
        ("    tool: {kind: http, url: https://x.org, retry: {max_retries: 3}}\n", 5, "max_retries"),
        ("    tool: {kind: http, url: https://x.org, retry: {max_attempts: 3, retry_when: '{{ success }}'}}\n", 5, "unknown names"),
        ("    tool: {kind: noop}\n    next: {arcs: [{step: start, set: {ctx.x: '{{ event.name }}'}}]}\n", 6, "an arc sets nothing"),
        ("    tool:\n      - name: t\n        kind: noop\n        set: {limit: 1}\n", 8, "workload"),
    ],
)  # fmt: skip
def test_what_has_no_one_meaning_is_listed_with_its_line(step: str, line: int, words: str) -> None:
    text = f"{HEAD}  - step: start\n{step}"
    done = migrated(text)
    assert done.text == text
    assert [(finding.at.line, words in finding.message) for finding in done.undecided if words in finding.message] == [
        (line, True)
    ]
    assert all(finding.hint for finding in done.undecided if words in finding.message)
