"""A run as lists show it."""

from __future__ import annotations

from msgspec import Struct


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
