"""The `wire` dialect: the shape of `POST /api/events`, told of stored events. Ids are always strings here.

Names are those of the `lifecycle` dialect, statuses the five wire words; what the shape has no field for stands in `meta`, where
`wire_incoming` finds it again: what is told here can be posted and means the same event.
"""

from __future__ import annotations

from typing import Any

from arclog.dialects import commands
from arclog.dialects.lifecycle import LifecycleReader, LifecycleState
from arclog.dialects.telling import Envelope, Told, result_ref
from arclog.model.events import ERROR, IN_PROGRESS, PAUSED, SKIPPED, SUCCESS

NAME = "wire"

#: wire word, in any case → canonical status
STATUS_IN = {
    "STARTED": IN_PROGRESS,
    "RUNNING": IN_PROGRESS,
    "COMPLETED": SUCCESS,
    "FAILED": ERROR,
    "PAUSED": PAUSED,
}
STATUS_OUT = {IN_PROGRESS: "STARTED", SUCCESS: "COMPLETED", SKIPPED: "COMPLETED", ERROR: "FAILED", PAUSED: "PAUSED"}

DATA = "data"
REF = "ref"
REFS = "refs"
RESULT_KINDS = (DATA, REF, REFS)

#: of derived facts, whose status is told in the lifecycle's words
_FACT_STATUSES = {
    commands.ISSUED: "STARTED",
    commands.CLAIMED: "STARTED",
    commands.STARTED: "STARTED",
    commands.COMPLETED: "COMPLETED",
}

#: keys of the envelope that the shape has no field for
META_KEYS = (
    "seq", "task", "task_run_id", "step_run_id", "iteration_id", "attempt", "command_id", "fence", "cause_id", "parent_id",
    "duration_ms", "source", "persisted_at", "tenant_id", "project_id", "environment_id", "derived",
)  # fmt: skip


class WireReader:
    """Implements `telling.Reader`."""

    needs: frozenset[str] | None = None

    def __init__(self, state: LifecycleState | None = None) -> None:
        self._inner = LifecycleReader(state)

    @property
    def state(self) -> LifecycleState:
        return self._inner.state

    def tell(self, envelope: Envelope) -> list[Told]:
        return [_shaped(one) for one in self._inner.tell(envelope)]

    def rest(self) -> list[Told]:
        return [_shaped(one) for one in self._inner.rest()]


def result_of(
    kind: str, status: str, context: dict[str, Any], uri: str | None = None, event_ids: list[str] | None = None
) -> dict[str, Any]:
    """`{status, context}` of data, `{status, reference}` of what is stored elsewhere. An error stands at context.error."""
    if kind == REF:
        return {"status": status, "reference": {"uri": uri}}
    if kind == REFS:
        return {"status": status, "reference": {"event_ids": event_ids}}
    return {"status": status, "context": context}


def _shaped(told: Told) -> Told:
    # A derived fact is told of an envelope of another type: its own record is the only place where it stands.
    stored = told.record if told.derived else told.source
    status = _FACT_STATUSES[told.name] if told.derived else STATUS_OUT[stored["status"]]
    payload = stored["payload"]
    meta = {key: stored[key] for key in META_KEYS if key in stored}
    if stored["status"] == SKIPPED:
        meta["skipped"] = True
    if told.record["status"] != status:
        meta["state"] = told.record["status"]
    if "state" in told.record["payload"]:
        meta["state"] = told.record["payload"]["state"]
    record: dict[str, Any] = {
        "execution_id": stored["execution_id"],
        "event_id": stored["event_id"],
        "event_type": told.name,
        "step": stored.get("step", ""),
        "status": status,
        "created_at": stored["timestamp"],
        "worker_id": stored.get("worker_id"),
        "payload": payload,
        "meta": meta,
    }
    if stored.get("informative"):
        record["informative"] = True
    if status in ("COMPLETED", "FAILED"):
        uri = (result_ref(payload) or {}).get("ref")
        record["result_kind"] = REF if uri else DATA
        if uri:
            record["result_uri"] = uri
        record["result"] = result_of(record["result_kind"], status, _context(payload), uri)
    return Told(told.name, record, told.source, told.derived)


def _context(payload: dict[str, Any]) -> dict[str, Any]:
    """The result's own part of a payload; a failed outcome's error stands where every error stands."""
    error = payload.get("error") or (payload.get("outcome") or {}).get("error")
    if error:
        return {"error": error}
    if "outcome" in payload:
        return {"data": payload["outcome"].get("data")}
    return {"data": payload["result"]} if "result" in payload else {}
