"""SQL tasks as people run them: playbooks through the program, on a real PostgreSQL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.servers.commands import run_text

STORE = """\
metadata: {name: store}
workload: {dsn: "", customers: []}
executor: {spec: {result: "{{ report.data }}"}}
workflow:
  - step: start
    tool:
      kind: postgres
      dsn: "{{ workload.dsn }}"
      command: CREATE TABLE seen (name text PRIMARY KEY, n int NOT NULL DEFAULT 1)
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ workload.customers }}", iterator: customer, spec: {mode: parallel, max_in_flight: 4}}
    tool:
      - name: insert
        kind: postgres
        dsn: "{{ workload.dsn }}"
        command: INSERT INTO seen (name) VALUES ({{ iter.customer }})
        spec:
          policy:
            rules:
              - when: "{{ outcome.status == 'error' and outcome.pg.code == '23505' }}"
                then: {do: jump, to: count}
              - when: "{{ outcome.status == 'error' }}"
                then: {do: fail}
              - else: {then: {do: break}}
      - name: count
        kind: postgres
        dsn: "{{ workload.dsn }}"
        command: UPDATE seen SET n = n + 1 WHERE name = :name
        params: {name: "{{ iter.customer }}"}
    next: {arcs: [{step: report}]}
  - step: report
    tool:
      kind: postgres
      dsn: "{{ workload.dsn }}"
      command: SELECT name, n FROM seen ORDER BY name COLLATE "C"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres):
    monkeypatch.chdir(tmp_path)

    def run(text: str, *words: str, code: int = 0, **workload: Any) -> dict[str, Any]:
        (tmp_path / "p.yaml").write_text(text)
        (tmp_path / "w.json").write_text(json.dumps({"dsn": postgres.dsn, **workload}))
        done = run_text("run", "p.yaml", "--workload", "w.json", "--json", *words, timeout=100)
        assert done.returncode == code, done.stderr
        summary: dict[str, Any] = json.loads(done.stdout)
        return summary

    return run


def inputs(task: str) -> list[Any]:
    done = run_text("events", "last", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    started = [event for event in events if event["event_type"] == "task.started"]
    return [event["payload"]["inputs"] for event in started if event["task_run_id"].startswith(f"task:{task}:")]


def test_a_playbook_stores_hostile_data_and_routes_by_sqlstate(run, postgres):
    customers = ["Ann", "x'); DROP TABLE seen; --", "Ann", "Bo", "Ann"]
    summary = run(STORE, customers=customers)
    assert summary["result"] == [
        {"name": "Ann", "n": 3},
        {"name": "Bo", "n": 1},
        {"name": "x'); DROP TABLE seen; --", "n": 1},
    ]
    assert postgres.rows("SELECT count(*) FROM seen") == [(3,)]
    commands = [value["command"] for value in inputs("insert")]
    assert {command[0]["sql"] for command in commands} == {"INSERT INTO seen (name) VALUES ($1)"}
    assert sorted(command[0]["params"][0] for command in commands) == sorted(customers)


def test_a_database_that_refuses_fails_the_run_with_its_reason(run, postgres):
    text = """\
metadata: {name: bad}
workload: {dsn: ""}
workflow:
  - step: start
    tool: {kind: postgres, dsn: "{{ workload.dsn }}", command: "SELECT 1; SELECT * FROM {{ workload.t | identifier }}"}
"""
    summary = run(text, code=1, t="nowhere")
    assert summary["error"]["kind"] == "sql"
    assert summary["error"]["code"] == "42P01"
    assert 'statement 2 of 2: relation "nowhere" does not exist' in summary["error"]["message"]


MANY = """\
metadata: {name: many}
executor: {spec: {result: "{{ tail.data }}"}}
workflow:
  - step: start
    tool: {kind: postgres, dsn: "{{ workload.dsn }}", command: "SELECT i, 'row ' || i AS t FROM generate_series(1, 20000) i"}
    next:
      arcs:
        - step: tail
          when: "{{ outcome.result.row_count == 20000 and outcome.pg.rowcount == 20000 }}"
          args: {first: "{{ start.data[0].t }}"}
  - step: tail
    tool:
      - name: sums
        kind: sqlite
        database: ":memory:"
        command: SELECT count(*) AS n, sum(value ->> 'i') AS s FROM json_each({{ start.data }})
      - {name: all, kind: noop, data: ["{{ args.first }}", "{{ start.data[19999].t }}", "{{ sums.data[0] }}"]}
"""


def test_rows_above_the_inline_limit_are_stored_and_read_as_if_they_were_not(run):
    assert run(MANY)["result"] == ["row 1", "row 20000", {"n": 20000, "s": 200010000}]
    done = run_text("events", "last", "--json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (stored,) = [event for event in events if event["event_type"] == "result.stored"]
    assert stored["payload"]["result_ref"]["meta"]["rows"] == 20000
    assert max(len(json.dumps(event)) for event in events) < 8192
