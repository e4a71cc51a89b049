"""Data for an overview: search results, recent outcomes of runs, and what needs attention.

Every answer is bounded, and its cost does not grow with the number of runs that are stored.
"""

from __future__ import annotations

from msgspec import Struct


class Waiting(Struct, frozen=True):
    """The reason why a run waits while no worker has work of it."""

    #: signal, timer, approval, child, retry (the next attempt of a task) or slot (a free place for a run)
    what: str
    step: str = ""
    #: the signal that it waits for, or the id of the run that it called
    name: str = ""
    #: when the wait ends at the latest
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


class Listed(Struct, frozen=True):
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
    #: the root cause of a run that failed, or why it was cancelled
    error: str | None
    #: the run that called it
    parent: str | None = None
    paused: bool = False
    #: problems of a run that continues or completed: '997 ok, 3 failed' and the step
    warning: str | None = None
    #: approvals that it waits for
    approvals: int = 0
    #: it was recorded elsewhere, and is read-only
    imported: bool = False
    #: its first wait while no worker has work of it; null while a task runs, and after its end
    waiting: Waiting | None = None
    #: of a retry or a fork
    origin: ListedOrigin | None = None


#: The runs that a search covers: all, those without a caller, those with a caller.
LEVELS = ("", "top", "called")


class RunQuery(Struct, frozen=True):
    """A search for runs, newest first."""

    #: PENDING RUNNING COMPLETED FAILED CANCELLED; none: all of them
    states: tuple[str, ...] = ()
    #: catalog path
    path: str = ""
    #: in the playbook's name
    name: str = ""
    #: in the name, path, current step, error, execution id or run id; whatever the case
    text: str = ""
    #: created at or after this moment, and before that one; RFC 3339
    since: str = ""
    until: str = ""
    #: one of LEVELS
    level: str = ""
    #: only runs that this one called
    parent: str = ""
    #: only retries and forks of this one
    origin: str = ""
    #: only runs older than this one
    before: str = ""
    limit: int = 50


class RunPage(Struct, frozen=True):
    runs: list[Listed]
    #: continue with `before`: the page is full, or as many runs were searched as one request may (`overview.search_runs`); None
    #: when there are no more
    next: str | None


class Hour(Struct, frozen=True):
    """Runs that ended within an hour; runs that another run called are not counted."""

    #: its beginning
    at: str
    completed: int
    failed: int
    cancelled: int


class Activity(Struct, frozen=True):
    since: str
    until: str
    #: hours in which a run ended, oldest first
    hours: list[Hour]


class Failing(Struct, frozen=True):
    """A playbook whose newest run that ended has failed."""

    path: str
    name: str
    #: runs that failed since the last one that completed, at most 100
    failures: int
    #: when the first of them ended
    since: str | None
    #: the newest
    last: Listed


class Stuck(Struct, frozen=True):
    """A run with work that no worker takes."""

    run: Listed
    step: str
    pool: str
    #: when the work was offered
    since: str
    #: the reason of the wait, as a sentence
    why: str


class Lease(Struct, frozen=True):
    """Work that a worker has claimed and not finished."""

    run: Listed
    step: str
    step_run: int
    #: loop items [first, last) of a chunk; (0, 0) for the whole step run
    items: tuple[int, int]
    pool: str
    worker_id: str
    #: number of claims; more than 1 after a lost lease
    claims: int
    #: the worker extends its lease before this moment, or the work is offered again
    until: str


class Approval(Struct, frozen=True):
    """A pending approval."""

    run: Listed
    #: send it as the `step` of the signals APPROVE and REJECT; '' for the start of the run
    key: str
    #: '' for the start of the run
    step: str
    task: str
    #: of a loop item: '3', or '3.1' in a nested loop
    iteration: str
    prompt: str
    since: str
    #: when it is decided automatically, if ever
    until: str | None


class ApprovalPage(Struct, frozen=True):
    #: oldest runs first
    approvals: list[Approval]
    #: continue with `after`; None when there are no more
    next: str | None
