"""The `legacy` dialect: names that older executors used, and their meaning today.

Incoming (`normalised`), every known old name is accepted. Outgoing (`LegacyReader`), a type that has an old name is
rendered with it, all others unchanged. If a name alone does not tell success from failure, the status decides.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct

from arclog.dialects.rendering import Envelope, Rendered, camel
from arclog.model.events import ERROR, REGISTRY, SKIPPED, SUCCESS

NAME = "legacy"


class Row(Struct, frozen=True):
    legacy: str
    #: canonical type by status; a single entry under '' if the status makes no difference
    canonical: dict[str, str]
    #: the status that the name alone implies; '' for success unless the event states another
    status: str = ""
    #: whether this name is used for outgoing events
    outwards: bool = False


def _plain(legacy: str, canonical: str, status: str = "", *, outwards: bool = False) -> Row:
    return Row(legacy, {"": canonical}, status or REGISTRY[canonical].statuses[0], outwards)


def _ending(legacy: str, done: str, failed: str, *, outwards: bool = False) -> Row:
    return Row(legacy, {SUCCESS: done, ERROR: failed}, "", outwards)


def _storage() -> tuple[Row, ...]:
    """Return the names of sink.*: storing is a task like any other."""
    return (
        _plain("sink.started", "task.started"),
        _ending("sink.processed", "task.done", "task.failed"),
        _plain("sink.done", "task.done"),
        _plain("sink.completed", "task.done"),
        _plain("sink.failed", "task.failed"),
        _plain("sink.error", "task.failed"),
    )


def _underscored() -> tuple[Row, ...]:
    return (
        _plain("playbook_started", "playbook.started", outwards=True),
        _plain("playbook_initialized", "playbook.started"),
        _plain("playbook_completed", "playbook.finished", SUCCESS, outwards=True),
        _plain("playbook_failed", "playbook.finished", ERROR, outwards=True),
        _plain("playbook_paused", "playbook.paused", outwards=True),
        _plain("playbook_resumed", "playbook.resumed", outwards=True),
        _plain("workflow_started", "workflow.started", outwards=True),
        _plain("workflow_initialized", "workflow.started"),
        _plain("workflow_completed", "workflow.finished", SUCCESS, outwards=True),
        _plain("workflow_failed", "workflow.finished", ERROR, outwards=True),
        _plain("step_scheduled", "step.scheduled", outwards=True),
        _plain("step_started", "step.started", outwards=True),
        _plain("step_completed", "step.done", outwards=True),
        _plain("step_failed", "step.failed", outwards=True),
        _plain("task_started", "task.started"),
        _plain("task_completed", "task.done"),
        _plain("task_failed", "task.failed"),
        _plain("action_started", "task.started"),
        _plain("action_completed", "task.done"),
        _plain("action_failed", "task.failed"),
        _plain("action_error", "task.failed"),
        _plain("loop_started", "loop.started", outwards=True),
        _plain("loop_completed", "loop.done", outwards=True),
        _plain("iteration_started", "loop.iteration.started", outwards=True),
        _plain("iteration_completed", "loop.iteration.done", outwards=True),
        _plain("iteration_failed", "loop.iteration.failed", outwards=True),
        _plain("execution_cancelled", "execution.cancelled", outwards=True),
    )


#: The family of names of routing and policy events, whose status is not used.
CASE = "case"
#: The canonical types of case.* events.
ROUTED = "next.evaluated"
DECIDED = "policy.task.evaluated"
_CASE = tuple(
    Row(f"case.{verb}", {"routed": ROUTED, "decided": DECIDED}, SUCCESS) for verb in ("started", "evaluated", "matched", "processed", "done", "completed")
)  # fmt: skip

TABLE: tuple[Row, ...] = (
    _plain("tool.started", "task.started", outwards=True),
    _ending("tool.processed", "task.done", "task.failed", outwards=True),
    _plain("retry.started", "task.attempt.started", outwards=True),
    _ending("retry.processed", "task.attempt.done", "task.attempt.failed", outwards=True),
    *_storage(),
    *_CASE,
    *_underscored(),
)
BY_NAME: dict[str, Row] = {row.legacy: row for row in TABLE}
_LONGEST_NAME = 128
_ROUTING_KEYS = frozenset({"next", "arcs", "matched", "selected", "routes"})


#: `sink.*` and `case.*` are families: any verb is accepted.
_FAMILY = re.compile(r"(?P<family>sink|case)(?:[._][a-z][a-z0-9]*){0,4}[._](?P<verb>[a-z][a-z0-9]*)")
_STARTS = frozenset({"start", "started", "begin", "began", "enter", "entered", "requested", "scheduled", "initialized"})
_FAILS = frozenset({"fail", "failed", "error", "errored", "exception", "rejected", "timeout"})


@lru_cache(256)
def _of_family(name: str) -> Row | None:
    """Return the row of a family's verb that the table does not list."""
    match = _FAMILY.fullmatch(name) if len(name) <= _LONGEST_NAME else None
    if match is None:
        return None
    if match["family"] == "case":
        return Row(name, {"routed": ROUTED, "decided": DECIDED}, SUCCESS)
    if match["verb"] in _STARTS:
        return _plain(name, "task.started")
    if match["verb"] in _FAILS:
        return _plain(name, "task.failed")
    return _ending(name, "task.done", "task.failed")


def _outwards() -> dict[tuple[str, str], str]:
    names: dict[tuple[str, str], str] = {}
    for row in TABLE:
        if row.outwards:
            for ending, canonical in row.canonical.items():
                allowed = REGISTRY[canonical].statuses
                sure: tuple[str, ...] = (ending,) if ending else (row.status,)
                if row.status == SUCCESS and SKIPPED in allowed:
                    sure = (SUCCESS, SKIPPED)  # older executors had no name for it: the status decides
                statuses = allowed if len(allowed) == 1 else sure
                names |= {(canonical, status): row.legacy for status in statuses}
    return names


#: (canonical type, status) → the old name
OUTWARDS = _outwards()


def normalised(name: str, status: str, payload: dict[str, Any]) -> tuple[str, str] | None:
    """Return the canonical type and status of an old name. `status` is that of the event, '' if it has none."""
    row = BY_NAME.get(name) or _of_family(name)
    if row is None:
        return None
    if "routed" in row.canonical:
        return (ROUTED if _ROUTING_KEYS & payload.keys() else DECIDED), (ERROR if status == ERROR else SUCCESS)
    if "" in row.canonical:
        return row.canonical[""], row.status
    ending = ERROR if status == ERROR or (not status and payload.get("error")) else SUCCESS
    return row.canonical[ending], ending


class LegacyState(Struct):
    """Empty: each event is rendered independently."""


class LegacyReader:
    """Implements `rendering.Reader`."""

    needs: frozenset[str] | None = frozenset()

    def __init__(self, state: LegacyState | None = None) -> None:
        self.state = state or LegacyState()

    def render(self, envelope: Envelope) -> list[Rendered]:
        name = OUTWARDS.get((envelope["event_type"], envelope["status"]))
        if name is None:
            return [Rendered(envelope["event_type"], envelope, envelope)]
        return [Rendered(name, {**envelope, "event_type": name, "event_alias": camel(name)}, envelope)]

    def held_back(self) -> list[Rendered]:
        return []


def canonical(record: Envelope) -> Envelope:
    """Return the envelope from which this record was rendered."""
    match = normalised(record["event_type"], record["status"], record["payload"])
    if match is None:
        return record
    return {**record, "event_type": match[0], "event_alias": REGISTRY[match[0]].alias}
