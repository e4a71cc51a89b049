"""The `wire` dialect: stored events in the form of `POST /api/events`. Ids are always strings.

Names are those of the `lifecycle` dialect, statuses those of the wire. Fields that the form does not have are in
`meta`, beside the sender's own, and `wire_incoming` reads them from there: a rendered event can be posted and means the
same event.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.dialects import commands
from arclog.dialects.lifecycle import LifecycleReader, LifecycleState
from arclog.dialects.rendering import Envelope, Rendered, result_ref
from arclog.model.errors import NotAllowed
from arclog.model.events import ERROR, IN_PROGRESS, PAUSED, REGISTRY, SKIPPED, STATUSES, SUCCESS

NAME = "wire"

#: status on the wire, in any case → canonical status; the canonical words are accepted, too
STATUS_IN = {
    "STARTED": IN_PROGRESS,
    "RUNNING": IN_PROGRESS,
    "COMPLETED": SUCCESS,
    "CASE_HANDLED": SUCCESS,
    "FAILED": ERROR,
    "CANCELLED": ERROR,
    "PAUSED": PAUSED,
} | {status.upper(): status for status in STATUSES}
STATUS_OUT = {IN_PROGRESS: "STARTED", SUCCESS: "COMPLETED", SKIPPED: "COMPLETED", ERROR: "FAILED", PAUSED: "PAUSED"}
CANCELLED = "CANCELLED"
#: types whose wire status is more specific than the canonical status
_STATUS_OF_TYPE = {"execution.cancelled": CANCELLED, "command.cancelled": CANCELLED}
_ENDS = frozenset({SUCCESS, SKIPPED, ERROR})

DATA = "data"
REF = "ref"
REFS = "refs"
RESULT_KINDS = (DATA, REF, REFS)

#: statuses of derived facts, which use the words of the lifecycle dialect
_FACT_STATUSES = {
    commands.ISSUED: "STARTED",
    commands.CLAIMED: "STARTED",
    commands.STARTED: "STARTED",
    commands.COMPLETED: "COMPLETED",
}

#: envelope keys that the form has no field for
META_KEYS = (
    "seq", "task", "task_run_id", "step_run_id", "iteration_id", "attempt", "command_id", "fence", "cause_id", "parent_id",
    "duration_ms", "source", "persisted_at", "tenant_id", "project_id", "environment_id", "derived",
)  # fmt: skip


class WireReader:
    """Implements `rendering.Reader`."""

    needs: frozenset[str] | None = None

    def __init__(self, state: LifecycleState | None = None) -> None:
        self._inner = LifecycleReader(state)

    @property
    def state(self) -> LifecycleState:
        return self._inner.state

    def render(self, envelope: Envelope) -> list[Rendered]:
        return [_shaped(rendered) for rendered in self._inner.render(envelope)]

    def held_back(self) -> list[Rendered]:
        return [_shaped(rendered) for rendered in self._inner.held_back()]


def result_of(
    kind: str, status: str, context: dict[str, Any], uri: str | None = None, event_ids: list[str] | None = None
) -> dict[str, Any]:
    """Return `{status, context}` for data, `{status, reference}` for stored data. An error is at context.error."""
    if kind == REF:
        return {"status": status, "reference": {"uri": uri}}
    if kind == REFS:
        return {"status": status, "reference": {"event_ids": event_ids}}
    return {"status": status, "context": context}


def status_out(event_type: str, status: str) -> str:
    """Return the wire status of a canonical type and status."""
    return _STATUS_OF_TYPE.get(event_type) or STATUS_OUT[status]


def _shaped(rendered: Rendered) -> Rendered:
    # A derived fact is rendered from an envelope of another type: only its own record contains it.
    stored = rendered.record if rendered.derived else rendered.source
    status = _FACT_STATUSES[rendered.name] if rendered.derived else status_out(stored["event_type"], stored["status"])
    payload = stored["payload"]
    meta = {key: stored[key] for key in META_KEYS if key in stored}
    if stored["status"] == SKIPPED:
        meta["skipped"] = True
    if rendered.record["status"] not in (status, stored["status"]):
        meta["state"] = rendered.record["status"]
    if "state" in rendered.record["payload"] and "state" not in payload:
        meta["state"] = rendered.record["payload"]["state"]
    status = stored.get("sent_status", status)
    record: dict[str, Any] = {
        "execution_id": stored["execution_id"],
        "event_id": stored["event_id"],
        "event_type": rendered.name,
        "step": stored.get("step", ""),
        "status": status,
        "created_at": stored["timestamp"],
        "seq": stored["seq"],
        "source": stored["source"],
        "worker_id": stored.get("worker_id"),
        "payload": payload,
        "meta": {**meta, **stored.get("meta", {})},
    }
    if stored.get("informative"):
        record["informative"] = True
    if stored["status"] in _ENDS:
        record |= _result(stored, status)
    return Rendered(rendered.name, record, rendered.source, rendered.derived)


def _result(stored: Envelope, status: str) -> dict[str, Any]:
    """Return the result fields: those that were sent, else those derived from the payload."""
    payload = stored["payload"]
    uri = stored.get("result_uri") or (result_ref(payload) or {}).get("ref")
    kind = stored.get("result_kind") or (REF if uri else DATA)
    fields: dict[str, Any] = {"result_kind": kind}
    if uri:
        fields["result_uri"] = uri
    if "event_ids" in stored:
        fields["event_ids"] = stored["event_ids"]
    fields["result"] = result_of(kind, status, _context(payload), uri, stored.get("event_ids"))
    return fields


def _context(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the result part of a payload; the error of a failed outcome is at `error`."""
    error = payload.get("error") or (payload.get("outcome") or {}).get("error")
    if error:
        return {"error": error}
    if "outcome" in payload:
        return {"data": payload["outcome"].get("data")}
    return {"data": payload["result"]} if "result" in payload else payload


# The types that each principal may send on the wire: one grant per principal and type.
#
# Invariant: an event without a grant is refused. A producer may send every type, since its events are informational.


SERVER = "server"
WORKER = "worker"
PRODUCER = "producer"


class Grant(Struct, frozen=True):
    """The conditions of an allowed event."""

    #: only for a command that the sender holds, with its fence
    needs_lease: bool = False
    #: stored, never applied
    informative: bool = False


_HOW = {SERVER: Grant(), WORKER: Grant(needs_lease=True), PRODUCER: Grant(informative=True)}

#: principal → canonical type → grant
GRANTS: dict[str, dict[str, Grant]] = {
    principal: {name: how for name, row in REGISTRY.items() if principal == PRODUCER or principal in row.emitters}
    for principal, how in _HOW.items()
}


def granted(principal: str, event_type: str, *, legacy_name: str = "") -> Grant:
    """Return how an event of this canonical type is accepted from this principal. Raises NotAllowed."""
    grants = GRANTS.get(principal)
    if grants is None:
        raise NotAllowed(f"{principal!r} may not send events; {', '.join(GRANTS)} may")
    if legacy_name and principal != PRODUCER:
        raise NotAllowed(
            f"{legacy_name} is a name of older executors; a {principal} of this version sends {event_type} instead"
        )
    if event_type in grants:
        return grants[event_type]
    senders = ", ".join(name for name in _HOW if event_type in GRANTS[name])
    raise NotAllowed(f"a {principal} may not send {event_type}; that is for: {senders}")
