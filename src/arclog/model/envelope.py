"""The full event envelope: the stored event plus everything that can be derived from it."""

from __future__ import annotations

from typing import Any

from arclog.model import ids
from arclog.model.events import REGISTRY, Event, kind_of, status_of
from arclog.model.outcome import widened
from arclog.model.refs import published_form

_WORKER_TYPES = frozenset(
    name for name, row in REGISTRY.items() if "worker" in row.emitters and name not in {"loop.started", "loop.done"}
)


#: parts of an outcome that the envelope also has beside it, as result.stored does
_BESIDE = ("result_ref", "extracted")


class Subject:
    """The common fields of all events of one execution."""

    __slots__ = ("execution_id", "name", "scope")

    def __init__(self, execution_id: int, name: str, scope: dict[str, str] | None = None) -> None:
        self.execution_id = str(execution_id)
        self.name = name
        self.scope = scope or {}


def widen(event: Event, subject: Subject, seq: int, event_id: int, persisted_at: int) -> dict[str, Any]:
    """Return the envelope that readers see."""
    kind = kind_of(event.type)
    full: dict[str, Any] = {
        "event_id": str(event.own_id or event_id),
        "event_type": event.type,
        "event_alias": kind.alias,
        "timestamp": ids.timestamp(event.at),
        "persisted_at": ids.timestamp(persisted_at),
        "execution_id": subject.execution_id,
        "seq": seq,
        "source": _source(event),
        "entity_type": kind.entity,
        "entity_id": _entity_id(event, subject),
        "status": status_of(event),
        "workflow_run_id": ids.workflow_run_id(subject.name),
    }
    parent = _parent_id(event, subject)
    if parent:
        full["parent_id"] = parent
    if event.cause:
        full["cause_id"] = str(ids.moved(event_id, -event.cause))
    if event.step:
        full["step"] = event.step
    if event.step and event.run:
        full["step_run_id"] = ids.step_run_id(event.step, event.run)
    if event.task:
        full["task"] = event.task
        full["task_run_id"] = ids.task_run_id(event.task, event.task_run)
    if event.iteration is not None:
        full["iteration"] = event.iteration[-1]
        full["iteration_id"] = ids.iteration_id(event.step, event.run, event.iteration)
    attempt = event.attempt or (_attempt(event) if kind.entity == "task" else 0)
    if attempt:
        full["attempt"] = attempt
    duration = _duration_ms(event)
    if duration is not None:
        full["duration_ms"] = duration
    if event.command_id:
        full["command_id"] = str(event.command_id)
    if event.fence:
        full["fence"] = event.fence
    if event.worker_id:
        full["worker_id"] = event.worker_id
    if event.informative:
        full["informative"] = True
    if event.sent or event.informative:
        full.update(event.sent or _sent_before(event))
    full.update(subject.scope)
    full["payload"] = _payload(event)
    return full


def _source(event: Event) -> str:
    """Return the emitter of an event: the type implies a worker, unless the payload marks it as the server's."""
    if is_producers(event):
        return "producer"
    if event.type not in _WORKER_TYPES or event.payload.get("source") == "server":
        return "server"
    return "worker"


def _sent_before(event: Event) -> dict[str, Any]:
    """Return the sender's fields of an event from outside, from the payload, where earlier releases stored them."""
    fields: dict[str, Any] = {}
    meta, result = event.payload.get("meta"), event.payload.get("result")
    if isinstance(meta, dict):
        fields["meta"] = meta
    reference = result.get("reference") if isinstance(result, dict) else None
    if isinstance(reference, dict) and "uri" in reference:
        fields |= {"result_kind": "ref", "result_uri": reference["uri"]}
    elif isinstance(reference, dict) and "event_ids" in reference:
        fields |= {"result_kind": "refs", "event_ids": reference["event_ids"]}
    return fields


def is_producers(event: Event) -> bool:
    """Return whether an outside producer sent the event.

    Older releases did not store its name: then it is an informational event without a fence, which neither a late
    worker's nor the server's is.
    """
    if not event.informative:
        return False
    if event.sent:
        return "producer" in event.sent.get("meta", ())
    return not event.fence and event.payload.get("source") != "server"


def _attempt(event: Event) -> int:
    """Return the attempt of a task's own event: from the outcome, or 1 for the start of a task run.

    Missing fields of an event from outside are not invented.
    """
    if event.informative:
        return 0
    meta = (event.payload.get("outcome") or {}).get("meta") or {}
    return int(meta.get("attempt") or 1)


def _duration_ms(event: Event) -> int | None:
    """Return the duration. That of a task is in its outcome."""
    duration = event.duration_ms
    if duration is None:
        duration = ((event.payload.get("outcome") or {}).get("meta") or {}).get("duration_ms")
    return None if duration is None else round(duration)


def _payload(event: Event) -> dict[str, Any]:
    payload = event.payload
    if is_producers(event):
        return {**payload, "outcome": widened(payload["outcome"])} if "outcome" in payload else payload
    if "outcome" in payload:
        outcome = widened(payload["outcome"])
        if isinstance(outcome["meta"].get("duration_ms"), float):  # from an older release
            outcome["meta"] = {**outcome["meta"], "duration_ms": round(outcome["meta"]["duration_ms"])}
        beside = {key: outcome[key] for key in _BESIDE if key in outcome}
        payload = {**payload, "outcome": outcome, **beside}
    elif "result_ref" in payload:
        payload = {**payload, "result_ref": published_form(payload["result_ref"])}
    if "source" in payload:
        payload = {key: value for key, value in payload.items() if key != "source"}
    return payload


def _entity_id(event: Event, subject: Subject) -> str:
    entity = kind_of(event.type).entity
    if entity == "playbook":
        return f"playbook:{subject.execution_id}"
    if entity == "workflow":
        return subject.name
    if entity == "step":
        return event.step
    if entity == "task":
        return event.task
    if entity == "loop":
        return f"loop:{event.step}"
    if entity == "next":
        return f"step:{event.step}"
    if entity == "policy":
        return f"task:{event.task}" if event.task else f"step:{event.step}"
    if entity == "result":
        return f"task:{event.task}:attempt:{event.attempt or 1}" if event.task else f"loop:{event.step}"
    if entity == "command":
        return str(event.command_id)
    return str(event.payload.get(entity) or event.payload.get("signal_id") or entity)


def _parent_id(event: Event, subject: Subject) -> str:
    entity = kind_of(event.type).entity
    if entity == "workflow":
        return f"playbook:{subject.execution_id}"
    if entity == "step":
        return ids.workflow_run_id(subject.name)
    if (entity == "result" and event.task) or event.type == "policy.task.evaluated":
        return ids.task_run_id(event.task, event.task_run)
    if entity in ("loop", "next", "task", "command", "result"):
        return ids.step_run_id(event.step, event.run) if event.step else ""
    if event.type == "policy.admit.evaluated":
        return ids.workflow_run_id(subject.name)
    return ""
