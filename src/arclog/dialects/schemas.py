"""The published JSON Schemas (draft 2020-12) of events and records, generated from the tables that define them.

Objects are open unless a contract closes them: a reader must accept unknown keys.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from arclog.dialects import lifecycle, wire
from arclog.dialects import run_record as contract
from arclog.dialects.wire_incoming import EITHER_PLACE
from arclog.model import status
from arclog.model.events import REGISTRY, STATUSES, EventType
from arclog.model.outcome import ERROR_KINDS
from arclog.playbook.json_schema import DRAFT, schema_of

Schema = dict[str, Any]

_ID = {
    "type": "string",
    "pattern": "^[1-9][0-9]{0,18}$",
    "description": "A positive 64-bit integer as a decimal string.",
}
_LAX_ID = {"anyOf": [_ID, {"type": "integer", "minimum": 1, "maximum": (1 << 63) - 1}]}
_TIME = {"type": "string", "format": "date-time"}
_TEXT = {"type": "string"}
_WHOLE = {"type": "integer", "minimum": 0}
_FROM_1 = {"type": "integer", "minimum": 1}
_OPEN = {"type": "object"}
_OPTIONAL_TIME = {"type": ["string", "null"], "format": "date-time"}

_ERROR = {
    "type": "object",
    "required": ["kind", "message"],
    "properties": {
        "kind": {"enum": sorted(ERROR_KINDS)},
        "message": _TEXT,
        "code": {"type": ["string", "null"]},
        "retryable": {"type": "boolean"},
    },
}
_OUTCOME = {
    "type": "object",
    "required": ["status", "result", "data", "error", "meta"],
    "properties": {
        "status": {"enum": ["ok", "error"]},
        "error": {"anyOf": [{"$ref": "#/$defs/error"}, {"type": "null"}]},
        "meta": _OPEN,
    },
}
#: Payload keys with a known structure.
_KNOWN = {"error": {"$ref": "#/$defs/error"}, "outcome": {"$ref": "#/$defs/outcome"}}
_ENTITIES = sorted({row.entity for row in REGISTRY.values()})

_ENVELOPE: dict[str, Schema] = {
    "event_id": _ID,
    "event_type": _TEXT,
    "event_alias": {"type": "string", "description": "PascalCase name for display."},
    "timestamp": {**_TIME, "description": "When it happened, by its producer's clock."},
    "persisted_at": {**_TIME, "description": "When it was stored, by the store's clock."},
    "execution_id": _ID,
    "seq": {**_FROM_1, "description": "Gapless, per execution. The only order."},
    "source": {"enum": ["server", "worker", "producer"]},
    "entity_type": {"enum": _ENTITIES},
    "entity_id": _TEXT,
    "parent_id": _TEXT,
    "cause_id": _ID,
    "workflow_run_id": _TEXT,
    "step": _TEXT,
    "step_run_id": {"type": "string", "pattern": "^step:.+:run:[0-9]+$"},
    "task": _TEXT,
    "task_run_id": {"type": "string", "pattern": "^task:.+:run:[0-9]+$"},
    "iteration": {**_WHOLE, "description": "Index in the innermost loop."},
    "iteration_id": {"type": "string", "pattern": "^step:.+:run:[0-9]+:iter:[0-9.]+$"},
    "attempt": _FROM_1,
    "status": {"enum": list(STATUSES)},
    "duration_ms": {"type": "integer", "minimum": 0},
    "command_id": _ID,
    "fence": _WHOLE,
    "worker_id": _TEXT,
    "informative": {"type": "boolean", "description": "Stored, never applied."},
    "meta": {"type": "object", "description": "As it was sent; `producer` and `legacy_type` are the server's."},
    "result_kind": {"enum": list(wire.RESULT_KINDS), "description": "As it was sent, where it is not data."},
    "result_uri": _TEXT,
    "event_ids": {"type": "array", "items": _ID},
    "sent_status": {
        "type": "string",
        "description": "The sender's status, if the canonical status does not express it.",
    },
    "tenant_id": _TEXT,
    "project_id": _TEXT,
    "environment_id": _TEXT,
    "payload": _OPEN,
}
_REQUIRED = [
    "event_id", "event_type", "timestamp", "execution_id", "persisted_at", "seq", "source", "entity_type", "entity_id",
    "status", "payload",
]  # fmt: skip


def _published(title: str, schema: Schema, defs: dict[str, Schema] | None = None) -> Schema:
    return {"$schema": DRAFT, "title": title, **schema, **({"$defs": defs} if defs else {})}


def _payload(row: EventType) -> Schema:
    properties = {field.name: _KNOWN.get(field.name) or schema_of(field) for field in row.payload}
    return {"type": "object", "properties": properties}


def events() -> Schema:
    """Every event type as it is stored and read in the canonical dialect."""
    schemas = [
        {
            "if": {"properties": {"event_type": {"const": row.name}}},
            "then": {
                "description": row.doc,
                "properties": {
                    "event_alias": {"const": row.alias},
                    "entity_type": {"const": row.entity},
                    "status": {"enum": list(row.statuses)},
                    "payload": _payload(row),
                },
            },
        }
        for row in REGISTRY.values()
    ]
    properties = {**_ENVELOPE, "event_type": {"enum": list(REGISTRY)}}
    body = {"type": "object", "required": _REQUIRED, "properties": properties, "allOf": schemas}
    return _published("arclog event", body, {"error": _ERROR, "outcome": _OUTCOME})


def lifecycle_events() -> Schema:
    """Events in the lifecycle dialect: those of the table, and every other type as it is stored."""
    words: dict[str, list[str]] = {}
    for row in lifecycle.TABLE:
        words.setdefault(row.name, []).append(row.state)
    words["step.exit"].append(status.CASE_HANDLED)
    passed = [name for name, kind in REGISTRY.items() if lifecycle.row_of(name, kind.statuses[0]) is None]
    schemas: list[Schema] = [
        {"if": _applied(name), "then": {"properties": {"status": {"enum": states}}}} for name, states in words.items()
    ]
    for name, states in (("call.done", [status.OK, status.BREAK, status.NOOP]), ("call.error", [status.ERROR])):
        payload = {"required": ["state"], "properties": {"state": {"enum": states}}}
        schemas.append({"if": _applied(name), "then": {"properties": {"payload": payload}}})
    own = {
        "event_id": {
            "type": "string",
            "description": "A derived record: id of the stored event, name of the fact and a number.",
        },
        "event_type": {"enum": [*words, *passed]},
        "status": _TEXT,
        "derived": {"type": "boolean", "description": "A fact that another event carries; not stored by itself."},
    }
    body = {"type": "object", "required": _REQUIRED, "properties": {**_ENVELOPE, **own}, "allOf": schemas}
    return _published("arclog event, lifecycle dialect", body)


def _applied(name: str) -> Schema:
    """Return the schema of events of this name that change their layer. Informational events do not."""
    return {"properties": {"event_type": {"const": name}}, "not": {"required": ["informative"]}}


_FAILURE: Schema = {
    "errorCode": {"type": "string", "description": "Of the error, else its kind in capitals."},
    "errorMessage": _TEXT,
    "retryable": {"type": "boolean"},
    "stack": _TEXT,
}
_SIGNALLED: Schema = {"signalId": {"type": "string", "format": "uuid"}, "reason": _TEXT}
_RUN_PAYLOADS: dict[str, Schema] = {
    contract.STEP_FAILED: _FAILURE,
    contract.RUN_FAILED: _FAILURE,
    contract.STEP_COMPLETED: {
        "result": {},
        "resultRef": {"type": "object", "description": "Instead of a result that is stored outside the log."},
        "durationMs": {"type": "integer", "minimum": 0},
        "skipped": {"type": "boolean"},
        "iterations": {
            "type": "object",
            "required": ["total", "ok", "failed"],
            "properties": {"total": _WHOLE, "ok": _WHOLE, "failed": _WHOLE},
        },
    },
    contract.RUN_COMPLETED: {"result": {}, "resultRef": _OPEN, "durationMs": {"type": "integer", "minimum": 0}},
    contract.RUN_PAUSED: _SIGNALLED,
    contract.RUN_RESUMED: _SIGNALLED,
    contract.RUN_CANCELLED: {**_SIGNALLED, "errorCode": _TEXT},
}
_STEP_LEVEL = [name for name in contract.EVENT_TYPES if name.startswith("Step")]


def _run_event(title: str, *, written: bool) -> Schema:
    properties: dict[str, Schema] = {
        "eventType": {"enum": list(contract.EVENT_TYPES)},
        "occurredAt": {**_TIME, "description": "The engine's clock."},
        "persistedAt": {**_TIME, "description": "The store's clock."},
        "runId": {"type": "string", "description": "UUID v4."},
        "tenantId": _TEXT,
        "projectId": _TEXT,
        "environmentId": _TEXT,
        "planId": {"type": "string", "description": "Catalog path."},
        "planVersion": {"type": "string", "description": "Catalog version of the run."},
        "engineAttemptId": {**_FROM_1, "description": "1 + lost leases."},
        "logicalAttemptId": {**_FROM_1, "description": "1 + retries; of a pause, its ordinal."},
        "runSeq": {**_FROM_1, "description": "The event's seq; gaps are legal."},
        "idempotencyKey": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        "stepId": {"type": "string", "description": "The step, or name#2 when an arc entered it again."},
        "payload": _OPEN,
    }
    if written:
        properties = contract.write_of(properties)
    schemas: list[Schema] = [
        {
            "if": {"properties": {"eventType": {"const": name}}},
            "then": {"properties": {"payload": {"type": "object", "properties": fields}}},
        }
        for name, fields in _RUN_PAYLOADS.items()
    ]
    schemas.append(
        {
            "if": {"properties": {"eventType": {"enum": _STEP_LEVEL}}},
            "then": {"required": ["stepId"]},
            "else": {"not": {"required": ["stepId"]}},
        }
    )
    required = [name for name in properties if name not in ("stepId", "payload")]
    body = {"type": "object", "required": required, "properties": properties, "additionalProperties": False}
    return _published(title, {**body, "allOf": schemas})


def run_record() -> Schema:
    """Return the schema of RunEventRecord, which readers of the Run Events Contract get."""
    return _run_event("RunEventRecord", written=False)


def run_write() -> Schema:
    """Return the schema of RunEventWrite, to which the store adds runSeq and persistedAt."""
    return _run_event("RunEventWrite", written=True)


def _wire_fields() -> dict[str, Schema]:
    either: dict[str, Schema] = {
        "task": _TEXT,
        "task_run_id": _TEXT,
        "step_run_id": _TEXT,
        "iteration": {"type": ["integer", "string", "array"], "description": "Index, or the path of indexes."},
        "iteration_id": _TEXT,
        "attempt": _FROM_1,
        "command_id": _LAX_ID,
        "fence": _WHOLE,
    }
    return {name: either[name] for name in EITHER_PLACE}


def wire_request() -> Schema:
    """A body of POST /api/events."""
    words = "|".join("".join(f"[{letter}{letter.lower()}]" for letter in word) for word in wire.STATUS_IN)
    name, step, payload = (
        {
            "type": "string",
            "description": "A canonical or lifecycle name; from producers, any known name in any spelling.",
        },
        {"type": "string", "description": "Required for events of steps, tasks and loops."},
        {"description": "Any JSON; a value other than an object is kept under `value`."},
    )
    properties: dict[str, Schema] = {
        "execution_id": _LAX_ID,
        "event_id": {"anyOf": [_LAX_ID, {"type": "null"}]},
        "event_type": name,
        "name": name,
        "step": step,
        "node_name": step,
        "payload": payload,
        "context": payload,
        "status": {"type": ["string", "null"], "pattern": f"^({words})$", "description": "In any case."},
        "created_at": _OPTIONAL_TIME,
        "worker_id": {"type": ["string", "null"]},
        "meta": {"type": ["object", "null"], "properties": _wire_fields()},
        "result_kind": {"enum": [*wire.RESULT_KINDS, None], "default": wire.DATA},
        "result_uri": {"type": ["string", "null"], "description": "With result_kind ref."},
        "event_ids": {"type": ["array", "null"], "items": _LAX_ID, "description": "With result_kind refs."},
        "actionable": {"type": ["boolean", "null"], "description": "Set by the server only."},
        "informative": {"type": ["boolean", "null"], "description": "Set by the server only."},
        **_wire_fields(),
    }
    either = {"anyOf": [{"required": ["event_type"]}, {"required": ["name"]}]}
    return _published(
        "POST /api/events", {"type": "object", "required": ["execution_id"], "properties": properties, **either}
    )


def wire_batch() -> Schema:
    """A body of POST /api/events/batch; items inherit execution_id and worker_id."""
    item = {key: value for key, value in wire_request().items() if key not in ("$schema", "title")}
    properties = {
        "execution_id": _LAX_ID,
        "worker_id": _TEXT,
        "events": {"type": "array", "items": {**item, "required": []}},
    }
    return _published("POST /api/events/batch", {"type": "object", "required": ["events"], "properties": properties})


def wire_record() -> Schema:
    """Return the schema of an event in the wire dialect, in which ids are always strings."""
    properties: dict[str, Schema] = {
        "execution_id": _ID,
        "event_id": _TEXT,
        "event_type": _TEXT,
        "step": _TEXT,
        "status": {"enum": sorted(wire.STATUS_IN)},
        "created_at": _TIME,
        "seq": _FROM_1,
        "source": {"enum": ["server", "worker", "producer"]},
        "worker_id": {"type": ["string", "null"]},
        "payload": _OPEN,
        "meta": {"type": "object", "description": "The sender's `meta`, and values that have no field."},
        "informative": {"const": True},
        "result_kind": {"enum": list(wire.RESULT_KINDS)},
        "result_uri": _TEXT,
        "event_ids": {"type": "array", "items": _ID},
        "result": {
            "type": "object",
            "required": ["status"],
            "properties": {"status": _TEXT, "context": _OPEN, "reference": _OPEN},
            "anyOf": [{"required": ["context"]}, {"required": ["reference"]}],
        },
    }
    required = [
        "execution_id",
        "event_id",
        "event_type",
        "step",
        "status",
        "created_at",
        "seq",
        "source",
        "payload",
        "meta",
    ]
    body = {"type": "object", "required": required, "properties": properties, "additionalProperties": False}
    return _published("arclog event, wire dialect", body)


def execution_status() -> Schema:
    """The status contract: exactly seven fields."""
    terminal = [row.name for row in lifecycle.TABLE if row.canonical in ("playbook.finished", "execution.cancelled")]
    properties: dict[str, Schema] = {
        "execution_id": _ID,
        "state": {"enum": list(status.TRANSITIONS["playbook"])},
        "current_step": {"type": ["string", "null"]},
        "started_at": _OPTIONAL_TIME,
        "ended_at": _OPTIONAL_TIME,
        "terminal_event": {"enum": [*terminal, None]},
        "completion_inferred": {"const": False},
    }
    body = {"type": "object", "required": list(properties), "properties": properties, "additionalProperties": False}
    return _published("status of an execution", body)


#: name → (description, function that builds it)
SCHEMAS: dict[str, tuple[str, Callable[[], Schema]]] = {
    "events": ("an event as it is stored: `arclog events --json`", events),
    "lifecycle": ("an event in the lifecycle dialect", lifecycle_events),
    "run": ("RunEventRecord: a record of the Run Events Contract", run_record),
    "run-write": ("RunEventWrite: the same before it is stored", run_write),
    "wire": ("an event in the wire dialect", wire_record),
    "wire-request": ("a body of POST /api/events", wire_request),
    "wire-batch": ("a body of POST /api/events/batch", wire_batch),
    "status": ("the status of an execution: `arclog status --json`", execution_status),
}
