"""Checks the reports of workers.

A report must be the next one of its command, come from the holder, and contain only events that are valid in that
order. A report is checked as a whole before any of it is applied, so a refused report changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from msgspec import ValidationError
from msgspec.structs import replace

from arclog.core.boundary.inputs import Refused, WorkReported
from arclog.core.flow.waits import suspends
from arclog.core.transitions.items import item_end
from arclog.core.transitions.state import Chunk, State, StepRun, path_key
from arclog.model.commands import Pipeline
from arclog.model.errors import RequestRejected
from arclog.model.events import Event
from arclog.model.outcome import ERROR, OK
from arclog.model.refs import as_ref, parse_ref
from arclog.plan.program import Program, StepProgram

#: Event types that a worker may send for a command that it holds.
WORKER_TYPES = frozenset({
    "step.started", "step.done", "step.failed",
    "task.started", "task.attempt.started", "task.attempt.done", "task.attempt.failed", "task.done", "task.failed",
    "loop.iteration.started", "loop.iteration.done", "loop.iteration.failed",
    "policy.task.evaluated", "result.stored", "result.manifest.updated",
})  # fmt: skip
TASK_TYPES = frozenset(name for name in WORKER_TYPES if name.startswith(("task.", "policy.", "result.")))

#: Events inside a started step run; most events of a report are of these types.
_OF_TASKS = TASK_TYPES - {"result.stored", "result.manifest.updated"}
_OF_ITEMS = frozenset({"loop.iteration.started", "loop.iteration.done", "loop.iteration.failed"})
_ENDS = frozenset({"task.done", "task.failed"})
#: Events whose task may pass to the engine.
HANDOVERS = frozenset({"task.started", "task.attempt.started", "policy.task.evaluated"})

#: Successes. A worker may not report one for a task that waits: only the end of the wait is a success.
_SUCCESSES = frozenset({"task.done", "task.attempt.done"})

#: A pipeline that has not started. Never changed.
_NEW = Pipeline()

#: A longer report must be sent in parts; the ids of one transaction come from one block of 4,096.
MAX_REPORT_EVENTS = 1000


def numbered(state: State, report: WorkReported) -> WorkReported:
    """Number a report that has no number: it becomes the next report of its command."""
    command = state.commands.get(report.command_id)
    return report if report.n or command is None else replace(report, n=command.report + 1)


def check_report(
    program: Program, state: State, report: WorkReported, items: dict[int, int] | None = None
) -> Refused | None:
    """Return the reason why the report is refused, or None.

    `items` has the start and the end of items in one piece, as far as they are known. Those that are found are added.
    """
    command = state.commands.get(report.command_id)
    if command is None:
        return Refused("closed", f"command {report.command_id} is over")
    if report.fence != command.fence:
        return Refused(
            "stale", f"command {report.command_id} has fence {command.fence}, the report came with {report.fence}"
        )
    if report.n <= command.report:
        return Refused("duplicate", f"report {report.n} was accepted before", command.report + 1)
    if report.n > command.report + 1:
        return Refused("gap", f"report {report.n} came before {command.report + 1}", command.report + 1)
    if not report.events or len(report.events) > MAX_REPORT_EVENTS:
        return Refused("malformed", f"a report has 1 to {MAX_REPORT_EVENTS} events, not {len(report.events)}")
    step_run = state.run_of(command.step, command.run)
    if step_run is None:
        return Refused("closed", f"step {command.step} run {command.run} is over")
    chunk = step_run.chunks.get(command.chunk)
    place = _Place(program, program.steps[command.step], step_run, chunk, state.execution_id)
    events = report.events
    items = {} if items is None else items
    first = events[0]
    take = place.take
    after_item = 0
    for at, event in enumerate(events):
        if at < after_item:
            continue  # it belongs to an item that was checked as a whole
        if event.type == "loop.iteration.started":
            end = items.get(at) or items.setdefault(at, item_end(events, at))
            if end > at and place.takes_item(events, at, end):
                after_item = end
                continue
        if (
            event.informative
            or event.cause
            or event.own_id
            or event.sent
            or event.report
            or event.command_id
            or event.fence
            or event.worker_id
            or "source" in event.payload
        ):
            problem = _forged(event, report, event is first) or take(event)
        else:  # most events have no field of the server
            problem = take(event)
        if problem:
            return Refused("malformed", f"{event.type}: {problem}", event_type=event.type)
    return None


def _forged(event: Event, report: WorkReported, first: bool) -> str:
    """Return the problem if the event sets fields that only the server may set, or ''.

    The first event may carry them from a decision that was not committed.
    """
    if (
        event.informative
        or event.cause
        or (event.own_id and event.own_id not in report.digests)
        or (event.sent and not report.from_wire)
        or ("source" in event.payload and event.payload["source"] == "server")
        or (not first and (event.report or event.command_id or event.fence or event.worker_id))
    ):
        return "sets a field that only the server may set"
    return ""


class _Place:
    """Follows the events of a report: a step run starts once, tasks belong to its pipeline, and it ends once.

    A command also ends when a task passes to the engine.
    """

    def __init__(
        self, program: Program, step: StepProgram, step_run: StepRun, chunk: Chunk | None, execution_id: int
    ) -> None:
        self.execution_id = execution_id
        self.program = program
        self.step = step
        self.name = step.name
        self.step_run = step_run
        self.run = step_run.run
        self.started = step_run.started
        self.chunk = chunk
        self.next = 0 if chunk is None else chunk.next
        #: paths of open iterations that are known to belong to this command
        self.own: set[tuple[int, ...]] = set()
        #: paths of iterations that were open before the report and that it has ended
        self.ended: set[tuple[int, ...]] = set()
        self.over = False
        self.expanding = step_run.expanding is not None
        #: whether events of tasks and items may come now
        self.is_inside = self.started and not self.expanding
        #: pipelines that the report touches, by iteration; None is the step's pipeline
        self.courses: dict[tuple[int, ...] | None, Course] = {}

    def take(self, event: Event) -> str:
        """Check the next event. Returns its problem, or ''."""
        kind = event.type
        if self.is_inside and event.run == self.run and event.step == self.name:
            if kind in _OF_TASKS:
                return self._take_task(event, kind)
            if kind in _OF_ITEMS:
                return self._take_iteration(event, kind)
        if kind not in WORKER_TYPES:
            return "is not a worker's to emit"
        if event.run != self.run or event.step != self.name:
            return f"belongs to step {event.step} run {event.run}, the command to step {self.step.name} run {self.run}"
        if self.over:
            return "comes after the end of the command"
        if kind == "step.started":
            if self.started:
                return "the step run has started already"
            self.started = True
            self.is_inside = not self.expanding
            return ""
        if not self.started:
            return "comes before step.started"
        if kind == "result.stored" and (problem := self._stored_problem(event.payload.get("result_ref"))):
            return problem
        if self.expanding:
            return self._take_expansion(event)
        if kind == "result.manifest.updated":
            return "the items of this loop are known"
        if kind in TASK_TYPES:
            return self._take_task(event, kind)
        if self.chunk is not None:
            return "the server ends a loop step"
        self._end()
        return self._course(None).end(failed=kind == "step.failed")

    def takes_item(self, events: Sequence[Event], at: int, end: int) -> bool:
        """Return whether the events from `at` to before `end`, an item in one piece, are valid.

        If not, they must be checked separately.
        """
        chunk, first, tasks = self.chunk, events[at], self.step.plain_tasks
        path = first.iteration
        if not self.is_inside or chunk is None or path is None or tasks is None or end - at != 2 * len(tasks) + 2:
            return False
        if first.run != self.run or first.step != self.name or chunk.path:
            return False
        if at and (first.report or first.command_id or first.fence or first.worker_id):
            return False
        if path[0] != self.next or path[0] >= chunk.last:
            return False
        index = at
        for task in tasks:
            index += 2
            started, done = events[index - 1], events[index]
            if started.task != task or done.task != task or started.task_run != 1 or done.task_run != 1:
                return False
            outcome = done.payload["outcome"]
            if not isinstance(outcome, dict) or outcome.get("status") != OK:
                return False
            if "result_ref" in outcome or "files" in outcome:
                return False
        self.next += 1
        self.ended.add(path)
        return True

    def _end(self) -> None:
        self.over = True
        self.is_inside = False

    def _course(self, path: tuple[int, ...] | None) -> Course:
        course = self.courses.get(path)
        if course is None:
            if path is None:
                pipeline = self.step_run.pipeline
            else:
                iteration = self.step_run.iterations.get(path_key(path))
                pipeline = None if iteration is None else iteration.pipeline
            course = self.courses[path] = Course(self.step, pipeline or _NEW)
        return course

    def _take_task(self, event: Event, kind: str) -> str:
        step, path = self.step, event.iteration
        if event.task not in step.index:
            return f"step {step.name} has no task {event.task!r}"
        if self.chunk is None:
            if path is not None:
                return f"step {step.name} is no loop"
        elif path is None or (path not in self.own and not self._is_open(path)):
            return "comes outside an iteration"
        if kind in _ENDS:
            outcome = event.payload.get("outcome")
            if not isinstance(outcome, dict) or outcome.get("status") not in (OK, ERROR):
                return "has no outcome"
            if "result_ref" in outcome and (problem := self._stored_problem(outcome["result_ref"])):
                return problem
            if "files" in outcome and (problem := self._files_problem(outcome["files"])):
                return problem
        elif kind == "policy.task.evaluated":
            problem = self._take_action(event)
            if problem:
                return problem
        elif event.payload and "rounds" in event.payload and (problem := self._wrong_rounds(event.payload["rounds"])):
            return problem
        if kind in _SUCCESSES and event.task in step.on_engine:
            return f"task {event.task} is the engine's to do"
        check = Course.checks.get(kind)
        if check is not None and (problem := check(self.courses.get(path) or self._course(path), event)):
            return problem
        if kind in HANDOVERS and event.payload and suspends(self.program, event):
            self._end()
        return ""

    def _wrong_rounds(self, rounds: Any) -> str:
        """Check the counts of rounds that a task starts with. Returns the problem, or ''."""
        names = frozenset[str]() if self.step.guards is None else self.step.guards.names
        if not isinstance(rounds, dict) or not names.issuperset(rounds):
            return f"step {self.step.name} counts no such rounds"
        return "" if all(type(count) is int and count >= 0 for count in rounds.values()) else "rounds are whole numbers"

    def _take_expansion(self, event: Event) -> str:
        """Check the items of a loop that a worker evaluated, or the failure of the step. Returns the problem, or ''."""
        if event.type == "result.stored":
            return ""
        self._end()
        if event.type == "step.failed":
            return ""
        if event.type != "result.manifest.updated":
            return "comes before the items of the loop are known"
        items, total = event.payload.get("items"), event.payload.get("total")
        if type(total) is not int or not 0 <= total <= self.program.plan.limits.max_iterations:
            return "has no possible number of items"
        if isinstance(items, list):
            return "" if len(items) == total else "has a different number of items than it declares"
        if not isinstance(items, dict):
            return "has no items"
        if "range" in items:
            return "" if len(range(*items["range"])) == total else "has a different number of items than it declares"
        ref = items.get("ref")
        if isinstance(ref, dict) and ref.get("kind") == "loop":
            return ""
        if self.step.loop.inner is not None:
            return "the items of an outer loop cannot be stored"
        return self._stored_problem(ref, own=False)

    def _files_problem(self, files: Any) -> str:
        if not isinstance(files, dict):
            return "has files that are no map"
        return next(filter(None, map(self._stored_problem, files.values())), "")

    def _stored_problem(self, ref: Any, *, own: bool = True) -> str:
        """Check that a ref is well-formed and names a result of this execution.

        Reading it later checks that the data exists.
        """
        try:
            stored_ref = as_ref(ref)
            parsed_ref = parse_ref(stored_ref.ref)
        except (ValidationError, RequestRejected):
            return "has no result ref"
        if own and parsed_ref.execution_id != self.execution_id:
            return "has a ref of another execution"
        return "" if parsed_ref.sha256 == stored_ref.meta.sha256 else "has a ref that names other content"

    def _take_action(self, event: Event) -> str:
        action = event.payload.get("action")
        if not isinstance(action, dict):
            return "has no action"
        do = action.get("do")
        if do not in ("retry", "jump", "continue", "break", "fail"):
            return f"has no action {do!r}"
        if do == "jump" and action.get("to") not in self.step.index:
            return f"step {self.step.name} has no task {action.get('to')!r} to jump to"
        if do == "retry" and not isinstance(event.payload.get("due"), int):
            return "a retry has no due time"
        if not all(isinstance(event.payload.get(key, {}), dict) for key in ("set_iter", "set_ctx")):
            return "set_iter and set_ctx are maps"
        return ""

    def _take_iteration(self, event: Event, kind: str) -> str:
        chunk = self.chunk
        if chunk is None:
            return f"step {self.step.name} is no loop"
        path = event.iteration
        if path is None or path[:-1] != chunk.path:
            return f"iteration {path} does not belong to the command"
        if kind == "loop.iteration.started":
            index = path[-1]
            if index != self.next or index >= chunk.last:
                return f"iteration {path_key(path)} is not the next one of the command"
            self.next = index + 1
            self.own.add(path)
            self.courses[path] = Course(self.step, _NEW)
            return ""
        if path not in self.own and not self._is_open(path):
            return f"iteration {path_key(path)} is not open"
        self.own.discard(path)
        self.ended.add(path)
        return self._course(path).end(failed=kind == "loop.iteration.failed")

    def _is_open(self, path: tuple[int, ...]) -> bool:
        """Return whether an iteration was open before the report, belongs to this command and has not ended since."""
        chunk = self.chunk
        if chunk is None or path[:-1] != chunk.path or not chunk.first <= path[-1] < chunk.last:
            return False
        if path in self.ended or path_key(path) not in self.step_run.iterations:
            return False
        self.own.add(path)
        return True


# The order of task events in a report.
#
# Invariant: a task run starts once, its attempts follow each other, and it ends once; a pipeline ends after its tasks.
# These are the rules of the tool layer of `model.status`, checked before any event of a report is applied.


class Course:
    """Tracks the position of a pipeline while a report is checked, without folding events."""

    __slots__ = ("_at", "_attempt", "_direct", "_in_flight", "_prev", "_runs", "_state", "_step")

    def __init__(self, step: StepProgram, pipeline: Pipeline) -> None:
        self._step = step
        self._at = pipeline.at
        self._direct = pipeline.direct
        #: attempt of the open task run; 0 if none is open
        self._attempt = pipeline.attempt
        self._in_flight = pipeline.in_flight
        self._prev = pipeline.prev
        self._runs = pipeline.runs
        self._state = pipeline.state

    def end(self, *, failed: bool) -> str:
        """Check that the pipeline may end here. Returns the problem, or ''."""
        if self._attempt:
            return f"task {self._label} has not ended"
        if failed:
            return ""
        if self._state == "failed":
            return "the pipeline has failed"
        if self._state != "open" or (self._step.guards is None and self._at == len(self._step.tasks)):
            return ""
        return self._not_ended()

    def _may_reach(self, index: int) -> bool:
        """Return whether the task with this index may come next. The number of tasks stands for the end of the list."""
        if self._step.guards is None or self._direct:
            return index == self._at
        return index in self._step.guards.reachable[self._at]

    def _not_ended(self) -> str:
        if self._may_reach(len(self._step.tasks)):
            return ""
        return self._no_decision() if self._undecided else f"task {self._following} has not run"

    @property
    def _following(self) -> str:
        """The tasks that may come next, for messages."""
        labels = [task.plan.name for index, task in enumerate(self._step.tasks) if self._may_reach(index)]
        return " or ".join(labels)

    @property
    def _undecided(self) -> bool:
        """Return whether the policy of the last task has not been evaluated."""
        return self._at < len(self._step.tasks) and self._prev == self._label

    @property
    def _label(self) -> str:
        return self._step.tasks[self._at].plan.name

    def _start(self, event: Event) -> str:
        if self._attempt:
            return f"task {self._label} has not ended"
        if self._state != "open":
            return "the pipeline has ended"
        index = self._step.index[event.task]
        if (index != self._at or self._step.guards is not None) and not self._may_reach(index):
            if self._undecided:
                return self._no_decision()
            following = self._following
            return f"task {following} comes next" if following else "the pipeline has ended"
        run = self._runs.get(event.task, 0) + 1
        if event.task_run != run:
            return f"is run {event.task_run} of task {event.task}, which has run {run - 1} times"
        self._runs = {**self._runs, event.task: run}
        self._at, self._direct = index, False
        self._attempt, self._in_flight = 1, True
        return ""

    def _start_attempt(self, event: Event) -> str:
        if problem := self._not_open(event):
            return problem
        if event.attempt != self._attempt:
            return f"is attempt {event.attempt} of task {event.task}, whose next one is {self._attempt}"
        self._in_flight = True
        return ""

    def _end_attempt(self, event: Event) -> str:
        if problem := self._not_open(event):
            return problem
        if event.attempt != self._attempt or not self._in_flight:
            return f"attempt {event.attempt} of task {event.task} is not in progress"
        self._in_flight = False
        return ""

    def _end_task(self, event: Event) -> str:
        if problem := self._not_open(event):
            return problem
        outcome = event.payload["outcome"]["status"]
        policy = self._step.tasks[self._at].plan.policy
        if event.type == "task.done" and outcome != OK:
            return "has an error outcome"
        if event.type == "task.failed" and outcome != ERROR and policy is None:
            return "has an ok outcome"
        self._attempt, self._in_flight, self._prev = 0, False, event.task
        self._direct = policy is not None
        if policy is None:
            if event.type == "task.done":
                self._at += 1
            else:
                self._state = "failed"
        return ""

    def _decide(self, event: Event) -> str:
        task = self._step.tasks[self._step.index[event.task]].plan
        if task.policy is None:
            return f"task {event.task} has no policy"
        action = event.payload["action"]
        if action["do"] == "retry":
            if problem := self._not_open(event):
                return problem
            if self._in_flight or event.attempt != self._attempt:
                return f"attempt {event.attempt} of task {event.task} has not ended"
            self._attempt += 1
            return ""
        if self._attempt or self._prev != event.task or self._at >= len(self._step.tasks) or event.task != self._label:
            return f"task {event.task} has not just ended"
        match action["do"]:
            case "continue":
                self._at += 1
                self._direct = False
            case "jump":
                self._at = self._step.index[action["to"]]
                self._direct = True
            case "break":
                self._state = "done"
            case _:
                self._state = "failed"
        return ""

    def _not_open(self, event: Event) -> str:
        at = self._at  # of a task run that is open
        if self._attempt and event.task == self._step.tasks[at].plan.name and event.task_run == self._runs[event.task]:
            return ""
        if self._runs.get(event.task, 0) >= event.task_run:
            return f"run {event.task_run} of task {event.task} has ended"
        return f"run {event.task_run} of task {event.task} has not started"

    def _no_decision(self) -> str:
        return f"the policy of task {self._label} has not been evaluated (policy.task.evaluated)"

    #: event type → the check of the next task event, which returns its problem, or ''
    checks: ClassVar[dict[str, Callable[[Course, Event], str]]] = {
        "task.started": _start,
        "task.attempt.started": _start_attempt,
        "task.attempt.done": _end_attempt,
        "task.attempt.failed": _end_attempt,
        "task.done": _end_task,
        "task.failed": _end_task,
        "policy.task.evaluated": _decide,
    }
