"""The Run Events Contract (v1.1) as calls: startRun, cancelRun, getRunStatus, signal, and the records of a run.

Rules:
- A run is named by its runId; a run of another tenant, or of a project or an environment outside the caller's boundary,
  does not exist for it.
- Statuses are PENDING APPROVED RUNNING PAUSED COMPLETED FAILED CANCELLED; a run that is about to pause is RUNNING with
  substatus DRAINING until the work in progress has ended.
- A signal is recorded before it is applied, once per (tenant, runId, signalId): a repeated id gets the same decision.
- Records are in ascending runSeq with gaps; they cannot be appended.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct


class StartRun(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """startRun, of a plan in the catalog or of a playbook's text."""

    #: catalog path
    plan_id: str = ""
    #: catalog version; '' for the newest
    plan_version: str = ""
    #: YAML or JSON text, in place of planId
    playbook: str = ""
    #: the run's workload, merged over the playbook's defaults
    parameters: dict[str, Any] = {}
    #: the caller's own tenant, or empty
    tenant_id: str = ""
    project_id: str = ""
    environment_id: str = ""
    #: the same key returns the same run
    idempotency_key: str = ""


class RunStatus(Struct, frozen=True, rename="camel"):
    """getRunStatus."""

    run_id: str
    execution_id: str
    tenant_id: str
    project_id: str
    environment_id: str
    plan_id: str
    plan_version: str
    #: PENDING APPROVED RUNNING PAUSED COMPLETED FAILED CANCELLED
    status: str
    #: DRAINING: it pauses once the work in progress has ended
    substatus: str | None
    started_at: str | None
    ended_at: str | None
    #: first line of the error
    error: str | None


class RunSignal(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A signal to a run."""

    #: PAUSE RESUME CANCEL APPROVE REJECT RETRY_STEP SKIP_STEP RETRY_RUN UPDATE_PARAMS EMERGENCY_STOP, or a custom
    #: signal
    type: str
    #: the sender's id; a repeated id gets the same decision
    signal_id: str
    #: required with CANCEL, REJECT, SKIP_STEP and EMERGENCY_STOP
    reason: str = ""
    #: for RETRY_STEP, SKIP_STEP, APPROVE and REJECT
    step_id: str = ""
    #: for UPDATE_PARAMS and custom signals
    payload: Any = None


ACCEPTED = "ACCEPTED"
REJECTED = "REJECTED"


class SignalDecision(Struct, frozen=True, rename="camel"):
    """The recorded decision about a signal."""

    run_id: str
    signal_id: str
    type: str
    #: ACCEPTED | REJECTED
    decision: str
    #: why it was rejected
    message: str
    #: status of the run afterwards
    status: str
    substatus: str | None
    #: with RETRY_RUN: the run that was started
    started_run_id: str | None = None
    #: whether a task, or the start of the run, was waiting for it; otherwise a custom signal is stored
    waiting: bool = False


class RunPage(Struct, frozen=True, rename="camel"):
    """Some records of a run."""

    #: RunEventRecords in ascending runSeq
    events: list[dict[str, Any]]
    #: `after` for the next page
    next_after_seq: int
    #: False if there are no more
    has_more: bool


class Runs(Protocol):
    async def start(self, request: StartRun) -> tuple[RunStatus, bool]:
        """Start a run.

        Returns False if the key had started it before. Raises PlaybookError, RequestRejected, Conflict.
        """

    async def status(self, run_id: str) -> RunStatus:
        """Return the status of the run. Raises NotFound."""

    async def cancel(self, run_id: str, reason: str) -> RunStatus:
        """Cancel the run at once; a cancelled run stays so. Raises Conflict if it ended otherwise."""

    async def signal(self, run_id: str, signal: RunSignal) -> SignalDecision:
        """Send a signal to the run."""

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> RunPage:
        """Return records with runSeq above `after`."""
