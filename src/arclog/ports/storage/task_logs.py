"""The output of running tasks: lines for people, stored separately from the event log."""

from __future__ import annotations

from msgspec import Struct


class LogLine(Struct, frozen=True):
    """A line of a task's live log. Not part of the event log."""

    execution_id: int
    at: int
    step: str
    run: int
    task: str
    task_run: int
    attempt: int
    #: stdout | stderr | log | progress
    stream: str
    text: str
    iteration: tuple[int, ...] | None = None


#: the stream of progress lines
PROGRESS = "progress"
#: the streams of a line
STREAMS = ("stdout", "stderr", "log", PROGRESS)
#: number of attempts per execution whose progress is kept
PROGRESS_KEPT = 1000
#: the text that replaces the lines beyond the limit
LOG_CUT = "log cut here: a run keeps {max_bytes} bytes of its tasks' logs (logs.max_execution_bytes)"


def log_size(line: LogLine) -> int:
    """Return the size of a line for the limits."""
    return len(line.text.encode("utf-8", "surrogatepass")) + 1


class LogFilter(Struct, frozen=True):
    """A filter of log lines; empty fields match all."""

    step: str = ""
    task: str = ""
    #: None for any; a loop's index also matches the iterations nested in it
    iteration: tuple[int, ...] | None = None
    #: empty for every stream except `progress`
    streams: tuple[str, ...] = ()
    #: substring of the text, case-sensitive
    text: str = ""
    #: lines from this time on, microseconds since 1970
    since: int = 0


#: every line except those of the stream `progress`
ANY_LINE = LogFilter()
