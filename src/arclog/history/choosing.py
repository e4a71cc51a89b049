"""What a new run keeps of an old one: whole step runs, the finished part of others, and nothing of the rest.

Law: whatever a step run led to goes with it. A step run whose token was made by one that is not kept is not kept either.
"""

from __future__ import annotations

from collections.abc import Callable

from arclog.history.step_runs import Key, Log, RecordedRun
from arclog.model.errors import RequestRejected

#: it stays as it is
KEEP = "keep"
#: it stays, and its routing is decided again
ROUTE = "route"
#: its finished tasks and items stay, the rest runs again
PART = "part"
#: it runs again from its beginning, or not at all
DROP = "drop"

#: what becomes of a step run that has a place in the new run
Choice = Callable[[RecordedRun], str]


class Chosen:
    """The step runs of the new run and the tokens that they leave."""

    def __init__(self, log: Log, choice: Choice, *, items_again: bool) -> None:
        self.log = log
        #: failed items of loops that stay in part run again
        self.items_again = items_again
        self.runs: dict[Key, str] = {}
        #: tokens that were made by what is kept
        self.tokens: set[int] = set()
        #: indexes of the events of no step run that are kept
        self.beside: set[int] = set()
        self._choose(choice)

    def _choose(self, choice: Choice) -> None:
        log = self.log
        if log.started < 0:
            raise RequestRejected("the run never started, so it cannot be continued; run its playbook again")
        self.tokens.add(log.events[log.started].payload["token"])
        # In the order of the log: tokens are made before they are taken.
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


#: Signals that steered the old run as a whole: the new one starts by itself.
_STEERING = frozenset({"PAUSE", "RESUME", "CANCEL", "EMERGENCY_STOP"})


def for_fork(log: Log) -> Chosen:
    """All that the log has; what is open continues from its last finished task."""

    def choice(run: RecordedRun) -> str:
        if run.end is None:
            return PART
        return KEEP if run.routed is not None else ROUTE

    return Chosen(log, choice, items_again=False)


def for_retry(log: Log, step: str = "") -> Chosen:
    """With a step, its latest run and what it led to run again. Whatever failed, or was ended by the end of the run, runs
    again in any case, from its last finished task or item.
    """
    again = _named(log, step) if step else None
    failed = {run.key for run in log.runs.values() if _has_failed(log, run)}
    if not failed and again is None:
        failed = {run.key for run in log.runs.values() if run.has_failed and run.key not in log.retried}
        if not failed and not _failed_as_a_whole(log):
            raise RequestRejected("nothing in the run failed: name the step to run again from with --from")

    def choice(run: RecordedRun) -> str:
        # The final step was for the end that the old run came to.
        if run is again or log.is_final(run):
            return DROP
        if run.key in failed or not run.is_over:
            return PART
        return KEEP if run.is_routed and not _stopped_the_run(log, run) else ROUTE

    return Chosen(log, choice, items_again=True)


def _named(log: Log, step: str) -> RecordedRun:
    found = log.latest(step)
    if found is None:
        known = ", ".join(dict.fromkeys(name for name, _ in log.runs)) or "none"
        raise RequestRejected(f"step {step[:128]!r} has not run; steps that have: {known}")
    return found


def _has_failed(log: Log, run: RecordedRun) -> bool:
    """It failed and nothing handled that; or items of its loop failed."""
    if run.failed_items:
        return True
    return run.has_failed and not run.selected and run.key not in log.retried


def _stopped_the_run(log: Log, run: RecordedRun) -> bool:
    """No arc matched behind a step that succeeded, and the run failed for it."""
    if run.selected or run.has_failed or run.routed is None:
        return False
    end = next((event for event in reversed(log.events) if event.type == "playbook.finished"), None)
    problem = {} if end is None else end.payload.get("error") or {}
    return problem.get("code") == "NO_MATCH" and problem.get("step") == run.key[0]


def _failed_as_a_whole(log: Log) -> bool:
    """The run failed, though no step of it did: it was late, its result could not be made, it was cancelled."""
    ends = ("playbook.finished", "execution.cancelled")
    end = next((event for event in reversed(log.events) if event.type in ends), None)
    return end is not None and (end.type == "execution.cancelled" or "error" in end.payload)
