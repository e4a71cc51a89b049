"""What a person is text about a run by the program itself: warnings, prompts, failures with their lines, what is left."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.test_cli import PATIENCE_S, arclog, on_a_terminal, playbook, summary_of
from tests.servers.commands import ARCLOG


@pytest.fixture(autouse=True)
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, with a home that is made when it is needed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ARCLOG_HOME", raising=False)
    return tmp_path


LOOP = """\
metadata: {name: many}
workflow:
  - step: start
    loop: {in: "{{ range(12) }}", iterator: n, spec: {mode: parallel, max_in_flight: 6}}
    tool:
      - name: work
        kind: python
        args: {n: "{{ iter.n }}"}
        code: |
          import time

          def main(n):
              if n == 5:
                  raise ValueError(f"bad item {n}")
              time.sleep(60)
"""


def test_a_parallel_loop_that_fails_fast_blames_the_item_that_failed_with_its_line(where: Path) -> None:
    Path("many.yaml").write_text(LOOP)
    done = arclog("run", "many.yaml")
    assert done.returncode == 1
    assert "step start · item 5 · task work: exception: ValueError: bad item 5" in done.stdout
    assert 'at many.yaml:14  raise ValueError(f"bad item {n}")' in done.stdout
    assert 'File "many.yaml", line 14, in main' in done.stdout
    for command in ("show", "why"):
        text = arclog(command, "last").stdout
        assert "step start · item 5 · task work: exception: ValueError: bad item 5" in text
        assert 'File "many.yaml", line 14, in main' in text
    assert "step start, item 5, task work: exception: ValueError: bad item 5" in arclog("list").stdout
    error = json.loads(arclog("show", "last", "--json").stdout)["error"]
    assert (error["step"], error["task"], error["item"]) == ("start", "work", "5")


def test_failed_items_are_shown_though_the_run_completed(where: Path) -> None:
    text = LOOP.replace("    loop:", "    spec: {policy: {failure: {mode: best_effort}}}\n    loop:")
    Path("some.yaml").write_text(text.replace("time.sleep(60)", "return n"))
    done = arclog("run", "some.yaml")
    assert done.returncode == 0
    assert "11 ok, 1 failed" in done.stdout.splitlines()[0], "the step's own line"
    assert "  item 5 · work: exception: ValueError: bad item 5" in done.stdout
    for command in ("show", "why", "list"):
        assert "11 ok, 1 failed" in arclog(command, *([] if command == "list" else ["last"])).stdout
    summary = json.loads(arclog("show", "last", "--json").stdout)
    assert summary["steps"]["start"]["items"] == {"total": 12, "ok": 11, "failed": 1}


def test_a_task_that_takes_too_long_says_where_it_hung(where: Path) -> None:
    text = LOOP.replace("if n == 5:", "if n == 99:").replace(
        "kind: python", "kind: python\n        spec: {timeout: 0.5}"
    )
    Path("slow.yaml").write_text(text.replace("range(12)", "range(1)"))
    done = arclog("run", "slow.yaml")
    assert done.returncode == 1
    assert "timeout: task work took longer than 0.5 s" in done.stdout
    assert "at slow.yaml:16  time.sleep(60)" in done.stdout


def test_warnings_are_printed_once_before_the_run(where: Path) -> None:
    steps = ("{step: start, tool: {kind: noop}}", "{step: never, tool: {kind: noop}}")
    file = playbook(where, "warned", *steps)
    done = arclog("run", file)
    assert done.returncode == 0
    assert done.stderr.count("warning[") == 1
    assert "never" in done.stderr
    assert "warning" not in done.stdout
    assert arclog("run", file, "--quiet").stderr == ""
    done = arclog("run", file, "--json")
    assert [warning["severity"] for warning in json.loads(done.stderr)["warnings"]] == ["warning"]
    assert json.loads(done.stdout)["state"] == "COMPLETED"


def test_an_assignment_that_cannot_be_meant_starts_nothing(where: Path) -> None:
    file = where / playbook(where, "limited", "{step: start, tool: {kind: noop}}")
    file.write_text(file.read_text().replace("workflow:", "workload: {limit: 5}\nworkflow:"))
    done = arclog("run", file.name, "--set", "lmit=7")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean limit?" in done.stderr
    assert arclog("run", file.name, "--set", "limit=ten").returncode == 2
    assert json.loads(arclog("list", "--json").stdout) == []


# ── what waits for somebody ──────────────────────────────────────────────────────────────────────────────────────────

ASKS = ("{step: ask, tool: {kind: approval, prompt: 'ship it?'}, next: {arcs: [{step: end}]}}", "{step: end, tool: {kind: noop}}")  # fmt: skip


@pytest.mark.parametrize(("key", "code"), [(b"a", 0), (b"r", 1)])
def test_on_a_terminal_an_approval_is_asked_for(where: Path, key: bytes, code: int) -> None:
    status, text = on_a_terminal("run", playbook(where, "asks", *ASKS), keys=(("Press a to approve", key),))
    assert status == code, text
    assert "waits for an approval: ship it?" in text
    assert ("rejected: rejected at the terminal" in text) == (code == 1)


def test_elsewhere_the_command_that_answers_an_approval_is_printed(where: Path) -> None:
    file = playbook(where, "asks", *ASKS)
    process = subprocess.Popen(
        [*ARCLOG, "run", file, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )  # fmt: skip
    assert process.stderr is not None
    command = next(line for line in process.stderr if "arclog approve" in line).split("arclog approve")[1].strip()
    assert arclog("approve", *command.split()).returncode == 0
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert json.loads(out)["state"] == "COMPLETED"


# ── what a run starts and does not wait for ──────────────────────────────────────────────────────────────────────────


def detached(where: Path) -> str:
    """A playbook that calls one which waits for a file `go`, and does not wait for it."""
    wait = "echo here; while [ ! -e go ]; do sleep 0.05; done; echo done > ledger"
    playbook(where, "slow", f"{{step: wait, tool: {{kind: shell, command: '{wait}'}}}}")
    return playbook(where, "calls", "{step: start, tool: {kind: playbook, file: slow.yaml, wait: false}}")


def test_what_a_run_does_not_wait_for_is_served_to_its_end(where: Path) -> None:
    file = detached(where)
    process = subprocess.Popen(
        [*ARCLOG, "run", file], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stderr is not None
    notice = next(line for line in process.stderr if "wait: false" in line)
    (where / "go").touch()
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert (where / "ledger").read_text() == "done\n"
    assert "✓ calls completed" in out
    assert "✓ slow completed" in out
    rows = json.loads(arclog("list", "--json").stdout)
    assert {row["state"] for row in rows} == {"COMPLETED"}
    assert rows[0]["execution_id"] in notice


def test_leaving_earlier_names_what_is_left(where: Path) -> None:
    file = detached(where)
    process = subprocess.Popen(
        [*ARCLOG, "run", file, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    next(line for line in process.stderr if "wait: false" in line)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    child = err.split("arclog resume ")[1].split()[0]
    assert "no arclog process serves this run" in arclog("why", child).stdout
    assert "slow" in arclog("show", child).stdout
    (where / "go").touch()
    # Resuming the run that called it goes on with what is left below it.
    caller = json.loads(arclog("list", "--json", "--name", "calls").stdout)[0]["execution_id"]
    done = arclog("resume", caller)
    assert done.returncode == 0, done.stderr
    assert (where / "ledger").read_text() == "done\n"
    assert json.loads(arclog("status", child, "--json").stdout)["state"] == "COMPLETED"


def test_a_childs_failure_is_shown_by_its_caller_with_the_childs_file(where: Path) -> None:
    Path("child.yaml").write_text(LOOP.replace("name: many", "name: child"))
    file = playbook(where, "calls", "{step: start, tool: {kind: playbook, file: child.yaml}}")
    summary = summary_of("run", file, code=1)
    assert summary["cause"]["file"] == "child.yaml"
    assert (summary["cause"]["line"], summary["cause"]["iteration"]) == (14, "5")
    text = arclog("why", summary["execution_id"]).stdout
    assert "step start, task start_task → run" in text
    assert "at child.yaml:14" in text


def test_without_a_terminal_a_long_loop_says_how_far_it_is(where: Path) -> None:
    text = LOOP.replace("range(12)", "range(3)").replace("if n == 5", "if False").replace("sleep(60)", "sleep(0.5)")
    Path("long.yaml").write_text(text.replace(", spec: {mode: parallel, max_in_flight: 6}", ""))
    done = arclog("run", "long.yaml", ARCLOG_RUN_PROGRESS_S="0.1")
    assert done.returncode == 0
    assert any(line.startswith("… start  ") and "/3" in line for line in done.stdout.splitlines())
