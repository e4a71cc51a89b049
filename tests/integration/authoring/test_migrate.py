"""`arclog migrate`: older forms become present ones; comments stay; what is not certain is listed."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from arclog.authoring.migrate import Migration, migrate
from arclog.cli.main import command
from arclog.wiring.kinds import installed_kinds

OLD = """\
# A flow of an older release.
apiVersion: noetl.io/v2
metadata:
  name: orders   # its name
vars:
  api: https://example.org
  ids: [1, 2]
steps:
  - name: start
    when: "{{ vars.api }}"   # only with an API
    tool:
      - fetch:   # the first
          type: http
          # where it is
          url: "{{ vars.api }}/orders"
          retry: {max_attempts: 3, initial_delay: 2, backoff_multiplier: 2.0}
      - name: store
        kind: postgres
        credential: pg_main
        query: SELECT 1
        eval: [{expr: "{{ outcome.error.status == 404 }}", do: break}, {else: {do: fail}}]
    next:
      # both of them
      - step: many    # one
      - {step: report}
  - step: many
    loop:
      collection: "{{ workload.ids }}"
      element: id
      mode: async
    tool:
      kind: noop
      data: {id: "{{ id }}", at: "{{ loop_index }}", same: "{{ iter.id }}"}
    next:
      - when: "{{ event.name == 'call.done' }}"
        then: report
      - {when: "{{ event.name == 'call.error' }}", then: [{step: end}]}
  - step: report
    with: {n: 1}
    tool:
      kind: python
      args: {n: "{{ args.n }}"}
      code: |
        total = n + 1
        return {"total": total}   # at last
    next: end
"""

NEW = """\
# A flow of an older release.
apiVersion: noetl.io/v2
metadata:
  name: orders   # its name
keychain:
  - {name: pg_main, kind: postgres_credential}

workload:
  api: https://example.org
  ids: [1, 2]
workflow:
  - step: start
    spec:
      policy:
        admit:
          rules:
            - when: "{{ workload.api }}"
              then: {allow: true}   # only with an API
    tool:
      - name: fetch   # the first
        kind: http
        # where it is
        url: "{{ workload.api }}/orders"
        spec: {policy: {rules: [{when: "{{ outcome.status == 'error' }}", then: {do: retry, attempts: 3, delay: 2, backoff: exponential}}, {else: {then: {do: continue}}}]}}
      - name: store
        kind: postgres
        auth: pg_main
        command: SELECT 1
        spec: {policy: {rules: [{when: "{{ outcome.http.status == 404 }}", then: {do: break}}, {else: {then: {do: fail}}}]}}
    next:
      # both of them
      spec: {mode: inclusive}
      arcs:
        - step: many    # one
        - {step: report}
  - step: many
    loop:
      in: "{{ workload.ids }}"
      iterator: id
      spec: {mode: parallel}
    tool:
      kind: noop
      data: {id: "{{ iter.id }}", at: "{{ iter.index }}", same: "{{ iter.id }}"}
    next:
      arcs:
        - when: "{{ event.name == 'loop.done' }}"
          step: report
        - {when: "{{ event.name == 'step.failed' }}", step: end}
  - step: report
    args: {n: 1}
    tool:
      kind: python
      args: {n: "{{ args.n }}"}
      code: |
        total = n + 1
        result = {"total": total}   # at last
    next: {arcs: [{step: end}]}

  - step: end
    tool: {kind: noop}
"""


def migrated(text: str) -> Migration:
    return migrate(text, "p.yaml", installed_kinds())


def test_older_forms_become_present_ones_and_comments_stay() -> None:
    done = migrated(OLD)
    assert done.text == NEW
    assert [str(finding) for finding in done.undecided] == []
    assert (9, "name → step") in done.changes


def test_line_ends_stay_as_they_are() -> None:
    done = migrated(OLD.replace("\n", "\r\n"))
    assert done.text == NEW.replace("\n", "\r\n")
    assert done.undecided == []
    mixed = "metadata: {name: p}\r\nworkflow:\n  - step: start\r\n    tool: {kind: noop}\n"
    assert migrated(mixed).text == mixed


def test_a_byte_order_mark_stays_and_hides_nothing() -> None:
    assert migrated("\ufeff" + OLD).text == "\ufeff" + migrated(OLD).text


def test_lines_end_as_most_of_them_did() -> None:
    mixed = OLD.replace("\n", "\r\n", 1)
    assert migrated(mixed).text == migrated(OLD).text


def test_keys_in_quotes_keep_them() -> None:
    text = '{"metadata": {"name": "p"}, "steps": [{"name": "start", "tool": {"type": "noop"}}]}\n'
    assert json.loads(migrated(text).text) == {
        "metadata": {"name": "p"},
        "workflow": [{"step": "start", "tool": {"kind": "noop"}}],
    }


def test_a_second_run_changes_nothing() -> None:
    again = migrated(NEW)
    assert again.text == NEW
    assert again.changes == []


def single_step(step: str) -> str:
    return f"metadata: {{name: p}}\nworkflow:\n  - step: a\n    tool: {{kind: noop}}\n  - step: start\n{step}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    tool: {kind: noop}\n    next: [a, start]\n", "    tool: {kind: noop}\n    next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: start}]}\n"),
        ("    tool: {kind: noop}\n    next: [{step: a, if: ctx.x}]\n", "    tool: {kind: noop}\n    next: {arcs: [{step: a, when: ctx.x}]}\n"),
        ("    tool: {kind: noop}\n    next:\n    - a\n", "    tool: {kind: noop}\n    next:\n      arcs:\n        - {step: a}\n"),
        ('    tool: [{get: {kind: http, url: "https://x.org"}}]\n', '    tool: [{name: get, kind: http, url: "https://x.org"}]\n'),
        (
            '    tool: {kind: noop}\n    case:\n      - when: "{{ ctx.x }}"\n        then:\n          - next: [{step: a}]\n      - else: {next: start}\n',
            '    tool: {kind: noop}\n    next:\n      arcs:\n        - {step: a, when: "{{ ctx.x }}"}\n        - {step: start}\n',
        ),
        ("    tool: {kind: noop}\n    loop: {in: [1], iterator: n, max_in_flight: 4}\n", "    tool: {kind: noop}\n    loop: {in: [1], iterator: n, spec: {mode: parallel, max_in_flight: 4}}\n"),
        (
            "    tool:\n      type: python\n      input: {n: 1}\n      code: |\n        if n:\n            return 1\n        return 2\n",
            "    tool:\n      kind: python\n      args: {n: 1}\n      code: |\n        def main(n):\n            if n:\n                return 1\n            return 2\n",
        ),
        (
            "    tool:\n      kind: python\n      args: {n: 1}\n      code: |\n        if n:\n            return 1\n        return 2\n",
            "    tool:\n      kind: python\n      args: {n: 1}\n      code: |\n        def main(n):\n            if n:\n                return 1\n            return 2\n",
        ),
        (
            "    tool: {kind: python, code: result = x}\n    args: {x: 1}\n",
            "    tool: {kind: python, code: result = x, args: {x: 1}}\n",
        ),
        (
            "    input:\n      x: 1   # one\n    tool:\n      kind: python\n      code: result = x\n",
            "    tool:\n      kind: python\n      code: result = x\n      args:\n        x: 1   # one\n",
        ),
        (
            "    tool:\n      kind: noop\n      data: {n: 1}\n    set:\n      ctx.total: '{{ start.n }}'\n",
            "    tool:\n      kind: noop\n      data: {n: 1}\n      spec: {set_ctx: {total: '{{ outcome.n }}'}}\n",
        ),
        (
            '    tool: {kind: noop, data: {n: 1}}\n    set_ctx:\n      total: "{{ self.n }}"\n',
            '    tool: {kind: noop, data: {n: 1}, spec: {set_ctx: {total: "{{ outcome.n }}"}}}\n',
        ),
        (
            "    tool:\n      - name: t\n        kind: noop\n        spec:\n          policy:\n            rules:\n              - else:\n                  do: continue\n                  set:\n                    iter.a: 1   # here\n                    iter.b: 2\n",
            "    tool:\n      - name: t\n        kind: noop\n        spec:\n          policy:\n            rules:\n              - else:\n                  then:\n                    do: continue\n                    set_iter:\n                      a: 1   # here\n                      b: 2\n",
        ),
        (
            "    tool:\n      - name: t\n        kind: noop\n        spec: {policy: {rules: [{else: {do: continue, set: {ctx.a: 1, iter.b: '{{ output.data }}'}}}]}}\n",
            "    tool:\n      - name: t\n        kind: noop\n        spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {a: 1}, set_iter: {b: '{{ outcome.data }}'}}}}]}}\n",
        ),
        (
            "    tool:\n      kind: python\n      spec:\n        input: {x: 1}\n        code: |\n          result = x\n        timeout: 5\n",
            "    tool:\n      kind: python\n      args: {x: 1}\n      code: |\n        result = x\n      spec:\n        timeout: 5\n",
        ),
        (
            "    tool:\n      kind: http\n      endpoint: https://x.org\n      timeout: 30   # seconds\n      method: POST\n      payload: {a: 1}\n",
            "    tool:\n      kind: http\n      url: https://x.org\n      # seconds\n      method: POST\n      json: {a: 1}\n      spec: {timeout: 30}\n",
        ),
        (
            "    tool:\n      kind: http\n      url: https://x.org\n      retry:\n        max_attempts: 3\n        retry_on_status: [429, 503]\n        backoff_seconds: 2\n",
            "    tool:\n      kind: http\n      url: https://x.org\n      spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' and outcome.http.status in [429, 503] }}\", then: {do: retry, attempts: 3, delay: 2}}, {when: \"{{ outcome.status == 'error' }}\", then: {do: fail}}, {else: {then: {do: continue}}}]}}\n",
        ),
        (
            "    tool:\n      kind: noop\n      spec: {policy: {rules: [{when: \"{{ outcome.error.kind == 'timeout' }}\", then: {do: fail}}, {else: {then: {do: continue}}}]}}\n",
            "    tool:\n      kind: noop\n      spec: {policy: {rules: [{when: \"{{ outcome.status == 'error' and outcome.error.kind == 'timeout' }}\", then: {do: fail}}, {else: {then: {do: continue}}}]}}\n",
        ),
        (
            '    tool: {kind: python, code: result = rows, args: {rows: "{{ a }}"}}\n',
            '    tool: {kind: python, code: result = rows, args: {rows: "{{ a.data }}"}}\n',
        ),
        (
            "    tool:\n      kind: sqlite\n      database: x.db\n      command: |\n        INSERT INTO {{ workload.t }} VALUES ('{{ execution_id }}:{{ a.n }}', '{{ a.m }}')\n",
            "    tool:\n      kind: sqlite\n      database: x.db\n      command: |\n        INSERT INTO {{ workload.t | identifier }} VALUES (({{ execution_id }} || ':' || {{ a.n }}), '{{ a.m }}')\n",
        ),
        (
            "    tool:\n      kind: shell\n      cmds:\n        - |\n          echo a\n",
            "    tool:\n      kind: shell\n      command: |\n          echo a\n",
        ),
        (
            "    tool: {kind: noop}\n    next: {arcs: [{step: a, cond: ctx.x}]}\n",
            "    tool: {kind: noop}\n    next: {arcs: [{step: a, when: ctx.x}]}\n",
        ),
        ("    tool: {kind: sqlite, database: x.db, sql: SELECT 1}\n", "    tool: {kind: sqlite, database: x.db, command: SELECT 1}\n"),
    ],
)  # fmt: skip
def test_single_forms(old: str, new: str) -> None:
    done = migrated(single_step(old))
    assert done.text == single_step(new)
    assert [str(finding) for finding in done.undecided] == []
    assert migrated(done.text).text == done.text


@pytest.mark.parametrize(
    "step",
    [
        "    tool: {kind: noop}\n    sink: {tool: postgres}\n",
        "    tool: {kind: noop}\n    when: x\n    spec: {join: all}\n",
        "    tool: {kind: http, url: https://x.org, retry: {max_retries: 3}}\n",
        "    tool: {kind: http, url: https://x.org, auth: nobody}\n",
        "    tool: {kind: noop}\n    next: [{when: x, then: [{step: a}, {step: start}]}]\n",
        "    tool: {kind: noop}\n    loop: {in: [1], iterator: n}\n    set: {ctx.a: 1}\n",
        "    tool: {kind: shell, cmds: [a, b]}\n",
    ],
)
def test_what_is_not_certain_is_left_and_listed(step: str) -> None:
    done = migrated(single_step(step))
    assert done.text == single_step(step)
    assert done.undecided
    assert all(finding.at.line > 5 for finding in done.undecided)


@pytest.mark.parametrize(
    "text", ["", "a: [", "- 1\n", "workflow: 1\n", "workflow:\n  - 1\n  - next: []\n", "\ufeffa: 1\n", "tool: {}\n"]
)
def test_what_is_no_playbook_comes_back_as_it_was(text: str) -> None:
    done = migrated(text)
    assert done.text == text
    assert done.undecided


def test_a_workbook_entry_with_a_tool_is_the_tool() -> None:
    old = (
        "metadata: {name: p}\nworkbook:\n  - name: flag   # of the day\n    tool:\n      kind: python\n      input: {c: null}\n"
        "      code: |\n        result = c\n    assert:\n      returns: [hot]\nworkflow:\n  - step: start\n"
        "    tool: {kind: workbook, name: flag, input: {c: 1}}\n"
    )
    done = migrated(old)
    assert done.text == (
        "metadata: {name: p}\nworkbook:\n  - name: flag   # of the day\n    kind: python\n    args: {c: null}\n"
        "    code: |\n      result = c\n    x-assert:\n      returns: [hot]\nworkflow:\n  - step: start\n"
        "    tool: {kind: workbook, name: flag, args: {c: 1}}\n"
    )
    assert done.undecided == []


def test_an_example_is_not_changed() -> None:
    for path in sorted((Path(__file__).parents[3] / "examples").rglob("*.yaml")):
        text = path.read_text()
        assert migrated(text).text == text, path.name


def test_a_migrated_playbook_runs_with_the_right_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(
        'metadata: {name: p}\nvars: {n: 20}\nsteps:\n  - name: start\n    tool:\n      kind: python\n      args: {n: "{{ vars.n }}"}\n'
        '      code: |\n        # twice\n        return n * 2 + 2\n    next: [end]\n  - step: end\n    tool: {kind: noop, data: "{{ start.data }}"}\n'
    )
    assert command(["migrate", str(file), "--write"]) == 0
    assert command(["run", str(file), "--json", "--home", str(tmp_path / "home")]) == 0
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") :])["result"] == 42


LEGACY = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: legacy, path: tests/legacy}
workload: {numbers: [1, 2, 3], limit: 5}
workbook:
  - name: judge
    tool:
      kind: python
      input: {total: null, limit: null}
      code: |
        if total > limit:
            return {"verdict": "high"}
        return {"verdict": "low"}
    assert: {returns: [verdict]}
workflow:
  - step: start
    tool:
      kind: python
      spec:
        code: |
          result = {"seen": 0}
    set:
      ctx.seen: "{{ start.seen }}"   # nothing yet
    next: [double]
  - step: double
    loop: {collection: "{{ numbers }}", element: number, mode: sequential}
    tool:
      - twice:
          kind: python
          input: {n: "{{ number }}", at: "{{ loop_index }}"}
          code: |
            result = n * 2 + at - at
    case:
      - when: "{{ event.name == 'call.done' }}"
        then: {next: total}
      - when: "{{ event.name == 'call.error' }}"
        then: {next: end}
  - step: total
    input: {results: "{{ double.results }}"}
    tool:
      kind: python
      code: |
        return sum(results)   # all of them
    next: judged
  - step: judged
    tool:
      - name: judge
        kind: workbook
        input: {total: "{{ total }}", limit: "{{ limit }}"}
    next:
      - {step: end, when: "{{ judged.verdict == 'high' }}"}
"""


def test_a_legacy_playbook_with_many_forms_runs_with_the_right_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "legacy.yaml"
    file.write_text(LEGACY)
    assert command(["check", str(file)]) == 2
    capsys.readouterr()
    assert command(["migrate", str(file), "--write"]) == 0, capsys.readouterr().err
    text = file.read_text()
    assert "# nothing yet" in text
    assert "# all of them" in text
    assert command(["migrate", str(file)]) == 0
    assert capsys.readouterr().out.endswith(text)
    assert command(["run", str(file), "--json", "--home", str(tmp_path / "home")]) == 0
    account = json.loads(capsys.readouterr().out)
    assert {name: step["status"] for name, step in account["steps"].items()} == {
        "start": "done",
        "double": "done",
        "total": "done",
        "judged": "done",
        "end": "done",
    }
    assert account["ctx"] == {"seen": 0}


def test_the_command_prints_the_text_and_lists_what_is_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(single_step("    tool: {kind: noop}\n    next: a\n"))
    assert command(["migrate", str(file)]) == 0
    captured = capsys.readouterr()
    assert captured.out == single_step("    tool: {kind: noop}\n    next: {arcs: [{step: a}]}\n")
    assert captured.err == ""
    assert command(["migrate", str(file), "--diff"]) == 0
    assert "+    next: {arcs: [{step: a}]}" in capsys.readouterr().out
    assert command(["migrate", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is True
    file.write_text(single_step("    tool: {kind: noop}\n    sink: x\n"))
    assert command(["migrate", str(file)]) == 1
    captured = capsys.readouterr()
    assert captured.out == file.read_text()
    assert "old.yaml:7:5: error[undecided]" in captured.err
    assert command(["migrate", str(file), str(file)]) == 2


def test_many_files_are_migrated_quickly() -> None:
    migrated(OLD)
    began = time.process_time()
    for _ in range(20):
        migrated(OLD)
    assert (time.process_time() - began) / 20 < 0.2, "the goal is 10 ms a file on a machine that does nothing else"
