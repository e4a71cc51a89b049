"""Builds the first events of a fork or retry from the log of the old run: the head, the complete step runs, then the
partial ones.

Ids are those of the new run: of commands (the id of the event that issues them), of tokens (numbered in order of
creation), of stored results (the same content under the new run's name). Everything else remains as recorded, including
its time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from arclog.history.fork_check import Arcs
from arclog.history.reused_steps import DROP, KEEP, PART, ROUTE, Chosen, part_of
from arclog.history.step_runs import Key, renamed_tasks
from arclog.model.events import Event
from arclog.model.ids import moved
from arclog.plan.program import Program

_ENCODE = msgspec.json.Encoder().encode
_DECODE = msgspec.json.Decoder().decode
_STORING = frozenset({"result.stored", "result.manifest.updated"})


class Origin(Struct, frozen=True):
    """The run that a new run continues."""

    execution_id: int
    run_id: str
    #: seq of the last event of the old run that is considered
    seq: int
    #: retry | fork
    how: str
    #: the step from which a retry continues
    step: str = ""


class Head(Struct, frozen=True):
    """The request with which the new run begins."""

    path: str
    version: int
    workload: dict[str, Any]
    files: dict[str, Any]
    file: str
    #: tenant/project/environment
    scope: str


class FirstEvents(Struct, frozen=True):
    """The first events of a new run."""

    events: list[Event]
    #: for each event, its index in the old log; -1 for a new event
    sources: list[int]
    #: (name, sha256) of the shared stored results
    results: set[tuple[str, str]]


class FirstEventsBuilder:
    """Builds the first events of a new run."""

    def __init__(self, chosen: Chosen, origin: Origin, program: Program, arcs: Arcs, steps: Mapping[str, str]) -> None:
        self._chosen = chosen
        self._log = chosen.log
        self._origin = origin
        #: the program of the new run
        self._program = program
        self._arcs = arcs
        #: old name of a step → its new name
        self._steps = steps
        self._out: list[Event] = []
        self._sources: list[int] = []
        #: index in the old log → index in the new one; -1 if it is not kept
        self._at = [-1] * len(chosen.log.events)
        self._commands: dict[int, int] = {}
        self._tokens: dict[int, int] = {}
        #: number of tokens that fired joins still absorb, by step and place
        self._owed: dict[tuple[str, str], int] = {}
        self._base = 0

    def build(self, head: Head, execution_id: int, base_id: int, now: int) -> FirstEvents:
        """Build the events. `base_id` is the event_id of the first one. Events of the old log are moved to the new run,
        so the log must not be used afterwards.
        """
        self._base = base_id
        self._rename_tasks()
        self._head(head, now)
        runs, beside = self._chosen.runs, self._chosen.beside
        step, run, how = "", 0, DROP
        changes = self._payloads.keys()
        out, sources, at = self._out, self._sources, self._at
        can_stay = not self._steps
        first = self._log.started + 1
        for index, event in enumerate(islice(self._log.events, first, None), first):
            if (
                can_stay
                and event.run == run
                and event.step == step
                and how == KEEP
                and event.type not in changes
                and not event.cause
                and not event.command_id
                and not event.informative
                and not event.sent
                and not event.own_id
            ):
                at[index] = len(out)  # most events of tasks and items stay unchanged
                out.append(event)
                sources.append(index)
            elif event.run:
                if event.informative:
                    continue
                if event.run != run or event.step != step:
                    step, run = event.step, event.run
                    how = runs.get((step, run), DROP)
                if how == KEEP or (how == ROUTE and event.type != "next.evaluated"):
                    self._keep(index, event)
            elif index in beside and self._has_place(index, event):
                self._keep(index, event)
        for key, how in runs.items():
            if how == PART:
                self._part(key, now)
        results = self._share_results(execution_id)
        self._out[0].payload["origin"]["events"] = len(self._out)
        return FirstEvents(self._out, self._sources, results)

    def _rename_tasks(self) -> None:
        names = renamed_tasks(self._steps, self._program)
        if not names:
            return
        for event in self._log.events:
            if event.task and event.step in names and event.task == names[event.step][0]:
                event.task = names[event.step][1]

    def _has_place(self, index: int, event: Event) -> bool:
        """Return whether an event outside of step runs is kept. An admission that started a step stays with its step
        run.
        """
        if event.type != "policy.admit.evaluated" or not event.payload.get("allow"):
            return True
        behind = self._log.events[index + 1] if index + 1 < len(self._log.events) else None
        if behind is None or behind.type != "step.scheduled" or behind.step != event.step:
            return False
        return self._chosen.runs.get((behind.step, behind.run)) in (KEEP, ROUTE)

    # -- the head ------------------------------------------------------------------------------------------------------

    def _head(self, head: Head, now: int) -> None:
        request = self._log.events[0].payload
        old = self._origin
        origin: dict[str, Any] = {"execution_id": str(old.execution_id), "seq": old.seq, "how": old.how}
        if old.step:
            origin["step"] = old.step
        payload: dict[str, Any] = {"path": head.path, "version": str(head.version), "plan": self._program.digest}
        if head.workload:
            payload["workload"] = head.workload
        if head.scope:
            payload["scope"] = head.scope
        if "priority" in request:
            payload["priority"] = request["priority"]
        if head.files:
            payload["files"] = head.files
        if head.file:
            payload["file"] = head.file
        payload |= {"original_run_id": old.run_id, "origin": origin}
        started = self._log.events[self._log.started]
        self._tokens[started.payload["token"]] = 1
        self._add(Event("playbook.execution.requested", now, payload=payload))
        self._add(Event("playbook.request.evaluated", now, cause=1))
        self._add(Event("playbook.started", now, cause=2))
        self._add(Event("workflow.started", now, cause=3, payload={"token": 1}), self._log.started)

    # -- complete step runs --------------------------------------------------------------------------------------------

    def _keep(self, index: int, event: Event) -> None:
        if event.own_id or event.sent:
            event.own_id, event.sent = 0, {}
        if event.cause:
            cause = self._at[index - event.cause] if event.cause <= index else -1
            event.cause = 0 if cause < 0 else len(self._out) - cause
        if event.command_id:
            event.command_id = self._command(event)
        payload = self._payloads.get(event.type)
        if payload is not None:
            event.payload = payload(self, event)
        if self._steps and event.step in self._steps:
            event.step = self._steps[event.step]
        self._at[index] = len(self._out)
        self._out.append(event)
        self._sources.append(index)

    def _command(self, event: Event) -> int:
        """Return the id of an event's command, which is the id of the event that issues it."""
        command_id = self._commands.get(event.command_id)
        if command_id is None:
            command_id = self._commands[event.command_id] = moved(self._base, len(self._out))
        return command_id

    def _scheduled(self, event: Event) -> dict[str, Any]:
        step = self._steps.get(event.step, event.step)
        payload = event.payload
        if "absorbs" in payload:
            absorbs = [self._arcs.place(place) for place in payload["absorbs"]]
            for place in absorbs:
                self._owed[step, place] = self._owed.get((step, place), 0) + 1
            payload = {**payload, "absorbs": absorbs}
        if "tokens" in payload:
            payload = {**payload, "tokens": [self._tokens[token] for token in payload["tokens"]]}
        return payload

    def _routed(self, event: Event) -> dict[str, Any]:
        selected = event.payload.get("selected")
        if not selected:
            return event.payload
        return {**event.payload, "selected": [self._selected(event.step, choice) for choice in selected]}

    def _selected(self, step: str, choice: dict[str, Any]) -> dict[str, Any]:
        made = {**choice, "arc": self._arcs.index(step, choice)}
        if choice.get("step") in self._steps:
            made["step"] = self._steps[choice["step"]]
        if "token" in choice:
            made["token"] = self._tokens[choice["token"]] = len(self._tokens) + 1
        if choice.get("absorbed"):
            arc = self._arcs.arc(self._steps.get(step, step), made["arc"])
            owed = ("", "") if arc is None else (arc.target, arc.place)
            if self._owed.get(owed):
                self._owed[owed] -= 1
            else:
                del made["absorbed"]  # the join fires again, with this token
        return made

    def _signalled(self, event: Event) -> dict[str, Any]:
        payload = event.payload
        if payload.get("token") is None:
            return payload
        token = self._tokens[payload["token"]] = len(self._tokens) + 1
        return {**payload, "token": token}

    #: event type → its payload in the new run. No bound methods: a builder that refers to itself would keep a long log in
    #: memory until the next garbage collection, which then takes a tenth of the whole time.
    _payloads: ClassVar[dict[str, Callable[[FirstEventsBuilder, Event], dict[str, Any]]]] = {
        "step.scheduled": _scheduled,
        "policy.admit.evaluated": _scheduled,
        "next.evaluated": _routed,
        "signal.received": _signalled,
    }

    # -- partial step runs
    # -----------------------------------------------------------------------------------------------

    def _part(self, key: Key, now: int) -> None:
        run = self._log.runs[key]
        name = self._steps.get(run.key[0], run.key[0])
        step = self._program.steps.get(name)
        if step is None:
            return
        is_one_command = bool(self._log.events[run.scheduled].command_id)
        events = part_of(self._log.events, run, step, now, items_again=self._chosen.items_again)
        if not events:
            return
        looped = "total" in events[0].payload or "expand" in events[0].payload
        is_renamed = name != run.key[0]
        for event in events:
            if event.type == "step.scheduled":
                event.payload = self._scheduled(event)
                if not looped or is_one_command:
                    event.command_id = moved(self._base, len(self._out))
            elif event.type == "command.issued":
                event.command_id = moved(self._base, len(self._out))
            if is_renamed:
                event.step = name
            self._out.append(event)
        self._sources += [run.scheduled] * len(events)
        self._at[run.scheduled] = len(self._out) - 1

    # -- stored results ----------------------------------------------------------------------------------------------------

    def _share_results(self, execution_id: int) -> set[tuple[str, str]]:
        """Rename the stored results to the new run. Those of step runs that are not kept stay with the old run."""
        names: set[tuple[str, str]] = set()
        loops = False
        for event in self._out:
            if event.type in _STORING:
                ref = (event.payload.get("result_ref") or {}).get("ref", "")
                if ref:
                    name, sha256 = ref.rsplit("/", 2)[-2:]
                    names.add((name, sha256))
                loops = loops or "manifest" in event.payload
        if not names and not loops:
            return names
        old, new = str(self._origin.execution_id).encode(), str(execution_id).encode()
        old_prefix = b"noetl://execution/" + old + b"/"
        pattern = re.compile(
            rb"noetl://execution/"
            + old
            + rb'/(?:result/([^/"]+)/([0-9a-f]{64})|loop/[^"]*"(?:,"execution_id":"'
            + old
            + rb'")?)'
        )

        def renamed(match: re.Match[bytes]) -> bytes:
            if match[1] is not None and (match[1].decode(), match[2].decode()) not in names:
                return match[0]
            return (
                match[0]
                .replace(old_prefix, b"noetl://execution/" + new + b"/")
                .replace(b'"' + old + b'"', b'"' + new + b'"')
            )

        for event in self._out:
            if event.payload:
                body = _ENCODE(event.payload)
                if old_prefix in body:
                    event.payload = _DECODE(pattern.sub(renamed, body))
        return names

    def _add(self, event: Event, source: int = -1) -> None:
        if source >= 0:
            self._at[source] = len(self._out)
        self._out.append(event)
        self._sources.append(source)
