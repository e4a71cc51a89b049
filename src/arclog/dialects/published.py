"""Events as they are published to the outside: the canonical envelope, its payload by reference only.

Law: what a playbook, a task or a caller said stays in the log; a payload key is published because it stands in the list here.
Whoever needs the rest reads it by execution_id and seq, with the rights that this takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Keys of any payload that are passed on as they are: names, numbers and references that arclog itself made.
# fmt: off
_PLAIN = frozenset((
    "allow", "child", "code", "cycle", "depth", "due", "failed", "kill", "losses", "manifest", "matched_rule_index",
    "mode", "ok", "original_run_id", "parent", "path", "plan", "scope", "signal", "signal_id", "skipped", "suspended",
    "timer", "total", "ttl_s", "until", "version", "wait", "waits_for", "worker_id",
))
# fmt: on
#: Written by people, or by what failed: the beginning.
_TEXTS = frozenset(("reason", "by", "message"))
_MOST_CHARACTERS = 1000

_REF = frozenset(("kind", "store", "ref", "meta"))
_ERROR = frozenset(("kind", "code", "retryable"))
_META = frozenset(("attempt", "duration_ms"))
_ACTION = frozenset(("do", "to", "attempts", "delay", "backoff"))
_ARC = frozenset(("step", "arc"))
#: Of the meta that came over the wire: what the server put there.
_SENDER = frozenset(("producer", "legacy_type"))

#: Between the topic's subject and the type of an event that an outside producer sent: nobody who listens for the server's
#: own events of a type hears it.
PRODUCERS = "producer"


def published(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """The event as it is published."""
    public = {**envelope, "payload": _payload(envelope["payload"])}
    if "meta" in public:
        public["meta"] = _only(public["meta"], _SENDER)
    return public


def topic_of(envelope: Mapping[str, Any]) -> str:
    """The words of an event's subject behind those of the topic."""
    event_type: str = envelope["event_type"]
    return f"{PRODUCERS}.{event_type}" if envelope["source"] == "producer" else event_type


def _payload(payload: Mapping[str, Any]) -> dict[str, Any]:
    public: dict[str, Any] = {}
    for key, value in payload.items():
        if key in _PLAIN:
            public[key] = value
        elif key in _TEXTS and isinstance(value, str):
            public[key] = _beginning(value)
        elif isinstance(value, Mapping):
            if key == "error":
                public[key] = _error(value)
            elif key == "outcome":
                public[key] = _outcome(value)
            elif key == "result_ref":
                public[key] = _only(value, _REF)
            elif key == "action":
                public[key] = _only(value, _ACTION)
        elif key == "selected" and isinstance(value, list):
            public[key] = [_only(arc, _ARC) for arc in value if isinstance(arc, Mapping)]
    return public


def _outcome(outcome: Mapping[str, Any]) -> dict[str, Any]:
    public: dict[str, Any] = {"status": outcome.get("status")}
    if isinstance(outcome.get("error"), Mapping):
        public["error"] = _error(outcome["error"])
    if isinstance(outcome.get("meta"), Mapping):
        public["meta"] = _only(outcome["meta"], _META)
    if isinstance(outcome.get("result_ref"), Mapping):
        public["result_ref"] = _only(outcome["result_ref"], _REF)
    return public


def _error(error: Mapping[str, Any]) -> dict[str, Any]:
    public = _only(error, _ERROR)
    if isinstance(error.get("message"), str):
        public["message"] = _beginning(error["message"])
    return public


def _only(record: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key in keys}


def _beginning(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}… ({len(text)} characters)"
