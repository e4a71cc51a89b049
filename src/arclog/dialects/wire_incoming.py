"""Bodies of `POST /api/events` and `/api/events/batch`: lenient in form, strict in meaning.

Invariant: a body becomes one canonical event, or RequestRejected (422) or NotAllowed (403) names the field and the
reason; nothing is guessed. Aliases, integer or string ids, fields inside `meta` and names of any dialect are forms of
the same event and have the same digest, which identifies repetitions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from arclog.dialects import legacy, lifecycle
from arclog.dialects.names import MEANINGS, spelled
from arclog.dialects.rendering import result_ref
from arclog.dialects.wire import (
    DATA,
    PRODUCER,
    REF,
    REFS,
    RESULT_KINDS,
    SERVER,
    STATUS_IN,
    STATUS_OUT,
    WORKER,
    Grant,
    granted,
    result_of,
    status_out,
)
from arclog.model import ids
from arclog.model import outcome as outcomes
from arclog.model.config.reducers import is_number
from arclog.model.data.digest import sha256
from arclog.model.data.json_data import DEEPEST_INPUT, nested_deeper
from arclog.model.data.suggestions import did_you_mean
from arclog.model.errors import NotAllowed, RequestRejected
from arclog.model.events import ERROR, REGISTRY, SKIPPED, Event
from arclog.model.outcome import as_error
from arclog.model.refs import stored_form

#: field → alias
ALIASES = {"event_type": "name", "step": "node_name", "payload": "context"}
#: fields that may be at the top level or inside `meta`
EITHER_PLACE = ("task", "task_run_id", "step_run_id", "iteration", "iteration_id", "attempt", "command_id", "fence")
#: fields of events about tasks, which other events seldom have
_OF_TASKS = frozenset({"task", "step_run_id", "task_run_id", "iteration", "iteration_id", "attempt", "fence"})
#: fields that only the server may set
SERVER_ONLY = ("actionable", "informative")
_SERVER_ONLY = frozenset(SERVER_ONLY)
#: fields of rendered events that are derived again on input
_DERIVED = ("result", "seq", "source")
KNOWN = frozenset({
    "execution_id", "event_id", "meta", "worker_id", "status", "created_at", "result_kind", "result_uri", "event_ids",
    *ALIASES, *ALIASES.values(), *EITHER_PLACE, *SERVER_ONLY, *_DERIVED,
})  # fmt: skip
#: entities whose events must name their step
STEP_ENTITIES = frozenset({"step", "task", "loop"})
#: fields of a batch that apply to items without them
INHERITED = ("execution_id", "worker_id")

#: Maximum length of a name or id; a step's name has at most 128 characters, a worker's id or a ref may have more.
_LONGEST_TEXT = 512
_MOST_WARNINGS = 10
_RUN_ID = re.compile(r"(?:step|task):(?P<name>.{1,300}):run:(?P<run>[0-9]{1,9})", re.DOTALL)
_PATH = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,31}")


class Incoming(Struct, frozen=True):
    """One valid and allowed event from outside. Whether the sender holds the command is not checked yet."""

    execution_id: int
    event: Event
    grant: Grant
    #: digest of the content, without timestamps and meta
    digest: str
    #: False if it is applied without a decision
    actionable: bool = True
    #: the fields that were ignored
    warnings: tuple[str, ...] = ()


class Refusal(Struct, frozen=True):
    """The reason why an item of a batch was refused."""

    index: int
    #: HTTP status: 422 or 403
    status: int
    message: str


def parse_event(
    body: Any, principal: str, now: int, inherited: Mapping[str, Any] | None = None, sender: str = ""
) -> Incoming:
    """Parse one body.

    `now` (microseconds) is the time of events without a timestamp; `sender` is the sender's name, which a producer's
    event keeps.
    """
    if not isinstance(body, dict):
        raise RequestRejected(f"an event is a JSON object, not {_kind(body)}")
    if nested_deeper(body, DEEPEST_INPUT):
        raise RequestRejected(f"the event is nested deeper than {DEEPEST_INPUT} levels")
    fields = {key: value for key, value in body.items() if value is not None}
    if inherited:
        fields = {**inherited, **fields}
    warnings = _unknown(fields)
    meta = _object(fields, "meta")
    for key in EITHER_PLACE if meta else ():
        if key not in fields and meta.get(key) is not None:
            fields[key] = meta[key]
    execution_id = ids.parse_id(_required(fields, "execution_id"), "execution_id")
    payload = _payload(fields)
    name = _text(_required(fields, "event_type"), "event_type")
    word, status = _status(fields)
    kind, status, legacy_name = _meaning(name, status, payload, principal)
    grant = granted(principal, kind, legacy_name=legacy_name)
    if principal == SERVER and meta.get("skipped") is True and SKIPPED in REGISTRY[kind].statuses:
        status = SKIPPED  # the wire has no word for it
    if principal == WORKER and status == SKIPPED:
        raise RequestRejected(f"{name} cannot have status {word}: only the server skips a step")
    if principal != SERVER and not _SERVER_ONLY.isdisjoint(fields):
        confirmed = {"informative": grant.informative}  # a field that states the fact is no contradiction
        ignored = [key for key in SERVER_ONLY if key in fields and fields[key] is not confirmed.get(key)]
        warnings += [f"{key} can only be set by the server and is ignored" for key in ignored]
    payload, meta = _with_owner(checked(kind, payload), meta, kind, principal)
    event = _event(fields, kind, status, now)
    event.payload = payload
    event.sent = _result_fields(fields)
    digest = _digest(execution_id, event, status)
    if legacy_name:
        meta = {**meta, "legacy_type": legacy_name}
    if principal == PRODUCER:
        meta = {**meta, "producer": sender}
    if meta:
        event.sent["meta"] = meta
    if word and word != status_out(kind, status):
        event.sent["sent_status"] = word
    outcome = plain_outcome(kind, payload, _aliased(fields, "payload", None)) if principal == WORKER else None
    if outcome is not None:
        event.payload = {"outcome": outcome}
    if principal != PRODUCER:
        event.payload = with_stored_refs(event.payload)
    if principal == WORKER and "task_run_id" not in fields:
        event.task_run = 0  # the task run of the command's pipeline applies
    flags = _server_only_flags(fields) if principal == SERVER else {}
    event.informative = grant.informative or flags.get("informative", False)
    return Incoming(execution_id, event, grant, digest, flags.get("actionable", True), tuple(warnings))


def _unknown(fields: Mapping[str, Any]) -> list[str]:
    if KNOWN.issuperset(fields):
        return []
    keys = [key for key in fields if key not in KNOWN]
    warnings = [f"unknown key {key[:100]!r} is ignored" for key in keys[:_MOST_WARNINGS]]
    hidden = len(keys) - len(warnings)
    return [*warnings, f"so are {hidden} more unknown keys"] if hidden else warnings


def names_a_command(body: Any) -> bool:
    """Return whether an event names a command and a fence, as a worker's does."""
    if not isinstance(body, dict):
        return False
    meta = body.get("meta")
    inner = meta if isinstance(meta, dict) else {}
    if body.get("command_id", inner.get("command_id")) is None:
        return False
    return body.get("fence", inner.get("fence")) is not None


def parse_batch(
    body: Any, principal: str | Callable[[Any], str], now: int, most: int, sender: str = ""
) -> list[Incoming | Refusal]:
    """Parse a batch. Returns an event or a refusal for each item, in order.

    A body that is not a batch, or that is too large, is refused as a whole. The principal can depend on the item.
    """
    if not isinstance(body, dict):
        raise RequestRejected(f"a batch is a JSON object with `events`, not {_kind(body)}")
    events = body.get("events")
    if not isinstance(events, list):
        raise RequestRejected(f"`events` must be a list, not {_kind(events)}")
    if len(events) > most:
        raise RequestRejected(f"a batch has at most {most} events, this one {len(events)}; send it in parts")
    inherited = {key: body[key] for key in INHERITED if body.get(key) is not None}
    if "execution_id" in inherited:
        ids.parse_id(inherited["execution_id"], "execution_id")
    answers: list[Incoming | Refusal] = []
    for index, item in enumerate(events):
        try:
            speaker = principal if isinstance(principal, str) else principal(item)
            answers.append(parse_event(item, speaker, now, inherited, sender))
        except NotAllowed as problem:
            answers.append(Refusal(index, 403, str(problem)))
        except RequestRejected as problem:
            answers.append(Refusal(index, 422, str(problem)))
    return answers


# -- name and status --------------------------------------------------------------------------------------------------


def _meaning(name: str, status: str, payload: dict[str, Any], principal: str) -> tuple[str, str, str]:
    """Return the canonical type, the status, and the name if it is neither canonical nor of the lifecycle dialect.

    `status` is '' if the event has none.
    """
    if name in REGISTRY:
        return name, _fitting(name, name, status or status_from_name(name, payload)), ""
    if meaning := legacy.normalised(name, status, payload):
        if status and status != meaning[1] and not name.startswith(legacy.CASE):
            raise RequestRejected(f"{name} cannot have status {STATUS_OUT[status]}")
        return *meaning, name
    rows = lifecycle.BY_NAME.get(name)
    if rows is None:
        if principal == PRODUCER and (spelling := spelled(name)) is not None:
            return _respelled(name, spelling, status, payload, principal)
        names = [*REGISTRY, *legacy.BY_NAME, *lifecycle.BY_NAME]
        raise RequestRejected(f"there is no event type {name!r}{did_you_mean(name, names)}")
    if not status:
        return rows[0].canonical, lifecycle.first_status(rows[0]), ""
    for row in rows:
        if status in (row.statuses or REGISTRY[row.canonical].statuses):
            return row.canonical, status, ""
    raise RequestRejected(f"{name} cannot have status {STATUS_OUT[status]}")


def _respelled(name: str, spelling: str, status: str, payload: dict[str, Any], principal: str) -> tuple[str, str, str]:
    """Return the meaning of a producer's own spelling of a known name, or of a name of the run dialect."""
    if spelling in REGISTRY or spelling in legacy.BY_NAME or spelling in lifecycle.BY_NAME:
        kind, status, _ = _meaning(spelling, status, payload, principal)
        return kind, status, name
    meaning = MEANINGS[spelling][0]
    statuses = meaning.statuses or REGISTRY[meaning.canonical].statuses
    if status and status not in statuses:
        raise RequestRejected(f"{name} cannot have status {STATUS_OUT[status]}")
    return meaning.canonical, status or statuses[0], name


def status_from_name(event_type: str, payload: Mapping[str, Any]) -> str:
    """Return the status that a canonical type implies. A payload with an error decides if the name allows both."""
    statuses = REGISTRY[event_type].statuses
    return ERROR if ERROR in statuses and payload.get("error") else statuses[0]


def _fitting(name: str, kind: str, status: str) -> str:
    if status not in REGISTRY[kind].statuses:
        raise RequestRejected(f"{name} cannot have status {STATUS_OUT[status]}")
    return status


def _status(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return the event's status word in capitals and the canonical status; '' if it has none."""
    if "status" not in fields:
        return "", ""
    word = _text(fields["status"], "status").upper()
    status = STATUS_IN.get(word)
    if status is None:
        raise RequestRejected(f"status {fields['status']!r} is none of {', '.join(STATUS_IN)}")
    return word, status


# -- fields -----------------------------------------------------------------------------------------------------------


def _event(fields: Mapping[str, Any], kind: str, status: str, now: int) -> Event:
    event = Event(kind, now, status="" if status == REGISTRY[kind].statuses[0] else status)
    event.step = _text(_aliased(fields, "step", ""), "step", empty=True)
    if not event.step and REGISTRY[kind].entity in STEP_ENTITIES:
        raise RequestRejected(f"{kind} needs `step` (or `node_name`): the step that it is about")
    if "created_at" in fields:
        event.at = _moment(fields["created_at"])
    if "event_id" in fields:
        event.own_id = ids.parse_id(fields["event_id"], "event_id")
    if "worker_id" in fields:
        event.worker_id = _text(fields["worker_id"], "worker_id", empty=True)
    if not _OF_TASKS.isdisjoint(fields):
        event.task = _text(fields.get("task", ""), "task", empty=True)
        event.run = _run(fields, "step_run_id", event.step)
        event.task_run = _run(fields, "task_run_id", event.task) or int(bool(event.task))
        event.iteration = _iteration(fields)
        event.attempt = _count(fields, "attempt", least=1)
        event.fence = _count(fields, "fence", least=0)
    if "command_id" in fields:
        event.command_id = ids.parse_id(fields["command_id"], "command_id")
    return event


def _aliased(fields: Mapping[str, Any], field: str, default: Any) -> Any:
    other = ALIASES[field]
    if other not in fields:
        return fields.get(field, default)
    if field in fields and fields[field] != fields[other]:
        raise RequestRejected(f"`{field}` and `{other}` are the same field and have different values")
    return fields[other] if field not in fields else fields[field]


def _required(fields: Mapping[str, Any], field: str) -> Any:
    value = _aliased(fields, field, None) if field in ALIASES else fields.get(field)
    if value is None:
        other = f" (or `{ALIASES[field]}`)" if field in ALIASES else ""
        raise RequestRejected(f"`{field}`{other} is missing")
    return value


def _text(value: Any, field: str, *, empty: bool = False) -> str:
    if not isinstance(value, str) or not (value or empty) or len(value) > _LONGEST_TEXT:
        raise RequestRejected(f"`{field}` must be a text of 1 to {_LONGEST_TEXT} characters, not {_kind(value)}")
    return value


def _object(fields: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = fields.get(field, {})
    if not isinstance(value, dict):
        raise RequestRejected(f"`{field}` must be an object, not {_kind(value)}")
    return value


def _payload(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload.

    Producers may send any JSON; a value that is not an object becomes the object's only value.
    """
    value = _aliased(fields, "payload", {})
    return value if isinstance(value, dict) else {"value": value}


def _with_owner(
    payload: dict[str, Any], meta: dict[str, Any], kind: str, principal: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check `payload.source`, which marks an event that the server recorded in place of a worker.

    Only the server may set it; a producer's payload is not changed.
    """
    if principal == SERVER:
        instead = meta.get("source") == "server" and "worker" in REGISTRY[kind].emitters
        return ({**payload, "source": "server"} if instead else payload), meta
    if "source" not in payload or principal == PRODUCER:
        return payload, meta
    others = {key: value for key, value in payload.items() if key != "source"}
    return others, {"source": payload["source"], **meta}


def _moment(value: Any) -> int:
    try:
        moment = ids.micros(_text(value, "created_at"))
        ids.timestamp(moment)
    except (ValueError, OverflowError, RequestRejected):
        raise RequestRejected(
            f"`created_at` {str(value)[:60]!r} is not an RFC 3339 time with its zone, such as 2026-01-31T12:00:00Z"
        ) from None
    return moment


def _run(fields: Mapping[str, Any], field: str, owner: str) -> int:
    if field not in fields:
        return 0
    match = _RUN_ID.fullmatch(_text(fields[field], field))
    if match is None or match["name"] != owner:
        kind = field.partition("_")[0]
        raise RequestRejected(f"`{field}` must be {kind}:{owner or '<name>'}:run:<n>")
    return int(match["run"])


def _iteration(fields: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Parse an iteration: an index, a dotted path or a list of indexes, or the end of an iteration_id."""
    if "iteration_id" in fields:
        value: Any = _text(fields["iteration_id"], "iteration_id").rpartition(":")[2]
    elif "iteration" in fields:
        value = fields["iteration"]
    else:
        return None
    if isinstance(value, str) and _PATH.fullmatch(value):
        return tuple(int(index) for index in value.split("."))
    path = value if isinstance(value, list) else [value]
    if not path or not all(isinstance(index, int) and not isinstance(index, bool) and index >= 0 for index in path):
        raise RequestRejected(
            "`iteration` must be an index from 0, or the indexes from the outermost loop: 3, '3.1', [3, 1]"
        )
    return tuple(path)


def _count(fields: Mapping[str, Any], field: str, least: int) -> int:
    value = fields.get(field, 0)
    if field in fields and (isinstance(value, bool) or not isinstance(value, int) or not least <= value < 1 << 31):
        raise RequestRejected(f"`{field}` must be a whole number from {least}")
    return int(value)


def _server_only_flags(fields: Mapping[str, Any]) -> dict[str, bool]:
    flags = {key: fields[key] for key in SERVER_ONLY if key in fields}
    for key, value in flags.items():
        if not isinstance(value, bool):
            raise RequestRejected(f"`{key}` must be true or false, not {_kind(value)}")
    return flags


# -- result and digest ------------------------------------------------------------------------------------------------


def _result_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return `result_kind`, `result_uri` and `event_ids` as they were sent; {} for data in the payload."""
    kind = request.get("result_kind", DATA)
    if kind not in RESULT_KINDS:
        raise RequestRejected(f"`result_kind` must be one of {', '.join(RESULT_KINDS)}")
    fields: dict[str, Any] = {} if kind == DATA else {"result_kind": kind}
    if "result_uri" in request:
        fields["result_uri"] = _text(request["result_uri"], "result_uri", empty=True)
    if "event_ids" in request:
        listed = request["event_ids"]
        if not isinstance(listed, list):
            raise RequestRejected(f"`event_ids` must be a list, not {_kind(listed)}")
        fields["event_ids"] = [str(ids.parse_id(event_id, "event_ids")) for event_id in listed]
    if kind == REF and not fields.get("result_uri"):
        raise RequestRejected("`result_kind: ref` needs `result_uri`")
    if kind == REFS and not fields.get("event_ids"):
        raise RequestRejected("`result_kind: refs` needs `event_ids`, a list with at least one id")
    return fields


def _digest(execution_id: int, event: Event, status: str) -> str:
    # Digests of older releases must still match: they had the meta, and references, inside the payload.
    payload = {key: value for key, value in event.payload.items() if key != "meta"}
    kind, uri = event.sent.get("result_kind", DATA), event.sent.get("result_uri")
    is_told_already = kind == REF and (result_ref(payload) or {}).get("ref") == uri
    if kind != DATA and not is_told_already:
        payload["result"] = result_of(kind, STATUS_OUT[status], {}, uri, event.sent.get("event_ids"))
    content = [
        execution_id, event.type, event.status, event.step, event.run, event.iteration, event.task, event.task_run,
        event.attempt, event.command_id, event.fence, event.worker_id, payload,
    ]  # fmt: skip
    try:
        return sha256(msgspec.json.encode(content, order="deterministic"))
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as problem:
        raise RequestRejected(f"the event holds a value that cannot be stored: {problem}") from None


def _kind(value: Any) -> str:
    names = {
        type(None): "nothing",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
    }
    return names.get(type(value), "an object")


# Checks of a payload from outside before it is stored: every reader of the log relies on them.
#
# Invariant: a key that the registry describes has the declared type, and an outcome is a valid outcome; other keys
# belong to the sender.


_TASK_ENDS = frozenset({"task.done", "task.failed"})
#: Keys of a plain payload that belong to the outcome.
_OUTCOME_KEYS = ("result_ref", "extracted")

_IS: dict[str, Callable[[Any], bool]] = {
    "any": lambda _: True,
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "list": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


@cache
def _payload_types(event_type: str) -> dict[str, tuple[str, ...]]:
    """Return the payload keys that have a type, with their types."""
    of_type = {field.name: field.types for field in REGISTRY[event_type].payload}
    return {"error": ("object",), "outcome": ("object",), "result_ref": ("object",), **of_type}


def checked(event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    """Check a payload and return it. Null is the same as absent; an error in plain text becomes an error's message."""
    if isinstance(payload.get("error"), str):
        payload = {**payload, "error": {"kind": "exception", "message": payload["error"]}}
    types_of = _payload_types(event_type)
    kept: dict[str, Any] = {}
    for name, value in payload.items():
        types = types_of.get(name)
        if types is not None:
            if value is None and "null" not in types:
                continue
            if not (_IS[types[0]](value) or any(_IS[word](value) for word in types[1:])):
                raise RequestRejected(f"`payload.{name}` of {event_type} must be {' or '.join(types)}")
        kept[name] = value
    payload = kept
    if "outcome" in payload:
        _check_outcome(payload["outcome"])
    return payload


def with_stored_refs(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload with its references in the stored form."""
    outcome = payload.get("outcome")
    if isinstance(outcome, dict) and "result_ref" in outcome:
        payload = {**payload, "outcome": {**outcome, "result_ref": stored_form(outcome["result_ref"])}}
    return {**payload, "result_ref": stored_form(payload["result_ref"])} if "result_ref" in payload else payload


def plain_outcome(event_type: str, payload: dict[str, Any], sent: Any) -> dict[str, Any] | None:
    """Return the outcome of a worker's call.done or call.error whose payload is not an outcome.

    It is an ok outcome with the payload (`sent`) as its result, or an error outcome with all required fields. Returns
    None if the payload has an outcome.
    """
    if event_type not in _TASK_ENDS or "outcome" in payload:
        return None
    outcome: dict[str, Any] = {"status": outcomes.OK if event_type == "task.done" else outcomes.ERROR}
    outcome_keys = [key for key in _OUTCOME_KEYS if key in payload]
    if outcome["status"] == outcomes.ERROR:
        outcome["error"] = as_error(payload.get("error"), "the worker reported the error without a message")
        outcome_keys.append("error")
    outcome |= {key: payload[key] for key in outcome_keys if key != "error"}
    if isinstance(sent, dict):
        others = {key: value for key, value in payload.items() if key not in outcome_keys}
        if others or not outcome_keys:
            outcome["result"] = others
    elif sent is not None:
        outcome["result"] = sent
    return outcome


def _check_outcome(outcome: dict[str, Any]) -> None:
    if outcome.get("status") not in (outcomes.OK, outcomes.ERROR):
        raise RequestRejected(f"`payload.outcome.status` must be {outcomes.OK} or {outcomes.ERROR}")
    for name, types in (
        ("error", ("object", "null")),
        ("meta", ("object", "null")),
        ("data_at", ("string",)),
        ("result_ref", ("object", "null")),
    ):
        if name in outcome and not any(_IS[word](outcome[name]) for word in types):
            raise RequestRejected(f"`payload.outcome.{name}` must be {' or '.join(types)}")
    took = (outcome.get("meta") or {}).get("duration_ms")
    if took is not None and not is_number(took):
        raise RequestRejected("`payload.outcome.meta.duration_ms` must be number")
