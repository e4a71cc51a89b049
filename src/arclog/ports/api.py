"""What a user of arclog can ask for. CLI, HTTP server and UI call this; ids are decimal strings here, times RFC 3339."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct


class ExecuteRequest(Struct, frozen=True):
    """A run asked for: a playbook's text, or the path of a registered one."""

    #: YAML or JSON text of the playbook; '' to run what is registered under `path`
    playbook: str = ""
    #: where the text came from, for messages
    file: str = ""
    path: str = ""
    version: int = 0
    workload: Mapping[str, Any] = {}
    idempotency_key: str = ""


class Started(Struct, frozen=True):
    execution_id: str
    run_id: str


class Status(Struct, frozen=True):
    """Exactly the seven fields of the status contract."""

    execution_id: str
    state: str
    current_step: str | None
    started_at: str | None
    ended_at: str | None
    #: in lifecycle names: playbook.completed, playbook.failed, execution.cancelled
    terminal_event: str | None
    completion_inferred: bool = False


class StepSummary(Struct, frozen=True):
    #: status of the latest run: running | done | failed | skipped
    status: str
    runs: int


class Summary(Struct, frozen=True):
    """A run as `arclog run --json` prints it."""

    execution_id: str
    run_id: str
    state: str
    terminal_event: str | None
    started_at: str | None
    ended_at: str | None
    steps: dict[str, StepSummary]
    ctx: dict[str, Any]
    result: Any
    error: dict[str, Any] | None
    #: a pause has taken effect
    paused: bool = False


class SignalRequest(Struct, frozen=True):
    """Something that a run is told to do."""

    #: PAUSE RESUME CANCEL APPROVE REJECT RETRY_STEP SKIP_STEP RETRY_RUN UPDATE_PARAMS EMERGENCY_STOP, or a name of one's own
    signal: str
    #: the same id again is answered as before; '' = one is made up
    signal_id: str = ""
    #: required with CANCEL, REJECT, SKIP_STEP and EMERGENCY_STOP
    reason: str = ""
    step: str = ""
    data: Any = None
    #: who says so
    by: str = ""


class SignalAnswer(Struct, frozen=True):
    """What became of a signal."""

    execution_id: str
    signal: str
    signal_id: str
    accepted: bool
    #: why it was refused
    message: str
    #: of the run, afterwards
    state: str
    paused: bool
    #: with RETRY_RUN: the new run
    started: str | None = None


class Listed(Struct, frozen=True):
    """A run in a list."""

    execution_id: str
    run_id: str
    name: str
    path: str
    version: str
    state: str
    current_step: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    error: str | None
    paused: bool = False


class Wait(Struct, frozen=True):
    """One thing that a run waits for."""

    #: worker | lease | retry | timer | token | pause | approval | slot | none
    what: str
    #: a sentence for people
    text: str
    step: str = ""
    #: when it will end by itself, if known
    until: str | None = None


class Why(Struct, frozen=True):
    execution_id: str
    state: str
    #: one line
    summary: str
    waits: list[Wait]


class Api(Protocol):
    async def execute(self, request: ExecuteRequest) -> Started:
        """Start a run; durable when it answers. Raises PlaybookError or RequestRejected."""

    async def wait(self, execution_id: str, *, after: int = 0, timeout_s: float | None = None) -> int:
        """Return the head once it is past `after` (or the run has ended), or after the time-out."""

    async def ended(self, execution_id: str, *, timeout_s: float | None = None) -> bool:
        """Return True once the run has its terminal event, False after the time-out."""

    async def status(self, execution_id: str) -> Status:
        """The seven fields."""

    async def summary(self, execution_id: str) -> Summary:
        """The run with its steps, ctx, result and error."""

    async def list(
        self, *, states: Sequence[str] = (), path: str = "", before: str = "", limit: int = 50
    ) -> builtins.list[Listed]:
        """Newest first."""

    async def events(
        self, execution_id: str, *, after: int = 0, limit: int = 1000, types: Sequence[str] = ()
    ) -> builtins.list[dict[str, Any]]:
        """Full envelopes in seq order."""

    async def logs(self, execution_id: str, *, after: int = 0, limit: int = 1000) -> builtins.list[dict[str, Any]]:
        """Task log lines: position, timestamp, step, task, attempt, stream, text."""

    async def why(self, execution_id: str) -> Why:
        """What the run waits for."""

    async def signal(self, execution_id: str, request: SignalRequest) -> SignalAnswer:
        """Tell the run something; recorded when it answers, also when the run cannot do it (`accepted` is False)."""

    async def pausing(self, execution_id: str) -> bool:
        """Whether the run is paused, or draining to be."""

    async def cancel(self, execution_id: str, reason: str) -> Status:
        """End the run at once."""

    async def source(self, execution_id: str) -> str:
        """The playbook as it was written."""
