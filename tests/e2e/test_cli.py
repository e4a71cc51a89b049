"""The program as people meet it: real processes, real homes, every example."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.servers.commands import ARCLOG, run_text
from tests.servers.nats import running_nats

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60
SUMMARY_KEYS = {
    "execution_id",
    "run_id",
    "state",
    "terminal_event",
    "started_at",
    "ended_at",
    "steps",
    "ctx",
    "result",
    "error",
    "result_ref",
    "name",
    "problems",
    "cause",
    "next",
    "origin",
    "imported",
}


@pytest.fixture
def where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, and an environment in which nothing is set."""
    monkeypatch.chdir(tmp_path)
    for name in [*os.environ]:
        if name.startswith("ARCLOG_") or name in ("NO_COLOR", "PYTHONUNBUFFERED"):
            monkeypatch.delenv(name)
    return tmp_path


def arclog(*words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    return run_text(*words, stdin=stdin, env={**os.environ, **env}, timeout=PATIENCE_S)


def summary_of(*words: str, code: int = 0) -> dict[str, Any]:
    done = arclog(*words, "--json")
    assert done.returncode == code, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout)
    assert set(summary) == SUMMARY_KEYS
    return summary


def events_of(execution_id: str = "last") -> list[dict[str, Any]]:
    done = arclog("events", execution_id, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def playbook(where: Path, name: str, *steps: str) -> str:
    file = where / f"{name}.yaml"
    file.write_text(f"metadata: {{name: {name}}}\nworkflow:\n" + "".join(f"  - {step}\n" for step in steps))
    return file.name


def waiting(where: Path, name: str = "waiting") -> str:
    """A playbook whose second step says that it runs and then waits for a file `go`."""
    return playbook(
        where,
        name,
        "{step: start, tool: {kind: shell, command: 'echo once >> ledger'}, next: {arcs: [{step: wait}]}}",
        "{step: wait, tool: {kind: shell, command: 'echo here; while [ ! -e go ]; do sleep 0.05; done'}, next: {arcs: [{step: end}]}}",
        "{step: end, tool: {kind: noop, data: {ok: true}}}",
    )


def started(*words: str, **env: str) -> subprocess.Popen[str]:
    """A run whose waiting step is running."""
    process = subprocess.Popen(
        [*ARCLOG, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **env}
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "here" in line:
            return process
    raise AssertionError(process.communicate())


def until(holds: Callable[[], Any]) -> None:
    """Ask until it holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"


# ── examples ─────────────────────────────────────────────────────────────────────────────────────────────────────

EXAMPLES: dict[str, Any] = {
    "hello": "HELLO, WORLD!",
    "short_forms": {"region": "north", "total": 60, "report": "north-3"},
    "branch": {"ordered": 2},
    "retry": {"attempts": 3},
    "loop": "3 orders, 169.50 in all",
    "parallel_loop": {
        "words": 10,
        "longest": 4,
        "vocabulary": ["to", "be", "or", "not", "that", "is", "the", "question"],
        "failed": [3],
    },
    "nested_loops": {
        "offers": ["Oslo, Fjord: single 180", "Oslo, Fjord: double 280", "Rome, Forum: double 240"],
        "cheapest": 180,
    },
    "pagination": {"rows": list("abcdefghij"), "pages": 3},
    "paginated_api": {"hotels": 8, "first": "Aurora", "last": "Harbour"},
    "fork_join": {"stock": "in stock", "to_pay": 17.5},
    "saga": {"booked": ["flight F-17", "H-4"]},
    "shell": {"exit_code": 0, "stdout": "1\n", "stderr": ""},
    "wait": {"slow": "stopped"},
    "quantum": [0.0, 0.5],
    "subplaybook": ["north: 7", "south: 5"],
    "approval": {"paid": 4711},
    "secrets": {"length": 32, "plain": "[redacted:demo]", "encoded": "[redacted:demo]"},
    "sqlite": [
        {"customer": "Bo'); DROP TABLE orders; --", "orders": 1, "total": 40.0},
        {"customer": "Ann", "orders": 2, "total": 19.75},
    ],
    "database_to_database": {
        "moved": 3,
        "again": 3,
        "kept": 3,
        "csv": 'order,customer,amount\n1,Ann,12.5\n2,"Bo, Jr.",40.0\n',
    },
    "etl_duckdb": [
        {"region": "north", "sales": 2, "total": 14.75, "last": "2024-03-02"},
        {"region": "south", "sales": 2, "total": 21.75, "last": "2024-03-02"},
    ],
    "files": {"lines": 4, "total": 59.75, "report": "report.csv"},
    "progress": {"sample": 19, "square": 361},
    "nats": {"total": 80.0, "orders": 5, "batches": 3},
}
#: examples that need a NATS server, which the test starts
SERVED = {"nats"}
#: examples that wait for somebody
TOLD = {"approval": ("approve", "last")}


def test_every_example_has_its_expected_result_here():
    assert {path.stem for path in (ROOT / "examples").glob("*.yaml")} == set(EXAMPLES)


def test_no_example_has_a_finding(where):
    done = arclog("check", *map(str, sorted((ROOT / "examples").glob("*.yaml"))), "--json", "--strict")
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


@pytest.mark.parametrize("name", sorted(set(EXAMPLES) - set(TOLD)))
def test_an_example_runs_to_its_result(where, name):
    with running_nats() if name in SERVED else nullcontext() as server:
        words = [] if server is None else ["--set", f"servers={server.url}"]
        summary = summary_of("run", str(ROOT / f"examples/{name}.yaml"), *words)
    assert summary["state"] == "COMPLETED"
    assert summary["terminal_event"] == "playbook.completed"
    assert summary["result"] == EXAMPLES[name]
    log = events_of(summary["execution_id"])
    assert [event["seq"] for event in log] == list(range(1, len(log) + 1))
    assert sum(event["event_type"] in ("playbook.finished", "execution.cancelled") for event in log) == 1


@pytest.mark.parametrize("name", TOLD)
def test_an_example_that_waits_goes_on_when_it_is_told(where, name):
    words = [*ARCLOG, "run", str(ROOT / f"examples/{name}.yaml"), "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: json.loads(arclog("list", "--json").stdout))
    assert "waits for an approval" in arclog("why", "last").stdout
    assert arclog(*TOLD[name]).returncode == 0
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert json.loads(out)["result"] == EXAMPLES[name]


def test_progress_and_logs_of_an_example_are_found(where):
    summary_of("run", str(ROOT / "examples/progress.yaml"))
    [line] = arclog("logs", "last", "--stream", "progress", "--json").stdout.splitlines()
    assert json.loads(json.loads(line)["text"]) == {"done": 20, "total": 20, "unit": "samples"}
    assert arclog("logs", "last").stdout == ""
    wrong = arclog("logs", "last", "--step", "mesure")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "the run has no step 'mesure'; did you mean measure?" in wrong.stderr


LARGE = """
metadata: {name: large}
workflow:
  - step: start
    tool:
      - {name: items, kind: python, code: "result = ({'n': n} for n in range(30_000))"}
      - {name: count, kind: python, args: {items: "{{ items.data }}"}, code: "result = [len(items), items[-1]['n']]"}
      - {name: loud, kind: shell, command: "head -c 2000000 /dev/zero | tr '\\\\0' x"}
      - {name: size, kind: python, args: {text: "{{ loud.stdout }}"}, code: "result = len(text)"}
      - {name: both, kind: python, args: {a: "{{ count.data }}", b: "{{ size.data }}"}, code: "result = [a, b]"}
"""


def test_values_too_large_for_the_log_go_from_task_to_task(where):
    (where / "large.yaml").write_text(LARGE)
    assert summary_of("run", "large.yaml")["result"] == [[30_000, 29_999], 2_000_000]
    stored = [event["task"] for event in events_of() if event["event_type"] == "result.stored"]
    assert stored == ["items", "loud"]
    assert max(len(json.dumps(event)) for event in events_of()) < 8_000


def test_examples_take_other_roads_with_another_workload(where):
    run = summary_of("run", str(ROOT / "examples/hello.yaml"), "--set", "name=Al")
    assert run["result"] == "hello, Al"
    assert set(run["steps"]) == {"start", "route", "quiet"}
    run = summary_of("run", str(ROOT / "examples/branch.yaml"), "--set", "amount=20000")
    assert run["result"] == {"rejected": "ValueError: 20000 is too much"}
    run = summary_of("run", str(ROOT / "examples/retry.yaml"), "--set", "fail_first=9", code=1)
    assert run["error"]["step"] == "start"
    run = summary_of("run", str(ROOT / "examples/fork_join.yaml"), "--set", "express=true")
    assert run["result"] == {"stock": "in stock", "to_pay": 23.5}
    assert (run["steps"]["offer"]["status"], run["steps"]["offer"]["runs"]) == ("done", 1)
    run = summary_of("run", str(ROOT / "examples/saga.yaml"), "--set", "card=declined")
    assert (run["state"], run["result"]["because"]) == ("COMPLETED", "PermissionError: the card is declined")
    assert list(run["steps"])[-3:] == ["cancel_hotel", "cancel_flight", "undone"]
    Path("w.yaml").write_text("orders: [{id: 1, price: 2.5, count: 2}]\n")
    run = summary_of("run", str(ROOT / "examples/loop.yaml"), "--workload", "w.yaml")
    assert run["result"] == "1 orders, 5.00 in all"


# ── output ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_through_a_pipe_and_what_the_other_commands_tell_of_it(where):
    done = arclog("run", str(ROOT / "examples/hello.yaml"))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0] == "  start │ measuring 'world'"
    assert lines[-2] == "HELLO, WORLD!"
    assert lines[-1].startswith("✓ hello completed in ")
    execution_id = lines[-1].rpartition(" ")[2]
    assert [row["execution_id"] for row in json.loads(arclog("list", "--json").stdout)] == [execution_id]
    assert len(json.loads(arclog("status", "last", "--json").stdout)) == 7
    assert "measuring" in arclog("logs", "last").stdout
    assert execution_id in arclog("show", "last").stdout
    assert "COMPLETED" in arclog("why", "last").stdout
    assert "next.evaluated" in arclog("events", "last").stdout
    assert arclog("resume", "last").returncode == 0
    assert arclog("cancel", "last").returncode == 2
    assert list(Path().iterdir()) == [Path(".arclog")]


def test_a_failed_run_says_where(where):
    file = playbook(where, "bad", "{step: start, tool: [{name: boom, kind: python, code: 'raise ValueError(7)'}]}")
    done = arclog("run", file)
    assert done.returncode == 1
    assert "step start · task boom: exception: ValueError: 7" in done.stdout
    assert f"at {file}:3" in done.stdout
    assert f'File "{file}", line 3, in <module>' in done.stdout


def test_an_invalid_playbook_starts_nothing(where):
    done = arclog("run", "-", stdin="metadata: {name: x}\nworkflow: [{step: start, tol: {kind: noop}}]\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "<stdin>:2:" in done.stderr
    assert json.loads(arclog("list", "--json").stdout) == []


def test_a_playbook_from_standard_input(where):
    done = arclog(
        "run", "-", "--json", stdin="metadata: {name: x}\nworkflow: [{step: start, tool: {kind: noop, data: 1}}]\n"
    )
    assert json.loads(done.stdout)["result"] == 1


def test_reading_commands_create_nothing(where):
    assert arclog("list").stdout == "no runs yet in .arclog; start one with `arclog run FILE`\n"
    assert arclog("list", "--json").stdout == "[]\n"
    for command in ("show", "status", "events", "logs", "why", "resume", "cancel"):
        assert arclog(command, "last").returncode == 2
    assert list(Path().iterdir()) == []


def test_a_home_that_cannot_be_made_is_said(where):
    file = playbook(where, "one", "{step: start, tool: {kind: noop}}")
    done = arclog("run", file, "--home", "/proc/none")
    assert (done.returncode, done.stdout) == (1, "")
    assert "ARCLOG_HOME" in done.stderr


def test_a_reader_that_goes_away_is_no_error_and_the_run_goes_on(where):
    file = str(ROOT / "examples/hello.yaml")
    command = f"{' '.join(ARCLOG)} run {file} | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(arclog("status", "last", "--json").stdout)["state"] == "COMPLETED"
    command = f"{' '.join(ARCLOG)} events last --json | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1


def test_a_full_disk_behind_stdout_is_said(where):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*ARCLOG, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert "bug" not in done.stderr


def test_a_run_whose_output_finds_no_room_says_so_and_goes_on(where):
    with Path("/dev/full").open("w") as full:
        words = [*ARCLOG, "run", str(ROOT / "examples/hello.yaml"), "--json"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0
    assert "cannot write to stdout (No space left on device)" in done.stderr
    assert [event["event_type"] for event in events_of()][-1] == "playbook.processed"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_bug(where, closed):
    program = " ".join(ARCLOG)
    command = f"{program} run {ROOT}/examples/hello.yaml {closed}; {program} list {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
    assert [event["event_type"] for event in events_of()][-1] == "playbook.processed"


def test_an_empty_playbook_is_a_finding(where):
    Path("empty.yaml").write_text(" \n")
    done = arclog("run", "empty.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert "error[yaml-empty]" in done.stderr


def test_an_empty_home_is_as_good_as_none(where):
    done = arclog("run", str(ROOT / "examples/hello.yaml"), "-q", ARCLOG_HOME="")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in where.iterdir()] == [".arclog"]
    done = arclog("list", "--home", "")
    assert (done.returncode, done.stderr.strip()) == (2, "arclog: error: --home is empty; name a folder")


def test_a_workload_too_deep_to_keep_is_refused(where):
    file = playbook(where, "one", "{step: start, tool: {kind: noop, data: '{{ workload.a }}'}}")
    for text in ("a=" + "[" * 300 + "]" * 300, ".".join("a" * 3000) + "=1"):
        done = arclog("run", file, "--set", text)
        assert done.returncode == 2, done.stderr
        assert "nested deeper than 200 levels" in done.stderr


def on_a_terminal(*words: str, keys: tuple[tuple[str, bytes], ...] = (), **env: str) -> tuple[int, str]:
    """Run in a pseudo-terminal; each key is sent once its text was seen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(ARCLOG[0], [*ARCLOG, *words], {**os.environ, "TERM": "xterm", **env})
    seen = b""
    waiting_keys = list(keys)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1.0)[0]:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
        if waiting_keys and waiting_keys[0][0].encode() in seen:
            os.write(terminal, waiting_keys.pop(0)[1])
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), seen.decode()


def test_a_terminal_gets_a_tree_in_colour(where):
    code, text = on_a_terminal("run", str(ROOT / "examples/hello.yaml"))
    assert code == 0
    assert "└─" in text
    assert "\x1b[32m✓\x1b[0m start" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    code, text = on_a_terminal("run", str(ROOT / "examples/hello.yaml"), NO_COLOR="1")
    assert "[32m" not in text


def test_what_a_task_prints_cannot_act_on_the_terminal(where):
    file = playbook(where, "rude", "{step: start, tool: {kind: python, code: 'print(\"\\x1b[2J\\x07\")'}}")
    code, text = on_a_terminal("run", file)
    assert code == 0
    assert "\x1b[2J" not in text
    assert "\\x1b[2J" in text


# ── signals, death, resume ───────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_lets_go_of_a_run_that_can_be_resumed(where):
    process = started("run", waiting(where))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "cancelled" not in out
    execution_id = err.split("arclog resume ")[1].split(".")[0]
    assert f"arclog cancel {execution_id}" in err
    assert json.loads(arclog("status", execution_id, "--json").stdout)["state"] == "RUNNING"
    why = arclog("why", execution_id).stdout
    assert "no arclog process serves this run" in why
    (where / "go").touch()
    assert arclog("resume", execution_id).returncode == 0
    assert (where / "ledger").read_text() == "once\n"


def test_a_run_that_was_let_go_of_is_cancelled_by_the_command_alone(where):
    process = started("run", waiting(where))
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    assert arclog("cancel", "last").returncode == 0
    assert json.loads(arclog("status", "last", "--json").stdout)["state"] == "CANCELLED"
    assert arclog("resume", "last").returncode == 3


def test_ctrl_c_on_a_terminal_keeps_the_screen_whole(where):
    code, text = on_a_terminal("run", waiting(where), keys=(("here", b"\x03"),))
    assert code == 130
    assert "arclog resume" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")


def test_sigterm_leaves_a_run_that_can_be_resumed(where):
    process = started("run", waiting(where))
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 143
    execution_id = err.split("arclog resume ")[1].split(".")[0]
    assert json.loads(arclog("status", execution_id, "--json").stdout)["state"] == "RUNNING"
    (where / "go").touch()
    done = arclog("resume", execution_id)
    assert done.returncode == 0, done.stderr
    assert (where / "ledger").read_text() == "once\n"
    assert "✓ start" not in done.stdout
    assert "✓ wait" in done.stdout


def test_a_killed_run_is_resumed_without_doing_finished_steps_again(where):
    process = started("run", waiting(where))
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    (where / "go").touch()
    summary = summary_of("resume", "last")
    assert summary["result"] == {"ok": True}
    assert (where / "ledger").read_text() == "once\n"
    assert sum(event["event_type"] == "playbook.finished" for event in events_of()) == 1


def test_a_run_that_goes_on_is_not_resumed_but_can_be_followed_and_cancelled_from_outside(where):
    process = started("run", waiting(where))
    done = arclog("resume", "last")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be resumed" in done.stderr
    follower = subprocess.Popen([*ARCLOG, "events", "last", "--json", "--follow"], stdout=subprocess.PIPE, text=True)
    assert arclog("cancel", "last", "--reason", "enough").returncode == 0
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    assert "reason: enough" in out
    followed, _ = follower.communicate(timeout=PATIENCE_S)
    assert any(json.loads(line)["event_type"] == "execution.cancelled" for line in followed.splitlines())


def test_pause_and_resume_from_another_terminal(where):
    process = started("run", waiting(where))
    assert arclog("pause", "last", "--reason", "lunch").returncode == 0
    assert "is pausing" in arclog("why", "last").stdout
    (where / "go").touch()
    until(lambda: "has been paused since" in arclog("why", "last").stdout)
    assert "lunch" in arclog("why", "last").stdout
    assert process.poll() is None
    assert arclog("pause", "last").returncode == 2
    done = arclog("resume", "last")
    assert (done.returncode, "resumed on worker" in done.stdout) == (0, True), done.stderr
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert "‖ paused" in out
    types = [event["event_type"] for event in events_of()]
    assert (types.count("playbook.paused"), types.count("playbook.resumed")) == (1, 1)


def test_ctrl_c_leaves_a_paused_run_paused(where):
    process = started("run", waiting(where))
    assert arclog("pause", "last").returncode == 0
    (where / "go").touch()
    until(lambda: "has been paused since" in arclog("why", "last").stdout)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert "arclog resume" in err
    assert json.loads(arclog("list", "--json").stdout)[0]["paused"] is True
    assert "running (paused)" in arclog("show", "last").stdout
    assert summary_of("resume", "last")["result"] == {"ok": True}
    assert (where / "ledger").read_text() == "once\n"


def test_an_emergency_stop_kills_what_ignores_a_polite_word(where):
    file = where / "stubborn.yaml"
    tool = {"kind": "shell", "command": "trap '' TERM; echo here; while true; do sleep 0.1; done"}
    file.write_text(json.dumps({"metadata": {"name": "stubborn"}, "workflow": [{"step": "start", "tool": tool}]}))
    process = started("run", file.name, ARCLOG_TASKS_KILL_GRACE_S="3600")
    assert arclog("cancel", "last", "--now").returncode == 0
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3


def test_one_run_at_a_time_in_two_processes(where):
    file = where / waiting(where)
    file.write_text(file.read_text().replace("workflow:", "executor: {spec: {concurrency: {max: 1}}}\nworkflow:"))
    first = started("run", file.name)
    second = subprocess.Popen([*ARCLOG, "run", file.name, "--json"], stdout=subprocess.PIPE, text=True)
    until(lambda: len(json.loads(arclog("list", "--json").stdout)) == 2)
    queued, running = json.loads(arclog("list", "--json").stdout)
    assert (queued["state"], running["state"]) == ("PENDING", "RUNNING")
    assert f"slot held by execution {running['execution_id']}" in arclog("why", queued["execution_id"]).stdout
    (where / "go").touch()
    first.communicate(timeout=PATIENCE_S)
    assert json.loads(second.communicate(timeout=PATIENCE_S)[0])["state"] == "COMPLETED"
    ends = {
        row["execution_id"]: (row["started_at"], row["ended_at"]) for row in json.loads(arclog("list", "--json").stdout)
    }
    assert ends[running["execution_id"]][1] <= ends[queued["execution_id"]][0]


def test_an_ended_run_is_run_again(where):
    file = playbook(where, "one", "{step: start, tool: {kind: noop, data: '{{ workload.n }}'}}")
    first = summary_of("run", file, "--set", "n=5")
    second = summary_of("retry", "last")
    assert (second["result"], second["execution_id"] != first["execution_id"]) == (5, True)
    assert events_of(second["execution_id"])[0]["payload"]["original_run_id"] == first["run_id"]


def test_two_runs_on_one_home_do_not_disturb_each_other(where):
    file = str(ROOT / "examples/loop.yaml")
    runs = [subprocess.Popen([*ARCLOG, "run", file, "--json"], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    results = [json.loads(run.communicate(timeout=PATIENCE_S)[0]) for run in runs]
    assert {result["result"] for result in results} == {EXAMPLES["loop"]}
    assert len(json.loads(arclog("list", "--json").stdout)) == 4
