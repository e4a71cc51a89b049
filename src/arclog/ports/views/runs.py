"""The Run Events Contract (v1.1) as calls: startRun, cancelRun, getRunStatus, signal, and the records of a run.

Rules:
- A run is named by its runId; one of another tenant, or of a project or an environment that the caller does not reach, is
  not there.
- Statuses are PENDING APPROVED RUNNING PAUSED COMPLETED FAILED CANCELLED; a run that is about to pause is RUNNING with
  substatus DRAINING until what is in flight has ended.
- A signal is recorded before it is applied, once per (tenant, runId, signalId): the same id again gets the same decision.
- Records come in ascending runSeq with gaps; there is no way to append one.
"""

from __future__ import annotations

from typing import Any, Protocol

from msgspec import Struct


class StartRun(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """startRun: of a plan in the catalog, or of a playbook's own text."""

    #: catalog path
    plan_id: str = ""
    #: catalog version; '' = the newest
    plan_version: str = ""
    #: YAML or JSON text, in the place of planId
    playbook: str = ""
    #: the run's workload, laid over the playbook's defaults
    parameters: dict[str, Any] = {}
    #: the caller's own, or nothing: a run of another tenant cannot be asked for
    tenant_id: str = ""
    project_id: str = ""
    environment_id: str = ""
    #: the same key again is the same run
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
    #: DRAINING: it will be paused once what is in flight has ended
    substatus: str | None
    started_at: str | None
    ended_at: str | None
    #: first line of what went wrong
    error: str | None


class RunSignal(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A signal to a run."""

    #: PAUSE RESUME CANCEL APPROVE REJECT RETRY_STEP SKIP_STEP RETRY_RUN UPDATE_PARAMS EMERGENCY_STOP, or a playbook's own
    type: str
    #: the sender's; the same id again gets the same decision
    signal_id: str
    #: required with CANCEL, REJECT, SKIP_STEP and EMERGENCY_STOP
    reason: str = ""
    #: of RETRY_STEP, SKIP_STEP, APPROVE and REJECT
    step_id: str = ""
    #: of UPDATE_PARAMS, and of a playbook's own signals
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
    #: of the run, afterwards
    status: str
    substatus: str | None
    #: with RETRY_RUN: the run that was started
    started_run_id: str | None = None
    #: a task, or the start of the run, was waiting for it; a signal of the playbook's own is kept otherwise
    waiting: bool = False


class RunPage(Struct, frozen=True, rename="camel"):
    """Some records of a run."""

    #: RunEventRecords in ascending runSeq
    events: list[dict[str, Any]]
    #: ask for what comes after this
    next_after_seq: int
    #: False: there was nothing more
    has_more: bool


class Runs(Protocol):
    async def start(self, request: StartRun) -> tuple[RunStatus, bool]:
        """Start a run; False when the key had started it before. Raises PlaybookError, RequestRejected, Conflict."""

    async def status(self, run_id: str) -> RunStatus:
        """The status of the run. Raises NotFound."""

    async def cancel(self, run_id: str, reason: str) -> RunStatus:
        """End the run at once; one that is cancelled already stays so. Raises Conflict when it ended otherwise."""

    async def signal(self, run_id: str, signal: RunSignal) -> SignalDecision:
        """Send a signal to the run."""

    async def events(self, run_id: str, *, after: int = 0, limit: int = 100) -> RunPage:
        """Records with runSeq above `after`."""
