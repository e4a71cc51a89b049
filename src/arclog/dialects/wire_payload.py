"""What a payload from outside must look like before it is stored: every reader of the log relies on it.

Law: a key that the registry describes has the type that it says, and an outcome is one; the rest is the sender's own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from arclog.model.errors import RequestRejected
from arclog.model.events import REGISTRY
from arclog.model.outcome import ERROR, OK, as_error
from arclog.model.refs import stored_form


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TASK_ENDS = frozenset({"task.done", "task.failed"})
#: keys of a plain payload that are the outcome's own
_OUTCOME_KEYS = ("result_ref", "extracted")

_IS: dict[str, Callable[[Any], bool]] = {
    "any": lambda _: True,
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "list": lambda value: isinstance(value, list),
    "null": lambda value: value is None,
}


@cache
def _known(event_type: str) -> dict[str, tuple[str, ...]]:
    """The keys of a payload that have a type, and their types."""
    of_type = {field.name: field.types for field in REGISTRY[event_type].payload}
    return {"error": ("object",), "outcome": ("object",), "result_ref": ("object",), **of_type}


def checked(event_type: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload, if it can be stored. Null is the same as absent; an error in plain text becomes an error's message."""
    if isinstance(payload.get("error"), str):
        payload = {**payload, "error": {"kind": "exception", "message": payload["error"]}}
    known = _known(event_type)
    kept: dict[str, Any] = {}
    for name, value in payload.items():
        types = known.get(name)
        if types is not None:
            if value is None and "null" not in types:
                continue
            if not any(_IS[word](value) for word in types):
                raise RequestRejected(f"`payload.{name}` of {event_type} must be {' or '.join(types)}")
        kept[name] = value
    payload = kept
    if "outcome" in payload:
        _check_outcome(payload["outcome"])
    return payload


def with_stored_refs(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload with its references as logs hold them."""
    outcome = payload.get("outcome")
    if isinstance(outcome, dict) and "result_ref" in outcome:
        payload = {**payload, "outcome": {**outcome, "result_ref": stored_form(outcome["result_ref"])}}
    return {**payload, "result_ref": stored_form(payload["result_ref"])} if "result_ref" in payload else payload


def plain_outcome(event_type: str, payload: dict[str, Any], sent: Any) -> dict[str, Any] | None:
    """The outcome that a worker's call.done or call.error means whose payload (`sent` as it came) is not an outcome itself: an
    ok outcome with that result, or an error outcome with the fields that its error lacks. None: it says its outcome.
    """
    if event_type not in _TASK_ENDS or "outcome" in payload:
        return None
    outcome: dict[str, Any] = {"status": OK if event_type == "task.done" else ERROR}
    named = [key for key in _OUTCOME_KEYS if key in payload]
    if outcome["status"] == ERROR:
        outcome["error"] = as_error(payload.get("error"), "the worker reported the error without a message")
        named.append("error")
    outcome |= {key: payload[key] for key in named if key != "error"}
    if isinstance(sent, dict):
        rest = {key: value for key, value in payload.items() if key not in named}
        if rest or not named:
            outcome["result"] = rest
    elif sent is not None:
        outcome["result"] = sent
    return outcome


def _check_outcome(outcome: dict[str, Any]) -> None:
    if outcome.get("status") not in (OK, ERROR):
        raise RequestRejected(f"`payload.outcome.status` must be {OK} or {ERROR}")
    for name, types in (
        ("error", ("object", "null")),
        ("meta", ("object", "null")),
        ("data_at", ("string",)),
        ("result_ref", ("object", "null")),
    ):
        if name in outcome and not any(_IS[word](outcome[name]) for word in types):
            raise RequestRejected(f"`payload.outcome.{name}` must be {' or '.join(types)}")
    took = (outcome.get("meta") or {}).get("duration_ms")
    if took is not None and not _is_number(took):
        raise RequestRejected("`payload.outcome.meta.duration_ms` must be number")
