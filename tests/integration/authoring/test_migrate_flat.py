"""`arclog migrate`: playbooks of the first releases, where the keys of a tool stand on the step itself."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from arclog.authoring.migrate import Migration, migrate
from arclog.cli.main import command
from arclog.wiring.kinds import installed_kinds


def migrated(text: str) -> Migration:
    return migrate(text, "p.yaml", installed_kinds())


def single_step(step: str) -> str:
    return f"metadata: {{name: p}}\nworkflow:\n  - step: start\n{step}"


FLAT = """\
# The first flow.
apiVersion: noetl.io/v1   # long ago
kind: Playbook
name: orders
path: shop/orders
workload:
  limit: 20
  names: [Ada, Bob]
workbook:
  - name: judge
    type: python
    assert: {returns: [hot]}
    code: |
      def main(total):
          return {"hot": total > 20}
workflow:
  - step: start
    next:
      - step: add-up
  - step: add-up
    desc: adds
    type: python      # the code below
    # what it adds
    with:
      limit: "{{ workload.limit }}"
    code: |
      def main(limit):
          return {"total": limit + 1}
    next:
      - when: "{{ result.total > 20 }}"
        then:
          - step: judged   # the one way
            with:
              total: "{{ add_up.total }}"
      - else:
          - step: end
  - step: judged
    type: workbook
    name: judge
    data:
      total: "{{ total }}"
    next: [greet]
  - step: greet
    type: iterator
    collection: "{{ workload.names }}"
    element: person
    mode: sequential
    task:
      # each of them
      type: python
      data: {person: "{{ person }}", at: "{{ greet.result_index }}"}
      code: |
        def main(person, at):
            return f"{at} {person}"
    next:
      - step: end
  - step: end
    result:
      hot: "{{ judged.hot }}"
      all: "{{ greet.results }}"
"""

CANONICAL = """\
# The first flow.
apiVersion: noetl.io/v10   # long ago
kind: Playbook
metadata:
  name: orders
  path: shop/orders
workload:
  limit: 20
  names: [Ada, Bob]
workbook:
  - name: judge
    kind: python
    x-assert: {returns: [hot]}
    code: |
      def main(total):
          return {"hot": total > 20}
workflow:
  - step: start
    tool: {kind: noop}
    next:
      arcs:
        - step: add_up
  - step: add_up
    desc: adds
    tool:
      kind: python      # the code below
      # what it adds
      args:
        limit: "{{ workload.limit }}"
      code: |
        def main(limit):
            return {"total": limit + 1}
    next:
      arcs:
        - when: "{{ outcome.result.total > 20 }}"
          step: judged   # the one way
          args: {total: "{{ add_up.total }}"}
        - step: end
  - step: judged
    tool:
      kind: workbook
      name: judge
      args:
        total: "{{ args.total }}"
    next: {arcs: [{step: greet}]}
  - step: greet
    loop:
      in: "{{ workload.names }}"
      iterator: person
      spec: {mode: sequential}
    tool:
      # each of them
      kind: python
      args: {person: "{{ iter.person }}", at: "{{ iter.index }}"}
      code: |
        def main(person, at):
            return f"{at} {person}"
    next:
      arcs:
        - step: end
  - step: end
    tool:
      kind: noop
      data:
        hot: "{{ judged.hot }}"
        all: "{{ greet.results }}"
"""


def test_a_flow_of_the_first_releases_keeps_its_comments() -> None:
    done = migrated(FLAT)
    assert done.text == CANONICAL
    assert [str(finding) for finding in done.undecided] == []
    assert migrated(done.text).changes == []


def run(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Migrate a text with the command, run the file, and return what `run --json` prints."""
    file = folder / "flow.yaml"
    file.write_text(text, newline="")
    assert command(["migrate", str(file), "--write"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert command(["run", str(file), "--json", "--home", str(folder / "home")]) == 0, capsys.readouterr()
    account: dict[str, Any] = json.loads(capsys.readouterr().out)
    return account


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_it_runs_with_the_right_result(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    account = run(FLAT.replace("\n", ending), tmp_path, capsys)
    assert account["result"] == {"hot": True, "all": ["0 Ada", "1 Bob"]}
    assert (tmp_path / "flow.yaml").read_bytes().decode() == CANONICAL.replace("\n", ending)


def test_rows_that_a_step_saves_are_in_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = """\
metadata: {name: saves}
workload: {message: "grüß dich"}
workflow:
  - step: start
    tool: sqlite
    database: saved.db
    command: CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)
    next: [work]
  - step: work
    type: python
    code: |
      def main():
          return {"id": 7, "n": 1}
    save:
      storage: sqlite
      database: saved.db
      table: rows
      mode: upsert
      key: id
      args:
        id: "{{ this.id }}"
        text: "{{ workload.message }}"
    next: [keep]
  - step: keep
    type: save
    storage: sqlite
    database: saved.db
    table: rows
    data:
      id: "{{ work.n }}"
      text: again
    next: [end]
  - {step: end, type: end}
"""
    account = run(text, tmp_path, capsys)
    assert account["state"] == "COMPLETED"
    with sqlite3.connect(tmp_path / "saved.db") as database:
        assert database.execute("SELECT id, text FROM rows ORDER BY id").fetchall() == [(1, "again"), (7, "grüß dich")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    type: noop\n", "    tool:\n      kind: noop\n"),
        ("    tool: end\n", "    tool:\n      kind: noop\n"),
        (
            "    type: http\n    method: GET\n    endpoint: https://x.org\n    data: {q: 1}\n    timeout: 20\n",
            "    tool:\n      kind: http\n      method: GET\n      url: https://x.org\n      params: {q: 1}\n      spec: {timeout: 20}\n",
        ),
        (
            "    tool: http\n    method: POST\n    url: https://x.org\n    data: {q: 1}\n",
            "    tool:\n      kind: http\n      method: POST\n      url: https://x.org\n      json: {q: 1}\n",
        ),
        (
            "    call:\n      type: python\n      with: {n: 1}\n      code: result = n\n",
            "    tool:\n      kind: python\n      args: {n: 1}\n      code: result = n\n",
        ),
        (
            "    type: duckdb\n    commands: |\n      SELECT 1\n",
            "    tool:\n      kind: duckdb\n      command: |\n        SELECT 1\n",
        ),
        (
            "    type: postgres\n    auth:\n      pg: {type: postgres, key: pg_local}\n    command: SELECT 1\n",
            "    tool:\n      kind: postgres\n      auth: pg_local\n      command: SELECT 1\n",
        ),
        (
            "    code: |\n      result = 1\n    # of python\n    type: python\n",
            "    # of python\n    tool:\n      kind: python\n      code: |\n        result = 1\n",
        ),
        (
            "    type: playbook\n    path: a/b\n    task: child\n    with: {n: 1}\n",
            "    tool:\n      kind: playbook\n      path: a/b\n      name: child\n      args: {n: 1}\n",
        ),
    ],
)
def test_single_forms(old: str, new: str) -> None:
    done = migrated(single_step(old))
    assert done.text.endswith(single_step(new).partition("workflow:")[2])
    assert [str(finding) for finding in done.undecided] == []
    assert migrated(done.text).text == done.text


def test_the_first_key_of_a_step_may_move() -> None:
    text = "metadata: {name: p}\nworkflow:\n- args:\n    n: 1\n  code: result = n\n  step: start\n  type: python\n"
    done = migrated(text)
    assert done.undecided == []
    assert done.text == (
        "metadata: {name: p}\nworkflow:\n- step: start\n  tool:\n    kind: python\n    args:\n      n: 1\n    code: result = n\n"
    )


def test_a_step_on_one_line() -> None:
    done = migrated('metadata: {name: p}\nworkflow:\n  - {step: start, type: python, code: "result = 1", next: end}\n')
    assert '- {step: start, tool: {kind: python, code: "result = 1"}, next: {arcs: [{step: end}]}}' in done.text, (
        done.text
    )
    assert done.undecided == []


def test_values_that_an_arc_hands_to_main() -> None:
    text = (
        "metadata: {name: p}\nworkflow:\n  - step: start\n    type: noop\n    next:\n      - {step: b, with: {n: 1}}\n"
        "  - step: b\n    type: python\n    code: |\n      def main(n):\n          return n\n"
    )
    done = migrated(text)
    assert done.undecided == []
    assert 'args: {n: "{{ args.n }}"}' in done.text


def test_values_that_a_step_gives_its_own_templates() -> None:
    text = single_step(
        '    type: http\n    with: {id: 7}\n    url: "https://x.org/{{ id }}{% for n in [id] %}{{ n }}{% endfor %}"\n'
    )
    done = migrated(text)
    assert done.undecided == []
    assert "args: {id: 7}" in done.text
    assert 'url: "https://x.org/{{ args.id }}{% for n in [args.id] %}{{ n }}{% endfor %}"' in done.text


@pytest.mark.parametrize(
    ("step", "line", "words"),
    [
        ("    type: secrets\n    provider: google\n    secret_name: x\n", 4, "keychain"),
        ("    type: python\n    with: {a: 1}\n    data: {b: 1}\n    code: result = 1\n", 4, "two names"),
        ("    type: http\n    url: https://x.org\n    data: {query: {a: 1}}\n", 7, "params"),
        ("    type: python\n    code: result = 1\n    end_loop: x\n", 7, "end_loop"),
        ('    type: noop\n    args: {a: "{{ nobody }}"}\n', 6, "nobody"),
        ('    type: noop\n    next: [{step: start, when: "{{ env.X }}"}]\n', 6, "env"),
        ("    type: python\n    code: result = 1\n    save: {storage: mongo, args: {a: 1}}\n", 7, "save"),
    ],
)
def test_what_is_not_certain_is_listed_on_its_line(step: str, line: int, words: str) -> None:
    done = migrated(single_step(step))
    findings = [finding for finding in done.undecided if words in f"{finding.message} {finding.hint}"]
    assert findings, [str(finding) for finding in done.undecided]
    assert abs(findings[0].at.line - line) <= 1


def test_templates_in_the_workload_are_listed() -> None:
    done = migrated('metadata: {name: p}\nworkload: {id: "{{ job.uuid }}"}\nworkflow:\n  - {step: start, type: noop}\n')
    (finding,) = done.undecided
    assert (finding.code, finding.at.line) == ("workload-template", 2)


def test_half_of_a_file_may_be_migrated() -> None:
    text = CANONICAL.replace(
        '  - step: end\n    tool:\n      kind: noop\n      data:\n        hot: "{{ judged.hot }}"\n        all: "{{ greet.results }}"\n',
        '  - step: end\n    type: noop\n    result:\n      hot: "{{ judged.hot }}"\n      all: "{{ greet.results }}"\n',
    )
    assert text != CANONICAL
    assert migrated(text).text == CANONICAL


def test_anchors_stay() -> None:
    text = (
        "metadata: {name: p}\nx-common: &common {n: 1}\nworkflow:\n  - step: start\n    type: python\n    args: *common\n"
        "    code: result = n\n"
    )
    done = migrated(text)
    assert "args: *common" in done.text
    assert done.undecided == []
