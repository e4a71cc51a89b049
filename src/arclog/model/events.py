"""The list of event types, and the event itself.

`REGISTRY` is closed: other types cannot be stored. Docs, JSON Schema, authorization and the UI use it. An `Event` is
the compact stored fact; `envelope` adds the derived fields that readers see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from arclog.model.data.shapes import Field

IN_PROGRESS = "in_progress"
SUCCESS = "success"
ERROR = "error"
SKIPPED = "skipped"
PAUSED = "paused"

#: Bytes of an event's envelope besides its outcome.
ENVELOPE_BYTES = 2048

STATUSES = (IN_PROGRESS, SUCCESS, ERROR, SKIPPED, PAUSED)

#: Reasons why the server ends a task, an attempt, an iteration or a step run that has not ended by itself.
CLOSING_REASONS: dict[str, str] = {
    "run_cancelled": "The run was cancelled.",
    "run_failed": "The run failed for another reason.",
    "loop_failed": "Its loop failed.",
    "step_late": "Its loop exceeded its time limit.",
    "step_skipped": "Its step was skipped.",
    "step_retried": "RETRY_STEP restarts the attempt.",
    "poison": "The lease of its command was lost too often.",
    "command_failed": "Its worker reported that the command cannot be carried out.",
}


class EventType(Struct, frozen=True):
    """One row of the registry."""

    name: str
    #: stable position in the log's type bit set; never reused
    bit: int
    #: playbook workflow step task loop next policy result command signal timer
    entity: str
    #: who emits it; an outside producer may send every type, always as informational
    emitters: tuple[str, ...]
    #: allowed statuses; the first is the default
    statuses: tuple[str, ...]
    doc: str
    #: known payload keys; payloads stay open
    payload: tuple[Field, ...] = ()
    #: whether it ends the execution; the store accepts one of these per execution
    terminal: bool = False
    #: whether it is indexed by (type, time) across executions
    marked: bool = False
    #: only events with this payload key are marked; '' for all
    marked_with: str = ""
    #: version of the payload's structure; a release that changes the meaning of an event increments it and adds a lift
    version: int = 1

    @property
    def alias(self) -> str:
        return "".join(part.capitalize() for part in self.name.split("."))


_SHORT_NAMES = {
    "type": "t", "at": "@", "step": "s", "run": "r", "iteration": "i", "task": "k", "task_run": "kr", "attempt": "a",
    "status": "st", "duration_ms": "d", "command_id": "c", "fence": "f", "worker_id": "w", "cause": "ca", "report": "n",
    "informative": "x", "own_id": "id", "payload": "p", "version": "v", "sent": "o",
}  # fmt: skip


class Event(Struct, omit_defaults=True, rename=_SHORT_NAMES, gc=False):
    """A past fact, as stored, without derived fields (alias, source, ids, tenancy, seq, event_id)."""

    type: str
    #: microseconds since 1970, by the emitter's clock
    at: int
    step: str = ""
    run: int = 0
    #: loop indexes from the outermost; None outside loops
    iteration: tuple[int, ...] | None = None
    task: str = ""
    task_run: int = 0
    attempt: int = 0
    #: '' for the type's first status
    status: str = ""
    #: whole milliseconds; logs of older releases also have fractions
    duration_ms: int | float | None = None
    command_id: int = 0
    fence: int = 0
    worker_id: str = ""
    #: distance to the event that caused it, in events; 0 if none
    cause: int = 0
    #: on the first event of a worker's report: the report's number
    report: int = 0
    #: stored, never applied
    informative: bool = False
    #: event_id assigned by an outside producer; 0 for one that the store assigns
    own_id: int = 0
    payload: dict[str, Any] = {}
    #: version of the payload's structure when the event was written
    version: int = 1
    #: the sender's other fields of an event from the wire: meta, result_kind, result_uri, event_ids, status
    sent: dict[str, Any] = {}


_OUTCOME = Field(
    "outcome",
    "object",
    "Outcome of the attempt: status, result, data, error, meta, the kind's helper, and `files` with references to the files that it stored.",
)
_ERROR = Field("error", "object", "The error: kind, message, code, retryable.")
_CONFIG = Field("config", "object", "Rendered config of a task that waits. The engine uses it when the wait ends.")
_ITEMS = Field("items", "list|object", "Items of the loop; a range is {range: [start, stop, step]}.")
_REASON = Field("reason", "string", "Why the server closed it while it was open; its error then has kind `cancelled`.")
_REF = Field(
    "result_ref",
    "object",
    "Reference to a result that is stored outside the log: kind (`result_ref`), store, ref, and meta with its shape (data, list or bytes).",
)
_EXTRACTED = Field("extracted", "object", "Parts of a stored result that stay in the log, by path or name.")

_SERVER = ("server",)
_WORKER = ("worker",)
_EITHER = ("server", "worker")


def _rows() -> tuple[EventType, ...]:
    """Return the registry in order of its bits. Append only."""

    def row(
        bit: int,
        name: str,
        entity: str,
        emitters: tuple[str, ...],
        statuses: tuple[str, ...],
        doc: str,
        *payload: Field,
        terminal: bool = False,
        marked: bool = False,
        marked_with: str = "",
    ) -> EventType:
        return EventType(name, bit, entity, emitters, statuses, doc, payload, terminal, marked, marked_with)

    # fmt: off
    return (
        row(0, "playbook.execution.requested", "playbook", _SERVER, (IN_PROGRESS,), "A run was requested.",
            Field("path", "string", "Catalog path."), Field("version", "string", "Catalog version of the run."), Field("plan", "string", "sha256 of the plan."),
            Field("workload", "object", "The workload of the request, merged over the playbook's defaults."), Field("parent", "object", "The calling task, for a child run: execution_id, step_run_id, task_run_id, wait."),
            Field("depth", "integer", "Nesting depth of a child run: the number of runs above it."), Field("files", "object", "Playbooks that are called by file: plan, file, and optionally path and version."),
            Field("original_run_id", "string", "The run that this one repeats."), Field("scope", "string", "tenant/project/environment."),
            Field("priority", "integer", "Priority of the run, if it differs from that of the playbook."), Field("file", "string", "Name of the playbook's file."),
            Field("origin", "object", "Origin of a retry or fork: execution_id, seq, how, step, and the number of events of that run that it starts with."), marked=True),
        row(1, "playbook.request.evaluated", "playbook", _SERVER, (SUCCESS, ERROR), "The request was accepted or refused.", _ERROR,
            Field("waits_for", "string", "`approval`: the run does not start before it is approved.")),
        row(2, "playbook.started", "playbook", _SERVER, (IN_PROGRESS,), "The run started.", marked=True),
        row(3, "playbook.paused", "playbook", _SERVER, (PAUSED,), "The run is paused: no task is running.",
            Field("signal_id", "string"), Field("cycle", "integer", "Number of this pause, counted from 1."), Field("reason", "string"), marked=True),
        row(4, "playbook.finished", "playbook", _SERVER, (SUCCESS, ERROR), "The run completed or failed.",
            Field("result", "any", "The run's result."), _REF, _ERROR, terminal=True, marked=True),
        row(5, "playbook.processed", "playbook", _SERVER, (SUCCESS,), "The parent run was notified, and all webhooks were delivered or given up."),
        row(6, "workflow.started", "workflow", _SERVER, (IN_PROGRESS,), "The first token was placed.",
            Field("token", "integer", "Id of the first token.")),
        row(7, "workflow.finished", "workflow", _SERVER, (SUCCESS, ERROR), "No tokens and no open step runs are left.", _ERROR,
            Field("tokens", "list", "Ids of the tokens that were left when the run failed or was cancelled; they are removed.")),
        row(8, "step.scheduled", "step", _SERVER, (IN_PROGRESS,), "A step run was created from one or more tokens.",
            Field("tokens", "list", "Ids of the tokens that were consumed."),
            Field("absorbs", "list", "Places whose later tokens of the same wave a counted join absorbs."), Field("args", "object", "Args of the step run."),
            _ITEMS, Field("total", "integer", "Number of items of the loop."),
            Field("final", "object", "Final step only: how the run ends after it (state, error, reason).")),
        row(9, "step.started", "step", _EITHER, (IN_PROGRESS,), "A worker started the step run. Recorded once for each step run."),
        row(10, "step.done", "step", _EITHER, (SUCCESS, SKIPPED), "The step run succeeded.", Field("reason", "string", "Why the step was skipped.")),
        row(11, "step.failed", "step", _EITHER, (ERROR,), "The step run failed.", _ERROR, _REASON,
            Field("loop", "object", "Counts of a loop that had started: total, ok, failed, cancelled."), marked=True),
        row(12, "task.started", "task", _EITHER, (IN_PROGRESS,), "A task run started, with its first attempt.",
            Field("inputs", "any", "Rendered config, redacted and limited in size."), _CONFIG,
            Field("rounds", "object", "Changed round numbers of `while` and `until` blocks that have a `max`: {while_1: 2}.")),
        row(13, "task.attempt.started", "task", _WORKER, (IN_PROGRESS,), "A further attempt started.", _CONFIG),
        row(14, "task.attempt.done", "task", _EITHER, (SUCCESS,), "An attempt succeeded.", _OUTCOME),
        row(15, "task.attempt.failed", "task", _EITHER, (ERROR,), "An attempt failed.", _OUTCOME, _REASON),
        row(16, "task.done", "task", _EITHER, (SUCCESS,), "A task run ended with an ok outcome.", _OUTCOME, _REF, _EXTRACTED),
        row(17, "task.failed", "task", _EITHER, (ERROR,), "A task run ended with an error.", _OUTCOME, _REF, _EXTRACTED, _REASON, marked=True),
        row(18, "loop.started", "loop", _EITHER, (IN_PROGRESS,), "The loop of a step run started.",
            Field("total", "integer", "Number of items."), Field("mode", "string", "sequential or parallel."), _ITEMS),
        row(19, "loop.iteration.scheduled", "loop", _SERVER, (IN_PROGRESS,), "An iteration was scheduled. Recorded only if requested by `emit`."),
        row(20, "loop.iteration.started", "loop", _EITHER, (IN_PROGRESS,), "An iteration started."),
        row(21, "loop.iteration.done", "loop", _EITHER, (SUCCESS,), "An iteration succeeded."),
        row(22, "loop.iteration.failed", "loop", _EITHER, (ERROR,), "An iteration failed.", _ERROR, _REASON),
        row(23, "loop.done", "loop", _EITHER, (SUCCESS,), "All iterations ended.",
            Field("total", "integer"), Field("ok", "integer"), Field("failed", "integer"), Field("skipped", "integer", "Number of items that had not ended when the step was skipped."), Field("cancelled", "integer", "Number of skipped items that were running."), Field("errors", "list", "The first 100 errors, with the indexes of their items.")),
        row(24, "policy.admit.evaluated", "policy", _SERVER, (SUCCESS, SKIPPED), "Admission rules were evaluated. Status `skipped` means denied.",
            Field("allow", "boolean"), Field("matched_rule_index", "integer|null"), Field("tokens", "list", "Ids of the tokens that a denial consumed."),
            Field("reason", "string", "Why a join `all_ok` does not run: the branch that failed or was denied."),
            Field("absorbs", "list", "As in `step.scheduled`, if a counted join was denied.")),
        row(25, "policy.task.evaluated", "policy", _EITHER, (SUCCESS, ERROR), "A task's policy chose an action.",
            Field("matched_rule_index", "integer|null"), Field("action", "object", "The action: `do` and its parameters."),
            Field("set_iter", "object"), Field("set_ctx", "object"), Field("due", "integer", "When a retry is due, in microseconds since 1970."),
            Field("suspended", "boolean", "Whether the command ends here because the delay is too long to wait under a lease."), _ERROR),
        row(26, "next.evaluated", "next", _SERVER, (SUCCESS, ERROR), "The outgoing arcs of an ended step run were evaluated.",
            Field("mode", "string"), Field("matched", "list", "Arcs whose condition holds: step and when."),
            Field("selected", "list", "Arcs that were taken: step, arc, token, args; `absorbed` if the token was removed because the counted join had already run."),
            Field("end", "object", "State and error of the run, if a token ended in a step with `end`."), _ERROR),
        row(27, "result.stored", "result", _EITHER, (SUCCESS,), "A payload was stored outside the log.", _REF, _EXTRACTED,
            Field("scope", "string", "How long the result is kept: step, execution, workflow or permanent."), Field("ttl_s", "number", "Seconds after which the result may be removed."),
            Field("preview", "string", "The first bytes of the content."), Field("file", "string", "Name of the file in the task's `outputs`.")),
        row(28, "result.manifest.updated", "result", _EITHER, (SUCCESS,), "A manifest of results was updated.", _REF,
            Field("manifest", "object", "Manifest of a loop whose results are read from the log: kind, step, run, total."),
            Field("items", "object", "Items of a loop over stored data."), Field("total", "integer", "Number of these items.")),
        row(29, "command.issued", "command", _SERVER, (IN_PROGRESS,), "A command was issued: a part of a loop, the rest of a pipeline after a wait, or a command whose worker lost or returned it.",
            Field("reason", "string", "loop, resumed, lease_lost, paused or retry."), Field("losses", "integer", "Number of lost leases."), Field("worker_id", "string", "Worker that held it before."),
            Field("signal", "integer", "Distance, in events, to the earlier signal that withdrew the command."), Field("wait", "string", "Key of the wait that ended."),
            Field("items", "list", "Part of a loop: indexes in the outer loops, first item, item after the last.")),
        row(30, "command.claimed", "command", _SERVER, (IN_PROGRESS,), "A command was claimed again after its lease was lost."),
        row(31, "command.started", "command", _WORKER, (IN_PROGRESS,), "A worker started a command. Normally not stored, but derived when events are read."),
        row(32, "command.completed", "command", _EITHER, (SUCCESS,), "A command ended. Stored if its step run continues, otherwise derived when events are read.",
            Field("reason", "string", "`suspended`: the task waits."), Field("wait", "string", "Key of the wait."),
            Field("until", "integer", "When the wait times out, in microseconds since 1970."), Field("child", "string", "Execution id of the child run that the task waits for."),
            Field("signal_id", "string", "Id of a signal that was received before the wait started, and ends it immediately."), marked=True, marked_with="child"),
        row(33, "command.failed", "command", _EITHER, (ERROR,), "A command failed: it cannot be executed, or its lease was lost too often.", _ERROR, marked=True),
        row(34, "command.cancelled", "command", _SERVER, (ERROR,), "An open command was withdrawn.", Field("reason", "string"), Field("kill", "boolean", "Whether its processes are killed without a grace period.")),
        row(35, "execution.cancelled", "playbook", _SERVER, (ERROR,), "The run was cancelled.", Field("reason", "string"), Field("code", "string", "`EMERGENCY_STOP`: processes were killed without a grace period."), terminal=True, marked=True),
        row(36, "playbook.resumed", "playbook", _SERVER, (IN_PROGRESS,), "A paused run was resumed.", Field("signal_id", "string"), Field("cycle", "integer"), Field("reason", "string"), marked=True),
        row(37, "signal.received", "signal", _SERVER, (SUCCESS, ERROR), "A signal was received. Status `error` means that it could not be applied.",
            Field("signal", "string"), Field("signal_id", "string"), Field("reason", "string"), Field("by", "string"), Field("step", "string"), Field("data", "any"),
            Field("kept", "boolean", "Whether it is kept for a later wait, because no task was waiting for it."),
            Field("held", "list", "PAUSE: commands that were not claimed."), Field("token", "integer", "RETRY_STEP of a failed run: the token that starts the step again."), _ERROR, marked=True),
        row(38, "timer.fired", "timer", _SERVER, (SUCCESS,), "A durable timer fired.", Field("timer", "string"), Field("due", "integer", "When it was due, in microseconds since 1970.")),
        row(39, "batch.completed", "command", ("producer",), (SUCCESS, ERROR), "An outside producer finished a batch. Informational only."),
        row(40, "command.refused", "command", _SERVER, (ERROR,), "A report of the worker that holds a command was refused. Informational only.",
            Field("reason", "string", "Why the report was refused."), Field("refused", "string", "Type of the refused event."), Field("worker_id", "string", "Worker that sent the report.")),
    )

    # fmt: on


REGISTRY: dict[str, EventType] = {row.name: row for row in _rows()}
TERMINAL: frozenset[str] = frozenset(name for name, row in REGISTRY.items() if row.terminal)
MARKED: frozenset[str] = frozenset(name for name, row in REGISTRY.items() if row.marked)
#: type → payload key that an event must have to be marked
MARKED_WITH: dict[str, str] = {name: row.marked_with for name, row in REGISTRY.items() if row.marked_with}
_DEFAULT_STATUS: dict[str, str] = {name: row.statuses[0] for name, row in REGISTRY.items()}
BITS: dict[str, int] = {name: 1 << row.bit for name, row in REGISTRY.items()}


def kind_of(event_type: str) -> EventType:
    """Return the row of a type.

    An unknown type, from a newer release, gets a generic row, so that readers do not fail.
    """
    row = REGISTRY.get(event_type)
    if row is not None:
        return row
    return EventType(
        event_type, -1, event_type.partition(".")[0], _SERVER, (SUCCESS,), "An event type of a newer release."
    )


def is_closing(event: Event) -> bool:
    """Return whether the server closed something from outside: not its own failure, and never the cause of another."""
    payload = event.payload
    return payload.get("source") == "server" and payload.get("reason") in CLOSING_REASONS


def status_of(event: Event) -> str:
    """Return the event's status, or the default of its type."""
    return event.status or _DEFAULT_STATUS.get(event.type) or kind_of(event.type).statuses[0]


# Events of other releases: older ones are lifted to the current form, newer ones are detected.
#
# Invariant: a type's `version` in the registry is incremented when the meaning of its payload changes; the emitter
# writes that version into the event. `LIFTS` has, for each version that was ever written, the conversion to the next. A
# log is never rewritten: events are lifted when they are read. An event without a lift, or of an unknown type, is from
# a newer release: a log with such an event must not be folded, since its effects are unknown.


#: (type, version) → conversion of its payload to the next version
LIFTS: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}


def lifted(event: Event) -> Event:
    """Return the event in the current form. An event of a newer release is not changed."""
    kind = REGISTRY.get(event.type)
    while kind is not None and event.version < kind.version:
        event.payload = LIFTS[event.type, event.version](event.payload)
        event.version += 1
    return event


def is_newer(event: Event) -> bool:
    """Return whether a newer release wrote the event."""
    kind = REGISTRY.get(event.type)
    return kind is None or event.version > kind.version
