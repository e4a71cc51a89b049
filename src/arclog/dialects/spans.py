"""The spans of a run: execution → step → task. No I/O.

A span without an end event ends when the run ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from arclog.model.events import TERMINAL, Event
from arclog.model.ids import span_id

#: Event types that spans are built from. Readers request only these.
TYPES = (
    "playbook.execution.requested",
    "playbook.started",
    "step.scheduled",
    "step.started",
    "step.done",
    "step.failed",
    "task.started",
    "task.done",
    "task.failed",
    "task.attempt.started",
    "task.attempt.failed",
    *sorted(TERMINAL),
)


class Moment(Struct):
    """An event inside a span."""

    name: str
    at: int
    attributes: dict[str, Any]


class Span(Struct):
    """A span. Times are microseconds since 1970."""

    name: str
    id: int
    #: id of the parent span; None for the run's span
    parent: int | None
    start: int
    end: int | None = None
    attributes: dict[str, Any] = {}
    #: the error message; None if it succeeded
    error: str | None = None
    moments: list[Moment] = []
    #: (execution id, task key) of the task that started the run
    caller: tuple[str, str] | None = None


class Spans:
    """Builds spans from a run's events, given in seq order."""

    def __init__(self, execution_id: int, name: str, most: int, attributes: Mapping[str, Any]) -> None:
        self._id = execution_id
        self._most = most
        self._root = Span(f"run {name}", span_id(str(execution_id)), None, 0, attributes=dict(attributes))
        self._open: dict[str, Span] = {}
        self._spans: list[Span] = []
        #: number of spans over the limit
        self.dropped = 0

    def take(self, event: Event) -> None:
        match event.type:
            case "playbook.execution.requested":
                self._root.start = event.at
                self._root.caller = _caller(event.payload.get("parent"))
            case "playbook.started":
                self._root.moments.append(Moment("started", event.at, {}))
            case "step.scheduled":
                self._begin(self._step(event), f"step {event.step}", self._root.id, event)
            case "step.started":
                self._note(self._step(event), "started", event, {"arclog.worker_id": event.worker_id})
            case "step.done" | "step.failed":
                self._end(self._step(event), event)
            case "task.started":
                self._begin(self._task(event), f"task {event.task}", span_id(self._step(event)), event)
            case "task.attempt.started" | "task.attempt.failed":
                self._note(self._task(event), event.type, event, {"arclog.attempt": event.attempt, **_error_of(event)})
            case "task.done" | "task.failed":
                self._end(self._task(event), event)
            case _ if event.type in TERMINAL:
                self._root.end = event.at
                self._root.attributes["arclog.terminal_event"] = event.type
                self._root.error = _problem(event)

    def all(self) -> Iterable[Span]:
        """Return the run's span and all spans below it, including those that are still open."""
        ended = self._root.end if self._root.end is not None else self._root.start
        for span in self._open.values():
            span.end = max(ended, span.start)
            span.error = span.error or "not ended when the run ended"
        if self.dropped:
            self._root.attributes["arclog.spans_dropped"] = self.dropped
        self._root.end = ended
        return [self._root, *self._spans]

    def _step(self, event: Event) -> str:
        return f"{self._id}:{event.step}:{event.run}"

    def _task(self, event: Event) -> str:
        where = "" if event.iteration is None else ".".join(map(str, event.iteration))
        return f"{self._step(event)}:{where}:{event.task}:{event.task_run}"

    def _begin(self, key: str, name: str, parent: int, event: Event) -> None:
        if len(self._spans) >= self._most:
            self.dropped += 1
            return
        attributes: dict[str, Any] = {
            "arclog.execution_id": str(self._id),
            "arclog.step": event.step,
            "arclog.step_run": event.run,
        }
        if event.task:
            attributes |= {"arclog.task": event.task, "arclog.task_run": event.task_run}
        if event.iteration is not None:
            attributes["arclog.iteration"] = ".".join(map(str, event.iteration))
        span = self._open[key] = Span(name, span_id(key), parent, event.at, attributes=attributes)
        self._spans.append(span)

    def _note(self, key: str, name: str, event: Event, attributes: dict[str, Any]) -> None:
        span = self._open.get(key)
        if span is not None:
            span.moments.append(Moment(name, event.at, {key: value for key, value in attributes.items() if value}))

    def _end(self, key: str, event: Event) -> None:
        span = self._open.pop(key, None)
        if span is not None:
            span.end = max(event.at, span.start)
            span.error = _problem(event)


def _problem(event: Event) -> str | None:
    """Return the error message of an event: '' if it has none, None if the event is not an error."""
    if event.type == "execution.cancelled":
        return str(event.payload.get("reason") or "cancelled")
    if event.type not in ("step.failed", "task.failed") and event.status != "error":
        return None
    return str(_error_of(event).get("arclog.error", ""))


def _error_of(event: Event) -> dict[str, Any]:
    outcome = event.payload.get("outcome")
    problem = event.payload.get("error") or (outcome.get("error") if isinstance(outcome, dict) else None)
    if not isinstance(problem, dict):
        return {}
    return {"arclog.error": f"{problem.get('kind', '')}: {problem.get('message', '')}"}


def _caller(parent: Any) -> tuple[str, str] | None:
    """Return the task that started a run, from the ids in the request."""
    if not isinstance(parent, dict):
        return None
    try:
        execution_id = str(parent["execution_id"])
        step, run = str(parent["step_run_id"]).removeprefix("step:").rsplit(":run:", 1)
        task, task_run = str(parent["task_run_id"]).removeprefix("task:").rsplit(":run:", 1)
        where = str(parent.get("iteration_id", "")).rpartition(":iter:")[2]
    except (KeyError, ValueError):
        return None
    return execution_id, f"{execution_id}:{step}:{run}:{where}:{task}:{task_run}"
