"""An event as a line of a golden log: what differs between machines and times is left out."""

from __future__ import annotations

import json
import re
from typing import Any

from arclog.model.events import REGISTRY, Event

#: Ids and hashes.
_ID, _HASH = re.compile(r"\b\d{17,19}\b"), re.compile(r"\b[0-9a-f]{64}\b")


def line(seq: int, event: Event) -> str:
    place = ""
    if event.step:
        iteration = "" if event.iteration is None else f"[{'.'.join(map(str, event.iteration))}]"
        place = f" {event.step}#{event.run}{iteration}" if event.run else f" {event.step}"
    if event.task:
        place += f" {event.task}#{event.task_run}"
    if event.attempt:
        place += f" @{event.attempt}"
    status = f" ({event.status})" if event.status and event.status != REGISTRY[event.type].statuses[0] else ""
    cause = f" <{seq - event.cause}" if event.cause else ""
    report = f" report {event.report}" if event.report else ""
    payload = tidied(event.payload, event.at)
    return f"{seq:3} {event.type}{place}{status}{cause}{report}" + (f" {json.dumps(payload)}" if payload else "")


def tidied(value: Any, at: int) -> Any:
    """Without plan hash, durations and absolute times."""
    if isinstance(value, dict):
        kept = {key: tidied(part, at) for key, part in value.items() if key not in {"plan", "duration_ms", "scope"}}
        if "due" in value:
            kept["due"] = f"+{(value['due'] - at) / 1_000_000:g} s"
        if isinstance(value.get("child"), str):
            kept["child"] = "<id>"
        if isinstance(value.get("until"), int):
            kept["until"] = f"+{(value['until'] - at) / 1_000_000:g} s"
        return kept
    if isinstance(value, list):
        return [tidied(part, at) for part in value]
    return value


def without_ids(text: str) -> str:
    return _HASH.sub("<hash>", _ID.sub("<id>", text))
