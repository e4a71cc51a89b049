"""The `lifecycle` dialect: the names of the status layers (playbook.initialized, step.enter, call.done …).

`TABLE` defines both directions. The `status` of a rendered event is the state of its layer after the event. Types that
are not in the table are rendered unchanged. An informational event gets only the name: it changes no layer, so it keeps
its canonical status. `canonical` inverts the rendering: derived command facts are dropped, everything else is restored.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.dialects import commands
from arclog.dialects.rendering import Envelope, Rendered, camel, is_fact_only, same_task_run
from arclog.model import status as layers
from arclog.model.events import ERROR, REGISTRY, SKIPPED, SUCCESS

NAME = "lifecycle"


class Row(Struct, frozen=True):
    canonical: str
    #: statuses that the row applies to; () for all statuses of the type
    statuses: tuple[str, ...]
    name: str
    #: state of its layer after the event
    state: str
    layer: str


TABLE: tuple[Row, ...] = (
    Row("playbook.started", (), "playbook.initialized", layers.RUNNING, "playbook"),
    Row("workflow.started", (), "workflow.initialized", layers.RUNNING, "workflow"),
    Row("workflow.finished", (SUCCESS,), "workflow.completed", layers.COMPLETED, "workflow"),
    Row("workflow.finished", (ERROR,), "workflow.failed", layers.FAILED, "workflow"),
    Row("step.started", (), "step.enter", layers.RUNNING, "step"),
    Row("task.done", (), "call.done", layers.COMPLETED, "tool"),
    Row("task.failed", (), "call.error", layers.FAILED, "tool"),
    Row("step.done", (), "step.exit", layers.COMPLETED, "step"),
    Row("step.failed", (), "step.exit", layers.FAILED, "step"),
    Row("playbook.paused", (), "playbook.paused", "PAUSED", "playbook"),
    Row("playbook.resumed", (), "playbook.resumed", layers.RUNNING, "playbook"),
    Row("playbook.finished", (SUCCESS,), "playbook.completed", layers.COMPLETED, "playbook"),
    Row("playbook.finished", (ERROR,), "playbook.failed", layers.FAILED, "playbook"),
    Row("execution.cancelled", (), "execution.cancelled", layers.CANCELLED, "playbook"),
    Row("command.issued", (), "command.issued", layers.ISSUED, "command"),
    Row("command.claimed", (), "command.claimed", layers.CLAIMED, "command"),
    Row("command.started", (), "command.started", layers.RUNNING, "command"),
    Row("command.completed", (), "command.completed", layers.COMPLETED, "command"),
    Row("command.failed", (), "command.failed", layers.FAILED, "command"),
    Row("command.cancelled", (), "command.cancelled", layers.CANCELLED, "command"),
)

#: names of the tool layer for the policy's decision about an ok outcome: pagination jumps back, so its outcome is not a
#: result
TOOL_STATES = {"break": layers.BREAK, "jump": layers.NOOP}

_ROWS: dict[tuple[str, str], Row] = {
    (row.canonical, status): row for row in TABLE for status in row.statuses or REGISTRY[row.canonical].statuses
}
#: name → its rows, in the order of the table
BY_NAME: dict[str, tuple[Row, ...]] = {
    row.name: tuple(other for other in TABLE if other.name == row.name) for row in TABLE
}
#: (name, state) → row; the state distinguishes types that share a name
_BACK: dict[tuple[str, str], Row] = {(row.name, row.state): row for row in TABLE} | {
    ("step.exit", layers.CASE_HANDLED): next(row for row in TABLE if row.canonical == "step.done")
}


class LifecycleState(Struct):
    """The state of the dialect's reader."""

    work: commands.OpenWork = {}
    #: step_run_id → whether the last outcome of its pipeline was an error; without loops
    last_was_error: dict[str, bool] = {}
    #: a task's ok end, held back because the next event may be a policy decision to break or jump
    held: Envelope | None = None


class LifecycleReader:
    """Implements `rendering.Reader`."""

    needs: frozenset[str] | None = None

    def __init__(self, state: LifecycleState | None = None) -> None:
        self.state = state or LifecycleState()

    def render(self, envelope: Envelope) -> list[Rendered]:
        rendered = self._release(envelope)
        state = self.state
        rendered += [_with_state(fact) for fact in commands.before(state.work, envelope)]
        _remember_outcome(state, envelope)
        if envelope["event_type"] == "task.done" and not is_fact_only(envelope):
            state.held = envelope
        else:
            rendered.append(_spelled(envelope, _state_of(state, envelope)))
        rendered += [_with_state(fact) for fact in commands.after(state.work, envelope)]
        if envelope["event_type"] in ("step.done", "step.failed") and not is_fact_only(envelope):
            state.last_was_error.pop(envelope.get("step_run_id", ""), None)
        return rendered

    def held_back(self) -> list[Rendered]:
        return self._release(None)

    def _release(self, following: Envelope | None) -> list[Rendered]:
        held, self.state.held = self.state.held, None
        if held is None:
            return []
        word = layers.OK
        decided = following is not None and following["event_type"] == "policy.task.evaluated"
        if following is not None and decided and not is_fact_only(following) and same_task_run(held, following):
            word = TOOL_STATES.get(following["payload"].get("action", {}).get("do", ""), layers.OK)
        return [_spelled(held, word)]


def row_of(event_type: str, status: str) -> Row | None:
    """Return the table's row for a canonical type with this status; None if the type is rendered unchanged."""
    return _ROWS.get((event_type, status))


def meaning_of(name: str, state: str) -> Row | None:
    """Return the row of a lifecycle name with this state."""
    return _BACK.get((name, state))


def canonical(record: Envelope) -> Envelope | None:
    """Return the envelope from which this record was rendered; None for a derived fact, which is not a stored event."""
    if record.get("derived"):
        return None
    if is_fact_only(record):
        return _canonical_fact(record)
    row = meaning_of(record["event_type"], record["status"])
    if row is None:
        return record
    payload = dict(record["payload"])
    payload.pop("state", None)
    status = SKIPPED if payload.pop("skipped_step", False) else first_status(row)
    alias = REGISTRY[row.canonical].alias
    return {**record, "event_type": row.canonical, "event_alias": alias, "status": status, "payload": payload}


def _canonical_fact(record: Envelope) -> Envelope:
    for row in TABLE:
        if row.name == record["event_type"] and record["status"] in (row.statuses or REGISTRY[row.canonical].statuses):
            return {**record, "event_type": row.canonical, "event_alias": REGISTRY[row.canonical].alias}
    return record


def first_status(row: Row) -> str:
    """Return the status of the canonical event that a name stands for."""
    return (row.statuses or REGISTRY[row.canonical].statuses)[0]


def _remember_outcome(state: LifecycleState, envelope: Envelope) -> None:
    kind = envelope["event_type"]
    if kind in ("task.done", "task.failed") and "iteration_id" not in envelope and not is_fact_only(envelope):
        state.last_was_error[envelope.get("step_run_id", "")] = kind == "task.failed"


def _state_of(state: LifecycleState, envelope: Envelope) -> str:
    """Return the state if the table alone does not determine it, else ''."""
    kind = envelope["event_type"]
    if kind == "task.failed":
        return layers.ERROR
    handled = kind == "step.done" and state.last_was_error.get(envelope.get("step_run_id", ""))
    return layers.CASE_HANDLED if handled and envelope["status"] != SKIPPED else ""


def _spelled(envelope: Envelope, word: str) -> Rendered:
    row = row_of(envelope["event_type"], envelope["status"])
    if row is None:
        return Rendered(envelope["event_type"], envelope, envelope)
    if is_fact_only(envelope):
        return Rendered(row.name, {**envelope, "event_type": row.name, "event_alias": camel(row.name)}, envelope)
    payload: dict[str, Any] = envelope["payload"]
    status = row.state
    if row.layer == "tool":
        payload = {**payload, "state": word}
    elif word:
        status = word
    if envelope["status"] == SKIPPED:
        payload = {**payload, "skipped_step": True}
    record = {**envelope, "event_type": row.name, "event_alias": camel(row.name), "status": status, "payload": payload}
    return Rendered(row.name, record, envelope)


def _with_state(fact: Rendered) -> Rendered:
    row = row_of(fact.name, fact.record["status"])
    if row is None:
        return fact
    return Rendered(fact.name, {**fact.record, "status": row.state}, fact.source, derived=True)
