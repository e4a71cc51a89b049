"""The step runs of a log: the tokens that each consumed and created, and its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from arclog.core.transitions.apply import newer_log
from arclog.model.events import REGISTRY, Event, is_closing, is_newer
from arclog.plan.program import Program

#: Events that concern a step run as a whole.
BOUNDARIES = frozenset({"step.scheduled", "step.done", "step.failed", "next.evaluated", "loop.done"})
_TYPE, _VERSION = attrgetter("type"), attrgetter("version")
#: (step, run)
Key = tuple[str, int]


def first_newer(events: Sequence[Event]) -> int:
    """Return the index of the first event that only a newer release understands, or -1 if there is none."""
    if REGISTRY.keys() >= set(map(_TYPE, events)) and {1} >= set(map(_VERSION, events)):
        return -1
    return next((index for index, event in enumerate(events) if is_newer(event) and not event.informative), -1)


def check_release(execution_id: int, events: Sequence[Event]) -> None:
    """Raise NewerLog if a newer release wrote an event of the log, since its effects are unknown here."""
    index = first_newer(events)
    if index >= 0:
        raise newer_log(execution_id, index + 1, events[index])


def renamed_tasks(steps: Mapping[str, str], program: Program) -> dict[str, tuple[str, str]]:
    """Return the old and the new name of each task that is named after a renamed step, by the step's old name.

    A task without a name in the playbook is named after its step. `program` is that of the new playbook.
    """
    names: dict[str, tuple[str, str]] = {}
    for old_step, new_step in steps.items():
        step, old, new = program.steps.get(new_step), f"{old_step}_task", f"{new_step}_task"
        if step is not None and old not in step.index and new in step.index:
            names[old_step] = (old, new)
    return names


class RecordedRun:
    """One step run of a log."""

    __slots__ = ("end", "events", "failed_items", "key", "routed", "scheduled", "tokens")

    def __init__(self, key: Key, scheduled: int, tokens: list[int]) -> None:
        self.key = key
        #: indexes of its events, in order; not of those that are for readers only
        self.events: list[int] = [scheduled]
        self.scheduled = scheduled
        self.tokens = tokens
        #: of its step.done or step.failed
        self.end: Event | None = None
        #: of its next.evaluated
        self.routed: Event | None = None
        #: items of its loop that failed, though the loop as a whole did not
        self.failed_items = 0

    @property
    def is_over(self) -> bool:
        """Whether it ended on its own, not because the run ended."""
        return self.end is not None and not is_closing(self.end)

    @property
    def has_failed(self) -> bool:
        return self.end is not None and self.is_over and self.end.type == "step.failed"

    @property
    def selected(self) -> Sequence[dict[str, Any]]:
        """The arcs that fired after it."""
        return () if self.routed is None else self.routed.payload.get("selected") or ()

    @property
    def is_routed(self) -> bool:
        """Whether its routing was decided without failing the run."""
        return self.routed is not None and "error" not in self.routed.payload


class Log:
    """The log of a run, by its step runs."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self.runs: dict[Key, RecordedRun] = {}
        #: indexes of events of no step run that may matter: admissions and signals
        self.beside: list[int] = []
        #: index of workflow.started; -1: the run never started
        self.started = -1
        #: step runs whose failure a RETRY_STEP took back
        self.retried: set[Key] = set()
        newest: dict[str, int] = {}
        step, run = "", 0
        own: list[int] = []
        for index, event in enumerate(events):
            if event.informative:
                continue
            if event.run:
                # Most events belong to the same step run as the previous event, and do not concern it as a whole.
                if event.run == run and event.step == step and event.type not in BOUNDARIES:
                    own.append(index)
                    continue
                step, run = event.step, event.run
                own = self._of_a_step(index, event, newest)
            elif event.type == "policy.admit.evaluated":
                self.beside.append(index)
            elif event.type == "signal.received":
                self.beside.append(index)
                if event.step and "token" in event.payload and "error" not in event.payload:
                    self.retried.add((event.step, newest.get(event.step, 0)))
            elif event.type == "workflow.started":
                self.started = index

    def _of_a_step(self, index: int, event: Event, newest: dict[str, int]) -> list[int]:
        """Return the list that collects the indexes of further events of the same step run."""
        key = (event.step, event.run)
        kind = event.type
        if kind == "step.scheduled":
            begun = self.runs[key] = RecordedRun(key, index, list(event.payload.get("tokens") or ()))
            newest[event.step] = event.run
            return begun.events
        step_run = self.runs.get(key)
        if step_run is None:
            return []
        step_run.events.append(index)
        if kind == "next.evaluated":
            step_run.routed = event
        elif kind in ("step.done", "step.failed"):
            step_run.end = event
        elif kind == "loop.done" and event.iteration is None:
            step_run.failed_items = event.payload.get("failed", 0)
        return step_run.events

    def is_final(self, run: RecordedRun) -> bool:
        """Return whether it is the run of the final step."""
        return "final" in self.events[run.scheduled].payload

    def latest(self, step: str) -> RecordedRun | None:
        """The newest run of a step."""
        return next((run for run in reversed(self.runs.values()) if run.key[0] == step), None)
