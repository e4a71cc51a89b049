"""Plays a playbook with mocked tools and virtual time, for tests in Python."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.json import encode

from arclog.model.events import Event
from arclog.ports.tool import ToolKind
from arclog.testing.playbook_tests.cases import Case, read_cases
from arclog.testing.playbook_tests.expectations import path_of
from arclog.testing.playbook_tests.mocks import Call
from arclog.testing.playbook_tests.runner import mock_problems, stage_of
from arclog.testing.playbook_tests.stage import CaseRun, Stage
from arclog.testing.virtual import VirtualLoop


class MockMismatch(AssertionError):
    """A task was called that no mock answers, a mock answered nothing, or the run did not end."""


@dataclass(frozen=True)
class Play:
    """The result of playing a playbook."""

    #: completed failed cancelled refused
    state: str
    result: Any
    error: dict[str, Any] | None
    ctx: dict[str, Any]
    #: the steps, in the order in which they began
    path: list[str]
    #: every attempt of every mocked task, with its rendered config
    calls: list[Call]
    #: virtual seconds from the request to the end
    duration_s: float
    events: list[Event] = field(repr=False)


def play(
    playbook: str | os.PathLike[str],
    *,
    mocks: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    workload: Mapping[str, Any] | None = None,
    signals: Sequence[Mapping[str, Any]] = (),
    keychain: Mapping[str, Any] | None = None,
    python: str = "mock",
    now: str = "",
    kinds: Sequence[ToolKind | type[Any]] = (),
) -> Play:
    """Run a playbook offline and in virtual time: a wait of a day takes milliseconds.

        played = play("orders.yaml", mocks={"fetch": {"orders": [1, 2]}, "store": {"stored": 2}})
        assert played.state == "completed"
        assert played.path == ["fetch", "store"]

    Args:
        playbook: The path of a file, or the text of a playbook. A `str` with a line break is a text.
        mocks: What tasks answer: data by `step` or `step.task`, or a list of mocks as in `*.test.yaml` files
            (`{"step": "fetch", "attempt": 1, "error": "timeout"}`).
        workload: Laid over the playbook's own workload.
        signals: `{"signal": "APPROVE", "step": "ask", "at": 60}`: at a virtual second after the start.
        keychain: Values of keychain entries; entries without one get made-up values.
        python: `run` runs the code of python tasks without a mock in this process; `mock` wants a mock for them.
        now: The time at the start, RFC 3339.
        kinds: Tool kinds of the program; their tasks are mocked like others.

    Returns:
        The run's state, result, path, calls and events.

    Raises:
        MockMismatch: No mock answers a call, or a mock answers nothing.
        PlaybookError: The playbook or a mock has errors.
    """
    text, file = _text_of(playbook)
    stage = stage_of(text, file, kinds=kinds)
    case: dict[str, Any] = {
        "name": "play",
        "mocks": _as_list(mocks),
        "workload": dict(workload or {}),
        "signals": [dict(signal) for signal in signals],
        "keychain": dict(keychain or {}),
        "python": python,
        **({"now": now} if now else {}),
    }
    cases = read_cases(encode({"tests": [case]}), "<mocks>")
    if problem := mock_problems(cases, stage):
        raise MockMismatch(problem.replace("<mocks>:1: ", ""))
    run = _run(stage, cases.cases[0])
    unused = [] if run.book is None or run.problem else run.book.unused()
    if run.problem or unused:
        raise MockMismatch(run.problem or "\n".join(f"the mock of {mock} answered nothing" for mock in unused))
    return Play(run.state, run.result, run.error, run.ctx, path_of(run), run.calls, run.duration_s, run.events)


def _run(stage: Stage, case: Case) -> CaseRun:
    """Run a case on a loop of its own, in a thread: the caller may have a running one."""
    runs: list[CaseRun | BaseException] = []

    def work() -> None:
        loop = VirtualLoop()
        try:
            runs.append(loop.run_until_complete(stage.run(case)))
        except BaseException as problem:
            runs.append(problem)
        finally:
            loop.close()

    thread = threading.Thread(target=work, name="arclog-play")
    thread.start()
    thread.join()
    if isinstance(runs[0], BaseException):
        raise runs[0]
    return runs[0]


def _as_list(mocks: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if not isinstance(mocks, Mapping):
        return [dict(mock) for mock in mocks]
    rows: list[dict[str, Any]] = []
    for where, data in mocks.items():
        step, _, task = where.partition(".")
        rows.append({"step": step, "ok": data, **({"task": task} if task else {})})
    return rows


def _text_of(playbook: str | os.PathLike[str]) -> tuple[str, str]:
    if isinstance(playbook, str) and "\n" in playbook:
        return playbook, "<text>"
    return Path(playbook).read_text(encoding="utf-8"), os.fspath(playbook)
