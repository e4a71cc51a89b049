"""The tree: events in, lines out."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest

from arclog.cli.render import Out
from arclog.cli.runs.progress import Progress, tree
from arclog.cli.runs.streams import event_line
from arclog.cli.runs.watch import _Reader
from arclog.model.ids import timestamp
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


def test_what_was_only_said_is_not_shown_as_done():
    reported: list[tuple[str, dict[str, Any]]] = [
        ("step.failed", {"step": "second", "run": 1, "informative": True}),
        ("playbook.finished", {"informative": True}),
    ]
    run = FakeRun(*list(steps("start", "second"))[:-1], *reported)
    assert shown(run) == shown(FakeRun(*list(steps("start", "second"))[:-1]))
    assert event_line(run.events[-1], OUT).endswith("(informative)")


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
    assert line.endswith("46 ok, 2 failed")


def reporting(*reports: tuple[int, dict[str, object]], **fields: object) -> list[dict[str, object]]:
    where = {"step": "start", "step_run": 1, "task": "start_task", "task_run": 1, "attempt": 1, "iteration": None}
    return [
        {**where, "stream": "progress", "text": json.dumps(text), "timestamp": timestamp(T0 + at), **fields}
        for at, text in reports
    ]


def with_reports(run: FakeRun, lines: list[dict[str, object]], columns: int = 80) -> list[str]:
    progress = Progress()
    for event in run.events:
        progress.apply(event)
    for line in lines:
        progress.advance(line)
    return tree(progress, T0 + 9_000_000, columns, 40, OUT)


IN_FLIGHT = (
    *list(steps("start"))[:3],
    ("task.started", {"step": "start", "run": 1, "task": "start_task", "task_run": 1, "attempt": 1}),
)


def test_a_task_that_says_how_far_it_is_has_a_bar_with_rate_and_rest():
    lines = reporting(
        (0, {"done": 0, "total": 48, "unit": "rows"}), (2_000_000, {"done": 12, "total": 48, "unit": "rows"})
    )
    [_, bar] = with_reports(FakeRun(*IN_FLIGHT), lines)
    assert bar == "     ██████░░░░░░░░░░░░░░░░░░ 12/48 rows · 6.0/s · 6.00 s left"


@pytest.mark.parametrize(
    ("first", "latest", "expected"),
    [
        ({"done": 0}, {"done": 500, "unit": "rows"}, "     500 rows · 250/s"),
        ({"done": 0, "total": 1 << 30}, {"done": 3 << 20, "total": 1 << 30, "unit": "bytes"},
         "     ░░░░░░░░░░░░░░░░░░░░░░░░ 3.0 MiB/1.0 GiB · 1.5 MiB/s · 11 min 21 s left"),
        ({"done": 9, "total": 4}, {"done": 9, "total": 4}, "     ████████████████████████ 9/4"),
        ({"done": 5, "total": 10}, {"done": 1, "total": 10}, "     ██░░░░░░░░░░░░░░░░░░░░░░ 1/10"),
        ({"done": 0.5}, {"done": 1.25}, "     1.25 · 0.4/s"),
        ({"done": 0, "total": 0}, {"done": 0, "total": 0}, "     0/0"),
    ],
)  # fmt: skip
def test_what_a_bar_says(first, latest, expected):
    assert with_reports(FakeRun(*IN_FLIGHT), reporting((0, first), (2_000_000, latest)))[1] == expected


def test_reports_of_another_task_of_garbage_and_of_ended_steps_show_nothing():
    lines = reporting((0, {"done": 1, "total": 2}))
    assert len(with_reports(FakeRun(*IN_FLIGHT), reporting((0, {"done": 1}), task="other"))) == 1
    assert len(with_reports(FakeRun(*IN_FLIGHT), [{**lines[0], "text": "no JSON"}])) == 1
    assert len(with_reports(FakeRun(*IN_FLIGHT), [{**lines[0], "step": "unknown"}])) == 1
    assert len(with_reports(FakeRun(*steps("start")), lines)) == 1


def test_a_new_attempt_begins_anew():
    old = reporting((0, {"done": 0, "total": 10}), (1_000_000, {"done": 9, "total": 10}))
    new = reporting((1_500_000, {"done": 0, "total": 10}), attempt=2)
    assert with_reports(FakeRun(*IN_FLIGHT), [*old, *new])[1].endswith("░ 0/10")


def test_the_reader_keeps_progress_out_of_the_printed_lines():
    run = FakeRun(*IN_FLIGHT)
    run.log("start", "printed")
    run.log("start", '{"done":1,"total":2}', stream="progress")
    reader = _Reader(FakeApi({ID: run}), ID)
    lines = asyncio.run(reader.read(len(run.events)))
    assert [line["text"] for line in lines] == ["printed"]
    assert asyncio.run(reader.read(len(run.events))) == []
    report = reader.progress.steps["start"].shown_report
    assert report is not None
    assert report.report.done == 1


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
