"""A task's context, for tests of tools, as a worker would pass it to `Tool.run`."""

from __future__ import annotations

from typing import Any

from arclog.ports.results import Results
from arclog.ports.tool import TaskContext
from arclog.results.memory import MemoryResults
from arclog.worker.storing import TaskResults


class Recorder:
    """Records the log lines and the progress of a task."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self.progress: list[tuple[float, float | None, str]] = []

    def log(self, stream: str, text: str) -> None:
        self.lines.append((stream, text))

    def advance(self, done: float, total: float | None = None, unit: str = "") -> None:
        self.progress.append((done, total, unit))


def task_context(
    recorder: Recorder | None = None,
    *,
    results: Results | None = None,
    inline_max_bytes: int = 65_536,
    **changes: Any,
) -> TaskContext:
    """A context with plain defaults; any field can be given."""
    recording = recorder or Recorder()
    values: dict[str, Any] = {
        "execution_id": "1",
        "step": "start",
        "task": "start_task",
        "run": 1,
        "attempt": 1,
        "key": "1:start:1::start_task:1",
        "workload": {},
        "ctx": {},
        "timeout_s": 30.0,
        "log": recording.log,
        "progress": recording.advance,
        "results": TaskResults(results or MemoryResults(), "default", inline_max_bytes),
        "scope": "default/default/local",
    }
    return TaskContext(**{**values, **changes})
