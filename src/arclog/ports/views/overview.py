"""Data for an overview: search results, recent outcomes of runs, and problems.

Every answer is bounded, and its cost does not grow with the number of stored runs.
"""

from __future__ import annotations

from msgspec import Struct


class Waiting(Struct, frozen=True):
    """The reason why a run waits while no worker has any of its commands."""

    #: signal, timer, approval, child, retry (the next attempt of a task) or slot (a concurrency slot)
    what: str
    step: str = ""
    #: the signal that it waits for, or the id of its child
    name: str = ""
    #: latest end of the wait
    until: str | None = None
    #: number of waits; this is the first
    count: int = 1


class ListedOrigin(Struct, frozen=True):
    """The run whose events a retry or a fork began with."""

    execution_id: str
    #: the last event of that run that was looked at
    seq: int
    #: retry | fork
    how: str


class ListedRun(Struct, frozen=True):
    """A run in a list."""

    execution_id: str
    run_id: str
    name: str
    path: str
    version: str
    state: str
    current_step: str | None
    created_at: str
    started_at: str | None
    ended_at: str | None
    #: the root cause of a failed run, or why it was cancelled
    error: str | None
    #: the parent run
    parent: str | None = None
    paused: bool = False
    #: problems of a run that continues or completed: '997 ok, 3 failed' and the step
    warning: str | None = None
    #: number of pending approvals
    approvals: int = 0
    #: whether it was recorded elsewhere and is read-only
    imported: bool = False
    #: its first wait while no worker has any of its commands; null while a task runs, and after its end
    waiting: Waiting | None = None
    #: of a retry or a fork
    origin: ListedOrigin | None = None


#: The runs that a search covers: all, those without a parent, children.
LEVELS = ("", "top", "called")


class RunQuery(Struct, frozen=True):
    """A search for runs, newest first."""

    #: PENDING RUNNING COMPLETED FAILED CANCELLED; empty for all
    states: tuple[str, ...] = ()
    #: catalog path
    path: str = ""
    #: part of the playbook's name
    name: str = ""
    #: part of the name, path, current step, error, execution id or run id, ignoring case
    text: str = ""
    #: created at or after `since`, and before `until`; RFC 3339
    since: str = ""
    until: str = ""
    #: one of LEVELS
    level: str = ""
    #: only children of this run
    parent: str = ""
    #: only retries and forks of this one
    origin: str = ""
    #: only runs older than this one
    before: str = ""
    limit: int = 50


class RunPage(Struct, frozen=True):
    runs: list[ListedRun]
    #: continue with `before`: the page is full, or the search limit of one request is reached (`overview.search_runs`);
    #: None if there are no more
    next: str | None


class Hour(Struct, frozen=True):
    """The runs that ended within an hour, without children."""

    #: start of the hour
    at: str
    completed: int
    failed: int
    cancelled: int


class Activity(Struct, frozen=True):
    since: str
    until: str
    #: hours in which a run ended, oldest first
    hours: list[Hour]


class FailingPlaybook(Struct, frozen=True):
    """A playbook whose newest run that ended has failed."""

    path: str
    name: str
    #: number of failed runs since the last one that completed, at most 100
    failures: int
    #: when the first of them ended
    since: str | None
    #: the newest
    last: ListedRun


class StuckRun(Struct, frozen=True):
    """A run with work that no worker claims."""

    run: ListedRun
    step: str
    pool: str
    #: when the work was offered
    since: str
    #: the reason for the wait, as a sentence
    why: str


class Lease(Struct, frozen=True):
    """Work that a worker has claimed and not finished."""

    run: ListedRun
    step: str
    step_run: int
    #: loop items [first, last) of a chunk; (0, 0) for the whole step run
    items: tuple[int, int]
    pool: str
    worker_id: str
    #: number of claims; more than 1 after a lost lease
    claims: int
    #: the worker extends its lease before this time, or the work is offered again
    until: str


class Approval(Struct, frozen=True):
    """A pending approval."""

    run: ListedRun
    #: `step` of the signals APPROVE and REJECT; '' for the start of the run
    key: str
    #: '' for the start of the run
    step: str
    task: str
    #: for a loop item: '3', or '3.1' in a nested loop
    iteration: str
    prompt: str
    since: str
    #: when it is decided automatically, if ever
    until: str | None


class ApprovalPage(Struct, frozen=True):
    #: oldest runs first
    approvals: list[Approval]
    #: `after` for the next page; None if there are no more
    next: str | None
