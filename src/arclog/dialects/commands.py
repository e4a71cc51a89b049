"""The command.* facts that the log does not store in the ordinary case, derived from other events.

A command is issued with `step.scheduled`; it is claimed and started where an event first carries its fence; it is
completed with the last loop item that it covers, or with its step run. A command that comes back without a report was
claimed as well. A fact that is stored as an event is never rendered twice.
"""

from __future__ import annotations

from msgspec import Struct

from arclog.dialects.rendering import Envelope, Rendered, camel, is_fact_only, iteration_of

ISSUED = "command.issued"
CLAIMED = "command.claimed"
STARTED = "command.started"
COMPLETED = "command.completed"

#: name → (emitter, canonical status)
_FACTS = {
    ISSUED: ("server", "in_progress"),
    CLAIMED: ("server", "in_progress"),
    STARTED: ("worker", "in_progress"),
    COMPLETED: ("worker", "success"),
}
_COMES_BACK = frozenset({ISSUED, "command.failed"})
_STEP_ENDS = frozenset({"step.done", "step.failed"})
_ITERATION_ENDS = frozenset({"loop.iteration.done", "loop.iteration.failed"})
_RUN_ENDS = frozenset({"playbook.finished", "execution.cancelled"})
#: keys of the source that a derived fact repeats
_SHARED = (
    "timestamp", "persisted_at", "execution_id", "seq", "workflow_run_id", "step", "step_run_id",
    "tenant_id", "project_id", "environment_id",
)  # fmt: skip


class Work(Struct, omit_defaults=True):
    """An open command, or the remaining items of a command while one of its tasks waits."""

    #: '' while no command covers the items
    command_id: str
    #: whether no claim is known since it was last offered
    offered: bool = True
    #: highest fence of a known claim, and of a known start
    claimed: int = 0
    started: int = 0
    worker_id: str = ""
    #: the loop items that it covers: [first, last) of `path`; None outside loops
    path: tuple[int, ...] | None = None
    first: int = 0
    last: int = 0
    #: number of those items that have not ended
    left: int = 0

    def covers(self, iteration: tuple[int, ...] | None) -> bool:
        if self.path is None or iteration is None:
            return self.path is None and iteration is None
        return iteration[:-1] == self.path and self.first <= iteration[-1] < self.last


#: step_run_id → its commands
OpenWork = dict[str, list[Work]]


def before(work: OpenWork, envelope: Envelope) -> list[Rendered]:
    """Return the facts that precede this event: a worker claimed the command, and started it."""
    if is_fact_only(envelope):
        return []
    command = _by_command(work, envelope)
    if command is None:
        return []
    names: list[str] = []
    if envelope["event_type"] in _COMES_BACK and command.offered:
        # The holder lost or returned it before it reported anything.
        command.claimed, command.worker_id = command.claimed + 1, envelope["payload"].get("worker_id", "")
        names = [CLAIMED]
    elif not envelope["event_type"].startswith("command.") and envelope.get("fence", 0) > command.started:
        names = [CLAIMED, STARTED] if command.offered else [STARTED]
        command.claimed = command.started = envelope["fence"]
        command.worker_id, command.offered = envelope.get("worker_id", ""), False
    return [_fact(name, command, envelope, number) for number, name in enumerate(names, 1)]


def after(work: OpenWork, envelope: Envelope) -> list[Rendered]:
    """Return the facts that accompany this event: a command was issued or completed."""
    kind = envelope["event_type"]
    if is_fact_only(envelope):
        return []
    if kind in _RUN_ENDS:
        work.clear()
        return []
    if kind.startswith("command."):
        _stored(work, envelope)
        return []
    key = envelope.get("step_run_id", "")
    if kind == "step.scheduled" and "command_id" in envelope:
        total = envelope["payload"].get("total")
        command = Work(envelope["command_id"])
        if total is not None:
            command = Work(envelope["command_id"], path=(), last=total, left=total)
        work.setdefault(key, []).append(command)
        return [_fact(ISSUED, command, envelope, 1)]
    if kind in _STEP_ENDS:
        return _completions(work.pop(key, []), envelope)
    if kind in _ITERATION_ENDS:
        return _iteration_ended(work, key, envelope)
    return []


def _iteration_ended(work: OpenWork, key: str, envelope: Envelope) -> list[Rendered]:
    path = iteration_of(envelope)
    for command in work.get(key, ()):
        if command.path is not None and command.covers(path):
            command.left -= 1
            if command.left:
                return []
            work[key].remove(command)
            return _completions([command], envelope)
    return []


def _stored(work: OpenWork, envelope: Envelope) -> None:
    """Update the state with a stored command event, which is rendered as it is."""
    kind = envelope["event_type"]
    command = _by_command(work, envelope)
    if kind == ISSUED:
        if command is None:
            _issued(work, envelope)
        else:
            command.offered = True
    elif command is None:
        return
    elif kind == CLAIMED:
        command.claimed, command.worker_id, command.offered = envelope["fence"], envelope.get("worker_id", ""), False
    elif kind == STARTED:
        command.started = max(command.started, envelope.get("fence", 0))
    elif kind == COMPLETED:
        # Its task waits. Another command continues the remaining items, unless the server ends them meanwhile.
        command.command_id, command.claimed, command.started, command.offered = "", 0, 0, True
    else:
        work[envelope["step_run_id"]].remove(command)


def _issued(work: OpenWork, envelope: Envelope) -> None:
    own = work.setdefault(envelope.get("step_run_id", ""), [])
    items = envelope["payload"].get("items")
    if items is not None:
        path, first, last = items
        own.append(Work(envelope["command_id"], path=tuple(path), first=first, last=last, left=last - first))
        return
    path = iteration_of(envelope)
    for command in own:
        if not command.command_id and command.covers(path):
            command.command_id = envelope["command_id"]
            return
    own.append(Work(envelope["command_id"]))


def _by_command(work: OpenWork, envelope: Envelope) -> Work | None:
    wanted = envelope.get("command_id")
    if wanted is None:
        return None
    return next(
        (command for command in work.get(envelope.get("step_run_id", ""), ()) if command.command_id == wanted), None
    )


def _completions(ended: list[Work], envelope: Envelope) -> list[Rendered]:
    out = [command for command in ended if command.command_id]
    return [_fact(COMPLETED, command, envelope, number) for number, command in enumerate(out, 1)]


def _fact(name: str, command: Work, source: Envelope, number: int) -> Rendered:
    """Build the record of a derived fact. Its id names the source; since it is not stored, it cannot be posted."""
    said_by, status = _FACTS[name]
    stage = name.rpartition(".")[2]
    record: Envelope = {
        "event_id": f"{source['event_id']}:{stage}:{number}",
        "event_type": name,
        "event_alias": camel(name),
        "source": said_by,
        "entity_type": "command",
        "entity_id": command.command_id,
        "status": status,
        "cause_id": source["event_id"],
        "command_id": command.command_id,
        "derived": True,
    }
    record |= {key: source[key] for key in _SHARED if key in source}
    if "step_run_id" in source:
        record["parent_id"] = source["step_run_id"]
    if name != ISSUED:
        record["fence"] = command.claimed
    if name != ISSUED and command.worker_id:  # a command that RETRY_STEP withdrew before any report has no known worker
        record["worker_id"] = command.worker_id
    return Rendered(name, {**record, "payload": {}}, source, derived=True)
