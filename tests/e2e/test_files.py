"""Files of tasks as people meet them: stored by one task, opened by another one, wherever it runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.test_cli import EXAMPLES, ROOT, arclog, events_of, summary_of
from tests.e2e.test_up import up
from tests.integration.server.test_executions import ended, started

READERS = """
metadata: {name: readers}
executor:
  spec:
    ctx: {at: {reducer: append}}
    result: "{{ [rows.data, numbers.data, items.results, sent.text, build.files.report.meta.bytes, ctx.at] }}"
workflow:
  - step: build
    tool:
      kind: python
      outputs: {report: $ARCLOG_SCRATCH/report.csv, numbers: $ARCLOG_SCRATCH/numbers.db}
      code: |
        import os, sqlite3
        os.chdir(os.environ["ARCLOG_SCRATCH"])
        open("report.csv", "w").write("a,b\\n1,2\\n3,4\\n")
        connection = sqlite3.connect("numbers.db")
        connection.execute("CREATE TABLE numbers AS SELECT 7 AS n")
        connection.commit()
    next: {arcs: [{step: rows}]}
  - step: rows
    tool: {kind: duckdb, command: "SELECT sum(a) AS a FROM read_csv('{{ build.files.report }}')"}
    next: {arcs: [{step: numbers}]}
  - step: numbers
    tool: {kind: sqlite, database: "{{ build.files.numbers }}", command: SELECT n FROM numbers}
    next: {arcs: [{step: items}]}
  - step: items
    loop: {in: [1, 2], iterator: n, spec: {mode: parallel}}
    tool:
      - name: write
        kind: shell
        command: [sh, -c, 'test $ARCLOG_ATTEMPT = 2 && echo "item $0" > $ARCLOG_SCRATCH/item', "{{ iter.n }}"]
        outputs: {item: $ARCLOG_SCRATCH/item}
        spec: {retry: {attempts: 2, delay: 0, on: [exception]}, set_ctx: {at: "{{ outcome.files.item.meta.file }}"}}
      - name: read
        kind: python
        args: {path: "{{ write.files.item }}", build: "{{ build }}"}
        code: result = open(path).read() + open(build["files"]["report"]).readline()
    next: {arcs: [{step: sent}]}
  - step: sent
    tool:
      - {name: put, kind: object, action: put, url: "sent.csv", content: "{{ build.files.report }}"}
      - {name: get, kind: object, action: get, url: "sent.csv", decode: text}
      - {name: text, kind: noop, data: {text: "{{ get.data }}"}}
"""
SECRET = """
metadata: {name: secret}
keychain: [{name: it, kind: file, path: it.txt}]
workflow:
  - step: start
    tool:
      - name: write
        kind: shell
        command: [sh, -c, 'echo "one $IT two" > $ARCLOG_SCRATCH/x']
        env: {IT: "{{ keychain.it.value }}"}
        outputs: {x: $ARCLOG_SCRATCH/x}
      - {name: read, kind: shell, command: [cat, "{{ write.files.x }}"]}
"""


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_"):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize("confinement", ["standard", "strict"])
def test_every_kind_that_opens_files(where: Path, monkeypatch: pytest.MonkeyPatch, confinement: str) -> None:
    monkeypatch.setenv("ARCLOG_TASKS_CONFINEMENT", confinement)
    (where / "readers.yaml").write_text(READERS)
    items = ["item 1\na,b\n", "item 2\na,b\n"]
    assert summary_of("run", "readers.yaml")["result"] == [
        [{"a": 4}],
        [{"n": 7}],
        items,
        "a,b\n1,2\n3,4\n",
        12,
        ["item", "item"],
    ]
    events = events_of()
    stored = [(event["task"], event["payload"]["file"]) for event in events if event["event_type"] == "result.stored"]
    assert sorted(stored) == [("build_task", "numbers"), ("build_task", "report"), ("write", "item"), ("write", "item")]
    [done] = [event for event in events if event["event_type"] == "task.done" and event["step"] == "build"]
    ref = done["payload"]["outcome"]["files"]["report"]
    assert (ref["kind"], ref["meta"]["file"], ref["meta"]["bytes"]) == ("result_ref", "report.csv", 12)
    assert arclog("result", "get", ref["ref"]).stdout == "a,b\n1,2\n3,4\n"
    [path] = [
        event["payload"]["inputs"]["args"]["path"]
        for event in events
        if event["event_type"] == "task.started" and event["task"] == "read" and event["iteration_id"].endswith("0")
    ]
    assert not Path(path).exists()


def test_a_secret_in_a_file_is_taken_out(where: Path) -> None:
    (where / "it.txt").write_text("the-hidden-word")
    (where / "secret.yaml").write_text(SECRET)
    assert summary_of("run", "secret.yaml")["result"]["stdout"] == "one [redacted:it] two\n"


async def test_a_server_hands_files_from_task_to_task(where: Path) -> None:
    server = await up(where / "home")
    try:
        async with server.client() as client:
            text = (ROOT / "examples/files.yaml").read_text()
            summary = await ended(client, await started(client, playbook=text))
        assert summary["state"] == "COMPLETED", json.dumps(summary)
        assert summary["result"] == EXAMPLES["files"]
    finally:
        await server.stopped(signal.SIGKILL)
