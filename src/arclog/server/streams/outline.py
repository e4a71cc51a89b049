"""The outline of a log: the subject of each event, in columns, without payloads. The console shows a run of 50,000
events from this and requests only the events in view.

A part covers events of consecutive seqs:

    {"first": 18, "at": "2026-01-31T12:00:00.000000Z", "kinds": [["task.started", "fetch", "get", 1], …],
     "what": [0, 1, …], "item": [1, -1, "3.1", …], "run": [1, 500], "ms": [0, 2, …], "more": {"21": {"total": 6}}}

`what` names a row of `kinds` (event type, step, task, attempt), `item` the item of a loop (-1: none), `run` holds runs of its step
as pairs of value and count, `ms` the milliseconds since the event before, `at` the time of the first. `more` has the few facts of a
payload that moving tokens and counting items needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from arclog.model.ids import micros

#: By event type: the payload's keys that an outline keeps.
_OUTLINE_KEYS = {
    "workflow.started": ("token",),
    "step.scheduled": ("tokens", "total"),
    "loop.started": ("total",),
    "next.evaluated": ("selected",),
    "signal.received": ("signal",),
}


def outline(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts that cover these events, which are canonical records in seq order; one part, unless seqs are missing."""
    parts: list[dict[str, Any]] = []
    begin = 0
    for index in range(1, len(events) + 1):
        if index == len(events) or events[index]["seq"] != events[index - 1]["seq"] + 1:
            parts.append(_part(events[begin:index]))
            begin = index
    return parts if events else []


def outline_frames(events: Sequence[dict[str, Any]]) -> bytes:
    """The same as server-sent events; the id is the last seq of a part."""
    return b"".join(
        f"id: {part['first'] + len(part['what']) - 1}\n".encode() + b"data: " + msgspec.json.encode(part) + b"\n\n"
        for part in outline(events)
    )


def _part(events: Sequence[dict[str, Any]]) -> dict[str, Any]:
    kinds: dict[tuple[str, str, str, int], int] = {}
    fields: list[int] = []
    items: list[int | str] = []
    runs: list[int] = []
    gaps: list[int] = []
    more: dict[str, Any] = {}
    before = micros(events[0]["timestamp"]) // 1000
    for event in events:
        kind = (event["event_type"], event.get("step", ""), event.get("task", ""), event.get("attempt", 0))
        fields.append(kinds.setdefault(kind, len(kinds)))
        items.append(_item(event))
        run = _run(event)
        if runs and runs[-2] == run:
            runs[-1] += 1
        else:
            runs += (run, 1)
        now = micros(event["timestamp"]) // 1000
        gaps.append(now - before)
        before = now
        facts = _facts(event)
        if facts:
            more[str(event["seq"])] = facts
    return {
        "first": events[0]["seq"],
        "at": events[0]["timestamp"],
        "kinds": [list(kind) for kind in kinds],
        "what": fields,
        "item": items,
        "run": runs,
        "ms": gaps,
        "more": more,
    }


def _facts(event: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a payload that the outline needs. Of rules, which every task has, only exceptions: a step
    that is not admitted, a task that does not simply continue. Of the end of a command, only that its task waits, until
    when and for which run.
    """
    payload = event["payload"]
    match event["event_type"]:
        case "policy.task.evaluated":
            action = (payload.get("action") or {}).get("do", "continue")
            return {} if action == "continue" else {"action": {"do": action}}
        case "policy.admit.evaluated":
            return {} if payload.get("allowed", True) else {"allowed": False}
        case "command.completed":  # stored where the task waits, derived elsewhere
            if payload.get("reason") != "suspended":
                return {}
            return {"waits": True, **{key: payload[key] for key in ("until", "child") if key in payload}}
        case kind:
            return {key: payload[key] for key in _OUTLINE_KEYS.get(kind, ()) if key in payload}


def _item(event: dict[str, Any]) -> int | str:
    """-1 outside loops; '3.1' in a nested one."""
    name: str = event.get("iteration_id", "")
    if not name:
        return -1
    path = name.rpartition(":iter:")[2]
    return int(path) if path.isdigit() else path


def _run(event: dict[str, Any]) -> int:
    number: str = event.get("step_run_id", "").rpartition(":")[2]
    return int(number) if number.isdigit() else 0
