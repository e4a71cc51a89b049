"""The tree: events in, lines out."""

from __future__ import annotations

import asyncio
import io

from arclog.cli.progress import Progress, tree
from arclog.cli.render import Out
from arclog.cli.watch import _Reader
from tests.unit.cli.fake import ID, T0, FakeApi, FakeRun, steps

OUT = Out(stream=io.StringIO())


def shown(run: FakeRun, *, upto: int | None = None, after_us: int = 0, lines: int = 40, columns: int = 80) -> list[str]:
    progress = Progress()
    for event in run.events[:upto]:
        progress.apply(event)
    return tree(progress, T0 + after_us, columns, lines, OUT)


def test_steps_in_order_of_their_first_run_with_durations():
    run = FakeRun(*steps("start", "second"))
    assert shown(run) == ["├─ ✓ start   0.02 s", "└─ ✓ second  0.02 s"]


def test_a_running_step_shows_its_task_attempt_and_time():
    run = FakeRun(
        *list(steps("start"))[:3],
        ("task.attempt.started", {"step": "start", "run": 1, "task": "start_task", "task_run": 1, "attempt": 2}),
    )
    [line] = shown(run, after_us=1_510_000)
    assert line.startswith("└─ ")
    assert line.endswith("start  1.50 s  start_task · attempt 2")


def test_a_retry_that_is_waited_for_says_how_long():
    retry = {"action": {"do": "retry"}, "due": T0 + 2_000_000}
    run = FakeRun(
        *list(steps("start"))[:3],
        ("policy.task.evaluated", {"step": "start", "run": 1, "task": "start_task", "payload": retry}),
    )
    assert "retry in 1.00 s" in shown(run, after_us=1_000_000)[0]


def test_a_step_that_ran_again_shows_how_often():
    again = [(kind, {**fields, "run": 2}) for kind, fields in steps("start")]
    assert shown(FakeRun(*steps("start"), *again)) == ["└─ ✓ start  ×2  0.02 s"]


def test_a_loop_has_a_bar_with_rate_and_rest_and_then_a_count():
    where = {"step": "start", "run": 1}
    done = [("loop.iteration.done", {**where, "iteration": (index,)}) for index in range(12)]
    events = [("step.scheduled", where), ("loop.started", {**where, "payload": {"total": 48}}), *done]
    ended = [("loop.done", {**where, "payload": {"total": 48, "ok": 46, "failed": 2}}), ("step.done", where)]
    run = FakeRun(*events, *ended)
    lines = shown(run, upto=len(events), after_us=1_210_000)
    assert lines[1] == "     ██████░░░░░░░░░░░░░░░░░░ 12/48 · 10/s · 3.60 s left"
    [line] = shown(run)
    assert line.endswith("48/48 items, 2 failed")


def test_a_failed_step_says_why():
    error = {"kind": "timeout", "message": "too\nslow \x1b[1m"}
    run = FakeRun(
        ("step.scheduled", {"step": "a", "run": 1}),
        ("step.failed", {"step": "a", "run": 1, "payload": {"error": error}}),
    )
    assert shown(run) == ["└─ ✗ a  0.01 s  timeout: too slow \\x1b[1m"]


def test_what_was_open_when_the_run_ended_is_cancelled():
    run = FakeRun(*list(steps("start"))[:3], ("execution.cancelled", {}))
    assert shown(run) == ["└─ ⊘ start"]


def test_a_denied_step_is_skipped():
    run = FakeRun(
        *steps("start"), ("policy.admit.evaluated", {"step": "b", "status": "skipped", "payload": {"allow": False}})
    )
    assert shown(run)[1] == "└─ – b"


def test_a_thousand_steps_fit_the_screen_and_running_ones_stay():
    first = list(steps("slow"))[:3]
    run = FakeRun(*first, *(event for number in range(1000) for event in steps(f"s{number}")))
    lines = shown(run, lines=20)
    assert len(lines) == 20
    assert lines[0] == "├─ … 982 more"
    assert "slow" in lines[1]
    assert "s999" in lines[-1]


def test_lines_never_pass_the_edge():
    name = "s" * 128
    error = {"kind": "exception", "message": "m" * 500}
    run = FakeRun(
        ("step.scheduled", {"step": name, "run": 1}),
        ("step.failed", {"step": name, "run": 1, "payload": {"error": error}}),
    )
    for columns in (60, 80, 200):
        assert all(len(line) <= columns for line in shown(run, columns=columns))


def test_of_a_long_backlog_only_the_latest_events_are_read_in_full():
    where = {"step": "start", "run": 1}
    many = [("loop.iteration.done", {**where, "iteration": (index,)}) for index in range(9000)]
    run = FakeRun(("step.scheduled", where), ("loop.started", {**where, "payload": {"total": 10_000}}), *many)
    api = FakeApi({ID: run})
    reader = _Reader(api, ID)
    asyncio.run(reader.read(len(run.events)))
    loop = reader.progress.steps["start"].loop
    assert loop is not None
    assert loop.done == 9000
    assert api.handed_out <= 2 * 2000 + 2


def test_an_end_within_the_backlog_is_told_once():
    run = FakeRun(*(event for number in range(1500) for event in steps(f"s{number}")))
    reader = _Reader(FakeApi({ID: run}), ID)
    for _ in range(3):
        asyncio.run(reader.read(len(run.events)))
    assert [end[0] for end in reader.progress.ends] == [f"s{number}" for number in range(1500)]
