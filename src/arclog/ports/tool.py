"""The port of tools. Built-in tools and plug-ins are both registered in the entry-point group `arclog.kinds`.

An entry point is named after its kind and loads a `ToolKind`. Loading it must be cheap: a tool's heavy imports belong
in `open`. A tool that needs an optional package imports it under `arclog.model.config.extras.required` there or in
`run`: the task's error then names the extra to install.

Rules for a tool:
- `run` gets a config whose templates are rendered and whose structure is checked, and returns an Outcome. A failure is
  an error outcome; an exception is a bug and is recorded as kind `internal`.
- Time limits and cancellation arrive as `asyncio.CancelledError` inside `run`. The tool then stops everything that it
  started, including processes with all their children, and re-raises the exception. Nothing may outlive `run` except
  warm resources that belong to the tool itself. A second `CancelledError` while it gives its processes time to end
  means that no time is left: kill them. The tool reports the position of the task in `context.stopped`.
- One tool object serves many tasks at once.
- A payload that may be large is streamed: rows and bytes go to `context.results.writer()` once they exceed
  `context.results.inline_max_bytes`, and `Outcome.stored` describes the stored data. Smaller ones are plain
  `Outcome.result`.
- A tool need not hide secrets: outcome, log lines and stored results are redacted after it. It must not write a secret
  anywhere else (its own files, process titles, command lines).
- `context.key` is the same for every attempt of one task run: pass it to other systems as the idempotency key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome, error
from arclog.ports.results import ResultSink
from arclog.ports.secrets import Credential


class TaskContext(Struct):
    """The services and data of a running task."""

    execution_id: str
    step: str
    task: str
    #: number of the task's run in its pipeline, from 1
    run: int
    attempt: int
    #: idempotency key, the same for all attempts
    key: str
    #: copies of the values in the task's templates; a tool must not change them
    workload: Mapping[str, Any]
    ctx: Mapping[str, Any]
    #: seconds until the worker cancels this attempt, for limits inside the tool
    timeout_s: float
    #: takes (stream, text) of the task's live log; stream is 'stdout', 'stderr' or 'log'; text needs no final newline
    log: Callable[[str, str], None]
    #: takes (done, total, unit) of a long task; total None if unknown. Can be called often: reports are throttled
    progress: Callable[[float, float | None, str], None]
    #: stores a payload that is too large for the outcome, and reads `KindSpec.by_ref` fields
    results: ResultSink
    #: the credential that the task's `auth` names
    auth: Credential | None = None
    #: tenant/project/environment; executions of different scopes never share a warm process
    scope: str = ""
    #: effective spec of the task
    spec: Mapping[str, Any] = field(default_factory=dict)
    #: the folder with the files of other tasks that this task's config names, which the task may read; None if it names
    #: none
    files: Path | None = None
    #: set by a tool that is cancelled: the kind's helper, for the outcome of an attempt that exceeded its time limit
    stopped: dict[str, dict[str, Any]] = field(default_factory=dict)


class TaskFailed(Exception):
    """Fails the task with this error, if the code of an `arclog.kind` raises it.

    `kind` is one of `arclog.model.outcome.ERROR_KINDS`; unless `retryable` is given, the kind decides whether a retry
    may help.
    """

    def __init__(
        self, message: str, *, kind: str = "exception", code: str | None = None, retryable: bool | None = None
    ) -> None:
        super().__init__(message)
        self.error = error(kind, message, code=code, retryable=retryable)


class Tool(Protocol):
    """Runs the tasks of one kind."""

    #: The typed config; the rendered task is converted to it, and an invalid one is an error outcome of kind `config`.
    Config: type[Struct]

    async def run(self, config: Any, context: TaskContext) -> Outcome:
        """Run one attempt."""

    async def execution_ended(self, execution_id: str) -> None:
        """Release resources that were kept warm for this execution."""

    async def close(self) -> None:
        """Release everything; no process may remain."""


class ToolServices(Struct, frozen=True):
    """The services and settings for a tool that is opened."""

    settings: Settings
    #: a private folder that the tool may fill; removed when the worker closes
    scratch: Path


class ToolKind(Struct, frozen=True):
    """The object that an entry point of `arclog.kinds` loads."""

    spec: KindSpec
    open: Callable[[ToolServices], Tool]
