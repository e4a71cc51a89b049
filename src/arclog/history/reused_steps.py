"""Selects the step runs that a fork or retry reuses: complete step runs, and the finished part of others.

Invariant: a step run is reused only if the step run that created its token is reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from arclog.core.flow.loops import on_one_lease
from arclog.core.transitions.iterations import level_of
from arclog.history.step_runs import Key, Log, RecordedRun
from arclog.model.errors import RequestRejected
from arclog.model.events import Event, is_closing
from arclog.plan.net import LoopPlan
from arclog.plan.program import StepProgram

#: it is kept unchanged
KEEP = "keep"
#: it is kept, but its routing is decided again
ROUTE = "route"
#: its finished tasks and items are kept, the rest runs again
PART = "part"
#: it runs again from the beginning, or not at all
DROP = "drop"

#: decides about a step run whose tokens exist in the new run
Choice = Callable[[RecordedRun], str]


class Chosen:
    """The step runs of the new run and the tokens that they create."""

    def __init__(self, log: Log, choice: Choice, *, items_again: bool) -> None:
        self.log = log
        #: failed items of partially kept loops run again
        self.items_again = items_again
        self.runs: dict[Key, str] = {}
        #: tokens created by kept step runs and signals
        self.tokens: set[int] = set()
        #: indexes of kept events that belong to no step run
        self.beside: set[int] = set()
        self._choose(choice)

    def _choose(self, choice: Choice) -> None:
        log = self.log
        if log.started < 0:
            raise RequestRejected(
                f"the run had not started by event {len(log.events)}, so there is nothing to continue; choose a later "
                "event, or run its playbook again"
            )
        self.tokens.add(log.events[log.started].payload["token"])
        # In the order of the log: tokens are created before they are consumed.
        marks = sorted(
            [(run.scheduled, run) for run in log.runs.values()] + [(index, None) for index in log.beside],
            key=lambda mark: mark[0],
        )
        pending: list[RecordedRun] = []
        for index, run in marks:
            pending = self._make(pending, index)
            if run is None:
                self._choose_beside(index)
            elif not self.tokens.issuperset(run.tokens):
                self.runs[run.key] = DROP
            else:
                self.runs[run.key] = choice(run)
                pending.append(run)

    def _make(self, pending: list[RecordedRun], until: int) -> list[RecordedRun]:
        """Add the tokens of step runs that were routed before an index."""
        left: list[RecordedRun] = []
        for run in pending:
            last = run.events[-1]
            if self.runs[run.key] == KEEP and last < until:
                self.tokens.update(arc["token"] for arc in run.selected if "token" in arc)
            elif self.runs[run.key] == KEEP:
                left.append(run)
        return left

    def _choose_beside(self, index: int) -> None:
        event = self.log.events[index]
        payload = event.payload
        if event.type == "policy.admit.evaluated":
            if self.tokens.issuperset(payload.get("tokens") or ()):
                self.beside.add(index)
            return
        if payload["signal"] in _STEERING or index < self.log.started:
            return
        token = None if "error" in payload else payload.get("token")
        if token is not None:
            before = [run for run in self.log.runs.values() if run.key[0] == event.step and run.scheduled < index]
            if not before or self.runs.get(before[-1].key) != KEEP:
                return
            self.tokens.add(token)
        self.beside.add(index)


#: Signals that controlled the old run as a whole. They do not apply to the new run.
_STEERING = frozenset({"PAUSE", "RESUME", "CANCEL", "EMERGENCY_STOP"})


def for_fork(log: Log) -> Chosen:
    """Keep everything in the log. Open step runs continue after their last finished task."""

    def choice(run: RecordedRun) -> str:
        if run.end is None:
            return PART
        return KEEP if run.routed is not None else ROUTE

    return Chosen(log, choice, items_again=False)


def for_retry(log: Log, step: str = "") -> Chosen:
    """Run failed step runs again, and those that the end of the run cut short, from their last finished task or item.
    With a step, its latest run and everything that followed from it run again, too.
    """
    again = _run_of_step(log, step) if step else None
    failed = {run.key for run in log.runs.values() if _has_failed(log, run)}
    if not failed and again is None:
        failed = {run.key for run in log.runs.values() if run.has_failed and run.key not in log.retried}
        if not failed and not _failed_as_a_whole(log):
            raise RequestRejected("nothing in the run failed: name the step to run again from (`from`, --from STEP)")

    def choice(run: RecordedRun) -> str:
        # The final step belongs to the end of the old run.
        if run is again or log.is_final(run):
            return DROP
        if run.key in failed or not run.is_over:
            return PART
        return KEEP if run.is_routed and not _stopped_the_run(log, run) else ROUTE

    return Chosen(log, choice, items_again=True)


def _run_of_step(log: Log, step: str) -> RecordedRun:
    step_run = log.latest(step)
    if step_run is None:
        steps = ", ".join(dict.fromkeys(name for name, _ in log.runs)) or "none"
        raise RequestRejected(f"step {step[:128]!r} has not run; steps that have: {steps}")
    return step_run


def _has_failed(log: Log, run: RecordedRun) -> bool:
    """Return whether a step run failed without being handled, or items of its loop failed."""
    if run.failed_items:
        return True
    return run.has_failed and not run.selected and run.key not in log.retried


def _stopped_the_run(log: Log, run: RecordedRun) -> bool:
    """Return whether the run failed because no arc matched after this successful step."""
    if run.selected or run.has_failed or run.routed is None:
        return False
    end = next((event for event in reversed(log.events) if event.type == "playbook.finished"), None)
    problem = {} if end is None else end.payload.get("error") or {}
    return problem.get("code") == "NO_MATCH" and problem.get("step") == run.key[0]


def _failed_as_a_whole(log: Log) -> bool:
    """Return whether the run failed although no step did: a time limit, an invalid result, a cancellation."""
    ends = ("playbook.finished", "execution.cancelled")
    end = next((event for event in reversed(log.events) if event.type in ends), None)
    return end is not None and (end.type == "execution.cancelled" or "error" in end.payload)


# The finished part of an incomplete step run: tasks up to the last successful one, and successful items.
#
# Invariant: the kept part ends between two tasks. A task that had begun but not succeeded runs again, and so does an
# item from its first unsuccessful task on. No kept event belongs to a command or a report: the new run issues its own.


_TASK_TYPES = frozenset({
    "task.started", "task.attempt.started", "task.attempt.done", "task.attempt.failed", "task.done", "task.failed",
    "policy.task.evaluated", "result.stored",
})  # fmt: skip
_ITEM_TYPES = _TASK_TYPES | {"loop.iteration.started", "loop.iteration.done", "loop.iteration.failed"}
#: Actions of a policy after which the pipeline continues.
_GOES_ON = frozenset({"continue", "jump", "break"})

_OUTER_ENDS = frozenset({"loop.done", "loop.iteration.done", "loop.iteration.failed"})

Path = tuple[int, ...]


def part_of(
    events: Sequence[Event], run: RecordedRun, step: StepProgram, now: int, *, items_again: bool
) -> list[Event]:
    """Return the events that are kept, adapted to the new run; none if nothing of the step run was finished. The first
    one is its step.scheduled; commands among them have no id yet. With `items_again`, failed items run again.
    """
    own = [events[index] for index in run.events]
    scheduled = _bare(own[0])
    scheduled.at = now
    started = next((event for event in own if event.type == "step.started"), None)
    if started is None:
        return []
    started = _bare(started)
    started.at = now
    if not any(event.type == "loop.started" and event.iteration is None for event in own):
        tasks = _finished(step, (event for event in own if event.iteration is None))
        return [scheduled, started, *tasks] if tasks and "total" not in scheduled.payload else []
    expanded = [_bare(event) for event in own if event.type == "result.manifest.updated" and "items" in event.payload]
    opened = next(event for event in own if event.type == "loop.started" and event.iteration is None)
    parted = not on_one_lease(step) or bool(expanded)
    items = _Items(own, step, now, parted=parted, again=items_again).events(())
    if not items:
        return []
    opened = _bare(opened)
    opened.at = now
    return [scheduled, started, *expanded, opened, *items]


def _finished(step: StepProgram, events: Iterable[Event]) -> list[Event]:
    """Return the events of a pipeline up to its last finished task."""
    events_kept: list[Event] = []
    finished = 0
    for event in events:
        if event.type not in _TASK_TYPES or is_closing(event):
            continue
        if event.type == "policy.task.evaluated":
            events_kept.append(event)
            if (event.payload.get("action") or {}).get("do") in _GOES_ON:
                finished = len(events_kept)
            else:
                finished = min(finished, _begin(events_kept))
            continue
        events_kept.append(event)
        if event.type == "task.done" and not _has_policy(step, event.task):
            finished = len(events_kept)
    return [_bare(event) for event in events_kept[:finished]]


def _has_policy(step: StepProgram, task: str) -> bool:
    """Return whether a policy decides how the pipeline continues after a task."""
    return task in step.index and step.tasks[step.index[task]].plan.policy is not None


def _begin(events: Sequence[Event]) -> int:
    """Return the index at which the task run of the last event began."""
    last = events[-1]
    for index in range(len(events) - 1, -1, -1):
        event = events[index]
        if event.type == "task.started" and (event.task, event.task_run) == (last.task, last.task_run):
            return index
    return 0


def _bare(event: Event) -> Event:
    """Detach the event from its command and report."""
    if event.report or event.command_id or event.fence:
        event.report = event.command_id = event.fence = 0
    if event.cause or event.own_id or event.sent:
        event.cause = event.own_id = 0
        event.sent = {}
    return event


class _Items:
    """The items of an incomplete loop, level by level."""

    def __init__(self, own: Sequence[Event], step: StepProgram, now: int, *, parted: bool, again: bool) -> None:
        self.step = step
        self.run = own[0].run
        self.now = now
        #: whether its items go to separate commands, which the log names
        self.parted = parted
        self.by_path: dict[Path, list[Event]] = {}
        self.below: dict[Path, set[int]] = {}
        #: completed items; a failure that ends the whole loop does not complete its item
        self.over: set[Path] = set()
        again = again or step.plan.failure_mode == "fail_fast"
        for event in own:
            path = event.iteration
            if path is None:
                continue
            events = self.by_path.get(path)
            if events is not None:
                events.append(event)
            else:
                self.by_path[path] = [event]
                for depth in range(len(path)):
                    self.below.setdefault(path[:depth], set()).add(path[depth])
            has_failed = event.type == "loop.iteration.failed" and not again and not is_closing(event)
            if has_failed or event.type == "loop.iteration.done":
                self.over.add(path)

    def events(self, path: Path) -> list[Event]:
        """Return the events of a level; none if nothing below it was finished."""
        plan = level_of(self.step, path)
        return self._outer(path) if plan.inner is not None else self._innermost(path, plan)

    def _innermost(self, path: Path, plan: LoopPlan) -> list[Event]:
        parts: dict[int, list[Event]] = {}
        for index in sorted(self.below.get(path, ())):
            if (*path, index) in self.over:
                parts[index] = [_bare(event) for event in self.by_path[*path, index] if event.type in _ITEM_TYPES]
            elif tasks := _finished(self.step, self.by_path[*path, index]):
                parts[index] = tasks
        if not parts:
            return []
        behind = max(parts) + 1
        again = [index for index in range(behind) if (*path, index) not in self.over]
        cuts = _cuts(again, behind, plan) if self.parted else []
        reused: list[Event] = []
        first = 0
        for index in range(behind):
            if cuts and index == first:
                last = cuts.pop(0)
                reused.append(self._command(path, first, last))
                first = last
            events = parts.get(index, [])
            if not events or events[0].type != "loop.iteration.started":
                events = [self._begun((*path, index)), *events]
            reused += events
        return reused

    def _outer(self, path: Path) -> list[Event]:
        reused: list[Event] = []
        for index in sorted(self.below.get(path, ())):
            item_path = (*path, index)
            begin = self.by_path.get(item_path, [])
            inner = next((event for event in begin if event.type == "loop.started"), None)
            if inner is None:
                return []  # later items cannot be kept without this one, so the step runs again
            items = self.events(item_path)
            if item_path not in self.over:
                inner.at = self.now
            reused += [self._begun(item_path), _bare(inner), *items]
            if item_path in self.over:
                reused += [_bare(event) for event in begin if event.type in _OUTER_ENDS]
        return reused if self.over or any(event.task for event in reused) else []

    def _begun(self, path: Path) -> Event:
        started = next((event for event in self.by_path.get(path, ()) if event.type == "loop.iteration.started"), None)
        if started is None:
            return Event("loop.iteration.started", self.now, self.step.name, self.run, path)
        if path not in self.over:
            # It goes on now: its duration has no part of the time between the two runs.
            started.at = self.now
        return _bare(started)

    def _command(self, path: Path, first: int, last: int) -> Event:
        payload = {"reason": "loop", "items": [list(path), first, last]}
        return Event("command.issued", self.now, self.step.name, self.run, payload=payload)


def _cuts(again: Sequence[int], behind: int, plan: LoopPlan) -> list[int]:
    """Return the ends of a loop's parts. The items that run again are divided evenly, and there are no more parts than
    may run at a time.
    """
    at_a_time = plan.max_in_flight if plan.mode == "parallel" and plan.exec == "distributed" else 1
    count = max(1, min(at_a_time, len(again)))
    share = -(-len(again) // count)
    cuts = [again[end - 1] + 1 for end in range(share, len(again), share)] if share else []
    return [*cuts, behind]
