"""Events as they are published to other systems: the canonical envelope, with references instead of data.

Invariant: data of playbooks, tasks and callers stays in the log; only the payload keys listed here are published. A
reader that needs the rest reads it by execution_id and seq, with the permissions that this requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Payload keys that are published unchanged: names, numbers and references that arclog itself created.
# fmt: off
_PLAIN = frozenset((
    "allow", "child", "code", "cycle", "depth", "due", "failed", "kill", "losses", "manifest", "matched_rule_index",
    "mode", "ok", "original_run_id", "parent", "path", "plan", "scope", "signal", "signal_id", "skipped", "suspended",
    "timer", "total", "ttl_s", "until", "version", "wait", "waits_for", "worker_id",
))
# fmt: on
#: Texts of people or failures: only the beginning is published.
_TEXTS = frozenset(("reason", "by", "message"))
_MOST_CHARACTERS = 1000

_REF = frozenset(("kind", "store", "ref", "meta"))
_ERROR = frozenset(("kind", "code", "retryable"))
_META = frozenset(("attempt", "duration_ms"))
_ACTION = frozenset(("do", "to", "attempts", "delay", "backoff"))
_ARC = frozenset(("step", "arc"))
#: Keys of an incoming event's meta that the server set.
_SENDER = frozenset(("producer", "legacy_type"))

#: Part of the subject, between the topic and the type, for events of outside producers: subscribers of the server's own
#: events of a type do not receive them.
PRODUCERS = "producer"


def published(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """Return the event in its published form."""
    public = {**envelope, "payload": _payload(envelope["payload"])}
    if "meta" in public:
        public["meta"] = _only(public["meta"], _SENDER)
    return public


def topic_of(envelope: Mapping[str, Any]) -> str:
    """Return the part of an event's subject after the topic."""
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
