"""Task log lines as rows of a table, the same for every SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from arclog.ports.storage.task_logs import LogLine


def attempt_of(line: LogLine) -> tuple[int, str, int, str, int, int, str]:
    """What names the attempt, in the order of the columns."""
    return (line.execution_id, line.step, line.run, line.task, line.task_run, line.attempt, path_of(line.iteration))


def path_of(iteration: tuple[int, ...] | None) -> str:
    """Every index with a dot behind it, so that the beginning of a path is the beginning of its text."""
    return "".join(f"{index}." for index in iteration or ())


def text_of(text: str) -> bytes:
    """UTF-8, in which lone surrogates stand as they are."""
    return text.encode("utf-8", "surrogatepass")


def line_of(execution_id: int, row: Sequence[Any]) -> tuple[int, LogLine]:
    """A line with its position, from the columns that `logs` reads."""
    pos, at, step, run, task, task_run, attempt, path, stream, body = row
    line = LogLine(
        execution_id=execution_id,
        at=at,
        step=step,
        run=run,
        task=task,
        task_run=task_run,
        attempt=attempt,
        stream=stream,
        text=body.decode("utf-8", "surrogatepass"),
        iteration=tuple(map(int, path.split(".")[:-1])) if path else None,
    )
    return pos, line
