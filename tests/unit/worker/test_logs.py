"""Progress of an attempt on its way to the store: checked, thinned, the last never lost."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from arclog.core.flow.pipeline import Frame, Run
from arclog.model.config.settings import Settings
from arclog.ports.control import Control
from arclog.ports.storage.task_logs import LogLine
from arclog.testing.virtual import FakeClock
from arclog.worker.logs import AttemptProgress, LogSink


class WrittenLines:
    """An attempt's progress on a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lines: list[tuple[str, str]] = []
        self.waiting: list[AttemptProgress] = []
        self.write = AttemptProgress(
            lambda stream, text: self.lines.append((stream, text)), lambda: self.now, 0.5, self.waiting.append
        )

    @property
    def done(self) -> list[float]:
        return [json.loads(text)["done"] for stream, text in self.lines if stream == "progress"]


def test_the_first_is_written_at_once_and_the_rest_is_thinned() -> None:
    written = WrittenLines()
    for step in range(100):
        written.now = step / 20
        written.write(step, 100, " two\nwords ")
    assert written.done == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    assert written.lines[0] == ("progress", '{"done":0,"total":100,"unit":"two words"}')
    written.write.end()
    written.write.end()
    assert written.done[-1] == 99
    assert len(written.done) == 11


def test_what_is_not_due_asks_to_be_written_later_once() -> None:
    written = WrittenLines()
    for done in (1, 2, 3):
        written.write(done)
    assert (written.done, written.waiting) == ([1], [written.write])
    written.now = 0.4
    written.write.write_due()
    assert written.write.waits
    written.now = 0.5
    written.write.write_due()
    assert (written.done, written.write.waits) == ([1, 3], False)
    written.write(4)
    assert len(written.waiting) == 2


@pytest.mark.parametrize(
    "values",
    [(float("nan"),), (float("inf"),), (-1,), (1, float("nan")), (1, -5), ("12",), (None,), (True,), (1, "x"),
     (2**63,), (1, 2, 3), (b"x" * 10_000,)],
)  # fmt: skip
def test_garbage_is_ignored_with_one_line(values: tuple[Any, ...]) -> None:
    written = WrittenLines()
    for _ in range(3):
        written.write(*values)
    written.write.end()
    [(stream, text)] = written.lines
    assert stream == "log"
    assert text.startswith("progress is not shown: ")
    assert len(text) < 200
    written.write(5, 10)
    assert written.done == [5]


class Kept:
    """A control plane that keeps lines."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        self.came = asyncio.Event()

    async def write_logs(self, lines: list[LogLine]) -> None:
        self.lines += lines
        self.came.set()


def sink_of(kept: Kept, clock: FakeClock) -> tuple[LogSink, AttemptProgress]:
    sink = LogSink(cast("Control", kept), clock, Settings())
    move = SimpleNamespace(task=SimpleNamespace(plan=SimpleNamespace(name="t")), task_run=1, attempt=2)
    frame = SimpleNamespace(execution_id="7", step="s", run=1, iteration=(3,))
    return sink, sink.of_attempt(cast("Frame", frame), cast("Run", move))[1]


async def test_a_task_that_falls_silent_is_shown_as_far_as_it_came() -> None:
    kept, clock = Kept(), FakeClock()
    sink, write = sink_of(kept, clock)
    write(1, 10, "rows")
    write(2, 10, "rows")
    await kept.came.wait()
    clock.advance(0.6)
    while len(kept.lines) < 2:
        kept.came.clear()
        await kept.came.wait()
    assert [json.loads(line.text)["done"] for line in kept.lines] == [1, 2]
    assert kept.lines[0].stream == "progress"
    assert (kept.lines[0].attempt, kept.lines[0].iteration) == (2, (3,))
    await sink.close()


async def test_closing_writes_the_last() -> None:
    kept = Kept()
    sink, write = sink_of(kept, FakeClock())
    write(1)
    write(2)
    await sink.close()
    assert [json.loads(line.text)["done"] for line in kept.lines] == [1, 2]
