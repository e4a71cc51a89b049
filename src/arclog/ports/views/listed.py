"""A run as lists show it."""

from __future__ import annotations

from msgspec import Struct


class Waiting(Struct, frozen=True):
    """What a run waits for while no worker has any work of it."""

    #: signal, timer, approval, child, retry (the next attempt of a task) or slot (a free place for a run)
    what: str
    step: str = ""
    #: the signal that it waits for, or the id of the run that it called
    name: str = ""
    #: when the wait ends at the latest
    until: str | None = None
    #: how many things it waits for; this is the first
    count: int = 1


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
    #: what did not go well in a run that goes on or completed: '997 ok, 3 failed' of which step
    warning: str | None = None
    #: approvals that it waits for
    approvals: int = 0
    #: it was recorded elsewhere, and is read-only
    imported: bool = False
    #: what it waits for while no worker has any work of it; absent (null) while something of it runs, and after its end
    waiting: Waiting | None = None
