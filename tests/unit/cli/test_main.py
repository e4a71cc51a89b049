"""Commands over a fake Api: what they print and how they exit."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import time
from pathlib import Path

import pytest

from arclog.cli import main as program
from arclog.model.errors import Conflict, Finding, InvariantBroken, PlaybookError, Position, StoreUnavailable
from arclog.ports.storage.task_logs import LogFilter
from tests.unit.cli.fake import ID, RUN_ID, FakeRun, completed, failed, refused, steps

SUMMARY_KEYS = [
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
]
STATUS_KEYS = [
    "execution_id",
    "state",
    "current_step",
    "started_at",
    "ended_at",
    "terminal_event",
    "completion_inferred",
]


# ── run ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_run_json_prints_exactly_the_summary(arclog, api, playbook, home):
    api.next = completed("start", ctx={"a": 1}, result=[1])
    Path(playbook).write_text(Path(playbook).read_text() + "workload: {a: {}}\n")
    done = arclog("run", playbook, "--json", "--set", "a.b=1")
    assert (done.code, done.err) == (0, "")
    assert done.out.count("\n") == 1
    summary = json.loads(done.out)
    assert list(summary) == SUMMARY_KEYS
    assert summary["execution_id"] == ID
    assert summary["steps"] == {"start": {"status": "done", "runs": 1}}
    assert (summary["ctx"], summary["result"], summary["error"]) == ({"a": 1}, [1], None)
    assert api.requests[0].workload == {"a": {"b": 1}}
    assert api.requests[0].file == playbook
    assert home.embedded.worked_on == [ID]
    assert home.opened == [False]


def test_run_prints_plain_lines_to_a_pipe(arclog, api, playbook):
    api.next = completed("start", "second", result={"n": 1})
    api.next.shown = 0
    api.next.log("start", "hello\x1b[31m")
    done = arclog("run", playbook)
    assert done.code == 0
    assert "\x1b" not in done.out
    assert done.out.splitlines() == [
        "  start │ hello\\x1b[31m",
        "✓ start  0.02 s",
        "✓ second  0.02 s",
        '{"n":1}',
        f"✓ demo completed in 0.12 s · execution {ID}",
    ]


def test_run_says_what_failed_where_and_what_next(arclog, api, playbook):
    api.next = failed()
    done = arclog("run", playbook)
    assert done.code == 1
    assert f"✗ demo failed in 0.12 s · execution {ID}" in done.out
    assert "step start · task boom · attempt 2: exception: KeyError: 'x\\x1b[2J'" in done.out
    assert "at demo.yaml:5:9  - name: boom" in done.out
    assert "  Traceback\n" in done.out
    for command in ("why", "logs"):
        assert f"arclog {command} {ID}" in done.out
    assert "\x1b" not in done.out


def test_a_failed_run_in_json_is_exit_code_1_and_still_one_object(arclog, api, playbook):
    api.next = failed()
    done = arclog("run", playbook, "--json")
    assert (done.code, done.err) == (1, "")
    assert json.loads(done.out)["error"]["kind"] == "exception"


def test_quiet_prints_the_result_alone(arclog, api, playbook):
    api.next = completed("start", result="just this")
    assert arclog("run", playbook, "--quiet").out == "just this\n"
    api.next = failed()
    done = arclog("run", playbook, "-q")
    assert done.code == 1
    assert "demo failed" in done.out
    assert "arclog why" not in done.out


def test_a_cancelled_run_is_exit_code_3(arclog, api, playbook):
    api.next = FakeRun(("execution.cancelled", {}), state="CANCELLED", error={"kind": "cancelled", "message": "by me"})
    done = arclog("run", playbook)
    assert done.code == 3
    assert "reason: by me" in done.out


def test_a_worker_that_dies_ends_the_command_not_in_silence(arclog, api, playbook, home):
    api.next = FakeRun(*steps("start"))
    home.death = StoreUnavailable("the disk is full")

    async def never(*_args: object, **_more: object) -> None:
        await asyncio.get_running_loop().create_future()

    api.ended = never
    for words in (("run", playbook), ("run", playbook, "--json")):
        done = arclog(*words)
        assert (done.code, done.out) == (1, "")
        assert "the disk is full" in done.err


class _Gone(io.StringIO):
    """A stream whose reader has gone away."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self.descriptor = descriptor

    def write(self, _text: str) -> int:
        raise BrokenPipeError

    def fileno(self) -> int:
        return self.descriptor


def test_a_run_goes_on_when_nobody_reads_its_output(api, playbook, monkeypatch, tmp_path):
    with (tmp_path / "file").open("w") as file:
        monkeypatch.setattr(sys, "stdout", _Gone(file.fileno()))
        api.next = failed()
        api.next.shown = 0
        assert program.command(["run", playbook]) == 1, "the exit code is that of the run, which was watched to its end"
        api.runs = {ID: completed("start")}
        assert program.command(["events", ID]) == 0


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_invalid_playbook_is_exit_code_2_with_all_findings(arclog, api, playbook):
    findings = [
        Finding("unknown-key", "step has no key 'tol'", Position(1, 3), hint="did you mean tool?"),
        Finding("style", "not said", Position(2, 1), "warning"),
    ]
    api.refusal = PlaybookError(findings, "a: 1\nb: 2\n", playbook)
    done = arclog("run", playbook)
    assert (done.code, done.out) == (2, "")
    assert "demo.yaml:1:3: error[unknown-key] step has no key 'tol'" in done.err
    assert "^" in done.err
    assert "did you mean tool?" in done.err
    assert "not said" not in done.err
    error = json.loads(arclog("run", playbook, "--json").err)["error"]
    assert set(error) == {"kind", "message", "findings"}
    assert set(error["findings"][0]) == {"file", "line", "column", "severity", "code", "message", "hint"}


@pytest.mark.parametrize(
    "error, code, text",
    [
        (refused(), 2, "the workload is too large"),
        (StoreUnavailable("the disk is full"), 1, "the disk is full"),
        (Conflict("run 7 has not ended"), 2, "run 7 has not ended"),
        (InvariantBroken("two heads"), 1, "this is a bug in arclog"),
        (RuntimeError("boom"), 1, "this is a bug in arclog"),
        (PermissionError(13, "Permission denied", "x"), 1, "Permission denied"),
    ],
)
def test_every_error_is_a_message_and_a_code(arclog, api, playbook, error, code, text):
    api.refusal = error
    done = arclog("run", playbook)
    assert (done.code, done.out) == (code, "")
    assert text in done.err
    assert "Traceback" not in done.err
    done = arclog("run", playbook, "--json")
    assert (done.code, done.out) == (code, "")
    assert set(json.loads(done.err)["error"]) <= {"kind", "message", "hint"}


def test_a_bug_shows_its_traceback_when_asked(arclog, api, playbook, monkeypatch):
    monkeypatch.setenv("ARCLOG_DEBUG", "1")
    api.refusal = RuntimeError("boom")
    assert "Traceback" in arclog("run", playbook).err


@pytest.mark.parametrize("raw", ["x", "-5", "0", "1.5", "9" * 19, "9" * 30, "²", "LAST", ""])
@pytest.mark.parametrize("command", ["show", "status", "state", "events", "logs", "why", "cancel", "resume"])
def test_a_malformed_id_is_exit_code_2(arclog, home, command, raw):
    done = arclog(command, raw)
    assert (done.code, done.out) == (2, "")
    assert home.opened == []


@pytest.mark.parametrize("command", ["show", "status", "state", "events", "logs", "why", "cancel", "resume"])
def test_an_unknown_id_and_no_runs_are_exit_code_2(arclog, home, command):
    assert "no execution has the id 123" in arclog(command, "123").err
    assert arclog(command, "123").code == 2
    assert "no runs yet" in arclog(command, "last").err
    done = arclog(command, "last", "--home", "elsewhere")
    assert (done.code, done.out) == (2, "")
    assert "no runs yet in elsewhere" in done.err
    assert not Path("elsewhere").exists()


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_list(arclog, api, home):
    api.runs = {"11": completed("start"), "12": failed(), "9": FakeRun(("playbook.started", {}))}
    done = arclog("list")
    assert [line.split()[0] for line in done.out.splitlines()] == ["EXECUTION", "12", "11", "9", "at"]
    assert "✗ failed" in done.out
    rows = json.loads(arclog("list", "--json").out)
    assert [row["execution_id"] for row in rows] == ["12", "11", "9"]
    assert list(rows[0]) == ["execution_id", "run_id", "name", "path", "version", "state", "current_step", "created_at",
                             "started_at", "ended_at", "error", "parent", "paused", "warning", "approvals", "imported",
                             "waiting", "origin"]  # fmt: skip
    assert [row["execution_id"] for row in json.loads(arclog("list", "--json", "--state", "RUNNING").out)] == ["9"]
    assert len(json.loads(arclog("list", "--json", "--limit", "2").out)) == 2
    assert arclog("list", "--state", "cancelled").out == "no cancelled runs\n"
    assert all(home.opened)


def test_a_long_list_is_read_in_pages(arclog, api):
    api.runs = {str(number): completed("start") for number in range(1, 1203)}
    rows = json.loads(arclog("list", "--json", "--limit", "1100").out)
    assert [int(row["execution_id"]) for row in rows] == list(range(1202, 102, -1))


def test_list_where_there_is_no_home_creates_nothing(arclog, home):
    done = arclog("list", "--home", "elsewhere")
    assert done.code == 0
    assert done.out == "no runs yet in elsewhere; start one with `arclog run FILE`\n"
    assert arclog("list", "--home", "elsewhere", "--json").out == "[]\n"
    assert home.opened == []
    assert list(Path().iterdir()) == [Path(".arclog")]


def test_show(arclog, api):
    api.runs = {ID: failed()}
    done = arclog("show", "last")
    assert done.code == 0
    for text in ("demo", ID, "✗ failed", "start", "KeyError", f"arclog logs {ID}", "at demo.yaml:5:9"):
        assert text in done.out
    assert list(json.loads(arclog("show", ID, "--json").out)) == SUMMARY_KEYS


def test_show_of_a_run_that_goes_on(arclog, api):
    api.runs = {ID: FakeRun(*list(steps("start"))[:3], steps={"start": ("running", 1)}, ctx={"k": [1]})}
    out = arclog("show", ID).out
    assert "not yet" in out
    assert '{"k":[1]}' in out
    assert f"arclog resume {ID}" in out


def test_status_is_exactly_seven_fields(arclog, api):
    api.runs = {ID: completed("start")}
    assert list(json.loads(arclog("status", ID, "--json").out)) == STATUS_KEYS
    lines = arclog("status", ID).out.splitlines()
    assert [line.split()[0] for line in lines] == STATUS_KEYS


def test_events(arclog, api):
    api.runs = {ID: failed()}
    rows = [json.loads(line) for line in arclog("events", ID, "--json").out.splitlines()]
    assert [row["seq"] for row in rows] == [1, 2, 3, 4, 5]
    assert {"event_id", "event_type", "timestamp", "execution_id", "status", "payload"} <= set(rows[0])
    assert len(arclog("events", ID, "--json", "--after", "3").out.splitlines()) == 2
    only = arclog("events", ID, "--json", "--type", "step.failed", "--type", "task.failed").out
    assert [json.loads(line)["event_type"] for line in only.splitlines()] == ["task.failed", "step.failed"]
    text = arclog("events", ID).out
    assert "start/boom#2" in text
    assert "exception: KeyError: 'x\\x1b[2J'" in text
    assert arclog("events", ID, "--after", "99").out == ""


def names(done, key="event_type"):
    return [json.loads(line)[key] for line in done.out.splitlines()]


def test_events_in_a_dialect(arclog, api):
    api.runs = {ID: failed()}
    rows = [json.loads(line) for line in arclog("events", ID, "--json", "--dialect", "run").out.splitlines()]
    assert [row["eventType"] for row in rows] == ["RunStarted", "StepStarted", "StepFailed", "RunFailed"]
    assert (rows[0]["runId"], rows[0]["planId"], rows[0]["planVersion"]) == (RUN_ID, "demo", "1")
    assert names(arclog("events", ID, "--json", "--dialect", "lifecycle")) == [
        "playbook.initialized", "step.scheduled", "call.error", "step.exit", "playbook.failed",
    ]  # fmt: skip
    assert names(arclog("events", ID, "--json", "--dialect", "wire"))[-1] == "playbook.failed"
    assert names(arclog("events", ID, "--json", "--dialect", "legacy"))[2] == "tool.processed"
    text = arclog("events", ID, "--dialect", "run").out
    assert "StepFailed" in text
    assert "KeyError: KeyError: 'x\\x1b[2J'" in text
    assert "step.exit" in arclog("events", ID, "--dialect", "lifecycle").out


def test_events_behind_a_cursor_are_told_as_from_the_beginning(arclog, api):
    api.runs = {ID: failed()}
    for dialect in ("canonical", "lifecycle", "run", "wire", "legacy"):
        whole = arclog("events", ID, "--json", "--dialect", dialect).out.splitlines()
        seqs = [json.loads(line) for line in whole]
        behind = [
            line
            for line, row in zip(whole, seqs, strict=True)
            if row.get("seq", row.get("runSeq", row.get("meta", {}).get("seq"))) > 3
        ]
        assert behind
        assert arclog("events", ID, "--json", "--dialect", dialect, "--after", "3").out.splitlines() == behind


def test_a_type_may_be_named_in_any_dialect(arclog, api):
    api.runs = {ID: failed()}
    assert names(arclog("events", ID, "--json", "--type", "call.error")) == ["task.failed"]
    assert names(arclog("events", ID, "--json", "--type", "playbook.completed")) == []
    assert names(arclog("events", ID, "--json", "--type", "RunFailed")) == ["playbook.finished"]
    output = arclog("events", ID, "--json", "--dialect", "run", "--type", "step.failed")
    assert names(output, "eventType") == ["StepFailed"]
    wrong = arclog("events", ID, "--type", "StepFaild")
    assert wrong.code == 2
    assert "did you mean StepFailed?" in wrong.err
    assert arclog("events", ID, "--dialect", "klingon").code == 2


def test_the_dialects_that_can_be_asked_for_are_all_there_are() -> None:
    from arclog.cli.runs.streams import _DIALECTS
    from arclog.dialects.names import DIALECTS

    assert list(_DIALECTS) == list(DIALECTS)


def test_following_a_dialect_tells_all_of_it_in_the_end(arclog, api):
    api.runs = {ID: completed("start", "second")}
    whole = arclog("events", ID, "--json", "--dialect", "lifecycle").out
    api.runs[ID].shown = 1
    assert arclog("events", ID, "--json", "--dialect", "lifecycle", "--follow").out == whole


def test_schemas(arclog, home):
    listed = arclog("schema")
    assert listed.code == 0
    for name in ("playbook", "events", "run", "wire", "status"):
        assert name in listed.out
        assert json.loads(arclog("schema", name).out)["$schema"].endswith("2020-12/schema")
    wrong = arclog("schema", "evnts")
    assert wrong.code == 2
    assert "did you mean events?" in wrong.err
    assert home.opened == []


def test_all_pages_of_events_are_printed(arclog, api):
    api.runs = {ID: completed(*(f"s{number}" for number in range(800)))}
    rows = arclog("events", ID, "--json").out.splitlines()
    assert [json.loads(row)["seq"] for row in rows] == list(range(1, 3203))


def test_following_events_goes_on_to_the_end_of_the_run(arclog, api):
    run = completed("start", "second")
    run.shown = 1
    api.runs = {ID: run}
    rows = arclog("events", ID, "--json", "--follow").out.splitlines()
    assert [json.loads(row)["seq"] for row in rows] == list(range(1, 11))


def test_logs(arclog, api):
    run = completed("start", "second")
    run.log("start", "one\ntwo\n")
    run.log("second", "bad\x07", stream="stderr", attempt=2)
    api.runs = {ID: run}
    lines = arclog("logs", ID).out.splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "start/start_task │ one",
        "start/start_task │ two",
        "second/second_task#2 │ bad\\x07",
    ]
    assert len(arclog("logs", ID, "--step", "second").out.splitlines()) == 1
    rows = [json.loads(line) for line in arclog("logs", ID, "--json", "--follow").out.splitlines()]
    assert [row["position"] for row in rows] == [1, 2]


def test_what_logs_are_asked_for(arclog, api):
    api.runs = {ID: completed("start")}
    words = (
        "--step start --task fetch --iteration 3.1 --stream stderr --stream log --grep err --since 2026-01-31T12:00Z"
    )
    assert arclog("logs", ID, *words.split()).code == 0
    at = 1_769_860_800_000_000
    assert api.log_filter == LogFilter("start", "fetch", (3, 1), ("stderr", "log"), "err", at)
    arclog("logs", ID, "--since", "90m")
    assert 0 < time.time() - api.log_filter.since / 1e6 - 5400 < 60
    arclog("logs", ID)
    assert api.log_filter == LogFilter()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--since", "yesterday"), "'yesterday' is not a time"),
        (("--since", "10"), "'10' is not a time"),
        (("--iteration", "3.x"), "'3.x' is not an iteration"),
        (("--regex", "(a"), "'(a' is not a regular expression"),
        (("--stream", "stdin"), "invalid choice: 'stdin'"),
    ],
)
def test_logs_that_make_no_sense(arclog, api, words, said):
    api.runs = {ID: completed("start")}
    done = arclog("logs", ID, *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_logs_by_regular_expression_iteration_and_progress(arclog, api):
    run = completed("start")
    run.log("start", "code 12", iteration="3.1")
    run.log("start", "code x")
    run.log("start", '{"done":12,"total":48,"unit":"rows"}', stream="progress")
    run.log("start", "not what it should be", stream="progress")
    api.runs = {ID: run}
    assert [line.split(" ", 1)[1] for line in arclog("logs", ID, "--regex", r"code \d+$").out.splitlines()] == [
        "start[3.1]/start_task │ code 12"
    ]
    lines = arclog("logs", ID, "--stream", "progress").out.splitlines()
    assert [line.partition("│ ")[2] for line in lines][2:] == ["12/48 rows", "not what it should be"]


def test_why(arclog, api):
    api.runs = {ID: FakeRun(("playbook.started", {}))}
    out = arclog("why", ID).out
    assert "two steps wait" in out
    assert "start: waits for attempt 2" in out
    answer = json.loads(arclog("why", ID, "--json").out)
    assert list(answer) == ["execution_id", "state", "summary", "waits", "cause", "next", "problems"]
    assert list(answer["waits"][0]) == ["what", "text", "step", "until", "key", "signal", "child"]


def test_state(arclog, api, home):
    api.runs = {ID: completed("start")}
    head = len(api.runs[ID].events)
    answer = json.loads(arclog("state", ID, "--at", "1", "--json").out)
    assert list(answer) == ["execution_id", "at", "head", "event_type", "timestamp", "state", "tokens", "step_runs",
                            "commands", "steps", "ctx", "result", "error", "result_ref"]  # fmt: skip
    assert (answer["at"], answer["head"]) == (1, head)
    assert "nothing has happened yet" in arclog("state", ID, "--at", "0").out
    assert f"event {head} of {head}" in arclog("state", ID).out
    beyond = arclog("state", ID, "--at", "999")
    assert (beyond.code, beyond.out) == (0, arclog("state", ID).out)
    assert f"the run has {head} events so far" in beyond.err
    assert arclog("state", ID, "--at", "999", "--quiet").err == ""
    assert all(home.opened)


@pytest.mark.parametrize("raw", ["-1", "x", "1.5", "", "1e3", "²", "9" * 19])
def test_state_at_nonsense_is_exit_code_2(arclog, home, raw):
    done = arclog("state", ID, f"--at={raw}")
    assert (done.code, done.out) == (2, "")
    assert "is not the seq of an event" in done.err
    assert home.opened == []


# ── cancel, resume ───────────────────────────────────────────────────────────────────────────────────────────────


def test_cancel(arclog, api, home):
    api.runs = {ID: FakeRun(("playbook.started", {}))}
    done = arclog("cancel", ID, "--reason", "enough")
    assert done.code == 0
    assert api.cancelled == [(ID, "enough")]
    assert home.opened == [False]
    assert json.loads(arclog("cancel", ID, "--json").out)["state"] == "CANCELLED"
    api.runs = {ID: completed("start")}
    assert arclog("cancel", ID).code == 2
    assert "has ended (COMPLETED)" in arclog("cancel", ID).err


def test_signals_reach_the_run_with_all_they_carry(arclog, api, home):
    api.runs = {ID: FakeRun(("playbook.started", {}))}
    words = {
        "pause": ("PAUSE", "", None),
        "skip start": ("SKIP_STEP", "start", None),
        "retry start": ("RETRY_STEP", "start", None),
        "approve --step start --data [1]": ("APPROVE", "start", [1]),
        "reject": ("REJECT", "", None),
        "signal go --step start --data 1": ("go", "start", 1),
        "signal UPDATE_PARAMS": ("UPDATE_PARAMS", "", None),
    }
    for line, (signal, step, data) in words.items():
        command, *others = line.split()
        done = arclog(command, ID, *others, "--reason", "why not", "--signal-id", "s-1", "--json")
        assert done.code == 0
        assert json.loads(done.out)["signal"] == signal
        sent = api.signals[-1]
        assert (sent.signal, sent.step, sent.data, sent.reason, sent.signal_id) == (
            signal,
            step,
            data,
            "why not",
            "s-1",
        )
        assert sent.by
    assert "no task is waiting for it yet" in arclog("signal", ID, "go").out
    assert "recorded" in arclog("signal", ID, "UPDATE_PARAMS").out
    assert json.loads(arclog("signal", ID, "go", "--json").out)["waiting"] is False
    assert arclog("signal", ID, "go", "--data", "{").code == 2
    assert arclog("signal", ID, "RETRY_RUN").code == 2
    api.runs = {ID: completed("start")}
    done = arclog("pause", ID)
    assert done.code == 2
    assert "has ended (COMPLETED)" in done.err


def test_resume_of_a_paused_run(arclog, api, home):
    run = completed("start", result="end")
    run.shown = 1
    run.paused = True
    api.runs = {ID: run}
    home.elsewhere = "host-7-ab"
    done = arclog("resume", ID)
    assert done.code == 0
    assert "resumed on worker host-7-ab" in done.out
    assert home.embedded.worked_on == []
    assert [sent.signal for sent in api.signals] == ["RESUME"]
    home.elsewhere = ""
    run.paused = True
    done = arclog("resume", ID)
    assert (done.code, home.embedded.worked_on) == (0, [ID])
    assert "completed in" in done.out


def test_resume_goes_on_and_tells_only_what_is_new(arclog, api, home):
    run = completed("start", "second", result="end")
    run.shown = 6
    run.log("start", "old")
    api.runs = {ID: run}
    done = arclog("resume", "last")
    assert done.code == 0
    assert done.out.splitlines() == ["✓ second  0.02 s", "end", f"✓ demo completed in 0.12 s · execution {ID}"]
    assert home.embedded.worked_on == [ID]


def test_resume_json(arclog, api):
    run = failed()
    run.shown = 2
    api.runs = {ID: run}
    done = arclog("resume", ID, "--json")
    assert done.code == 1
    assert list(json.loads(done.out)) == SUMMARY_KEYS


@pytest.mark.parametrize(
    "run, code", [(completed("start"), 0), (failed(), 1), (FakeRun(("execution.cancelled", {}), state="CANCELLED"), 3)]
)
def test_a_run_that_is_over_is_only_shown(arclog, api, home, run, code):
    api.runs = {ID: run}
    done = arclog("resume", ID)
    assert done.code == code
    assert "has already ended" in done.out
    assert home.embedded.worked_on == []
    assert list(json.loads(arclog("resume", ID, "--json").out)) == SUMMARY_KEYS


def test_a_run_that_somebody_else_runs_is_not_resumed(arclog, api, home):
    home.held = "worker 7 runs it"
    api.runs = {ID: FakeRun(("playbook.started", {}))}
    done = arclog("resume", ID)
    assert done.code == 2
    assert "worker 7 runs it" in done.err
    assert home.embedded.worked_on == []


# ── check, plan ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_check(arclog, playbook):
    Path("bad.yaml").write_text("metadata: {name: demo}\nworkflow:\n  - step: start\n    tol: {kind: noop}\n")
    assert arclog("check", playbook).code == 0
    done = arclog("check", playbook, "bad.yaml")
    assert done.code == 2
    assert "bad.yaml:4:5" in done.out
    assert "did you mean tool?" in done.out
    assert "✗ 2 files: 2 errors" in done.out
    rows = json.loads(arclog("check", "bad.yaml", "--json").out)
    assert all(list(row) == ["file", "line", "column", "severity", "code", "message", "hint"] for row in rows)
    assert json.loads(arclog("check", playbook, "--json").out) == []
    assert list(Path(".arclog").iterdir()) == [Path(".arclog/arclog.db")]


def test_check_looks_for_the_files_that_a_playbook_calls(arclog):
    Path("parts").mkdir()
    Path("caller.yaml").write_text(
        "metadata: {name: c}\nworkflow:\n  - step: start\n    tool:\n      - {kind: playbook, file: parts/child.yaml}\n"
    )
    done = arclog("check", "caller.yaml")
    assert done.code == 2
    assert "caller.yaml:5:9: error[missing-file] file 'parts/child.yaml' does not exist" in done.out
    Path("parts/child.yaml").write_text("metadata: {name: k}\nworkflow: [{step: start, tool: {kind: noop}}]\n")
    assert arclog("check", "caller.yaml").code == 0


def test_check_of_what_is_not_even_yaml(arclog):
    Path("x.yaml").write_bytes(b"a: [\xff")
    done = arclog("check", "x.yaml", "--json")
    assert done.code == 2
    assert json.loads(done.out)[0]["severity"] == "error"


def test_plan(arclog, playbook):
    assert "start" in arclog("plan", playbook).out
    assert arclog("plan", playbook, "--format", "mermaid").out.startswith(("flowchart", "graph", "stateDiagram"))
    assert json.loads(arclog("plan", playbook, "--json").out) == json.loads(
        arclog("plan", playbook, "--format", "json").out
    )
    Path("bad.yaml").write_text("workflow: 1\n")
    done = arclog("plan", "bad.yaml")
    assert (done.code, done.out) == (2, "")
