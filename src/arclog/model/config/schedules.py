"""A schedule: which playbook runs when. `core.boundary.schedules` decides which times are due."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.model.ids import MAX_ID

#: Handling of times that were missed: skip them, run the newest, or run each of them.
CATCH_UP = ("none", "last", "all")
#: Handling of a time that is due while the schedule's last run has not ended.
OVERLAP = ("skip", "queue", "cancel")


class Schedule(Struct, frozen=True):
    """A schedule as it is stored. Times are microseconds since 1970."""

    tenant: str
    project: str
    environment: str
    #: unique in its tenant
    name: str
    #: five fields, or six with seconds first
    cron: str
    #: IANA time zone of the fields
    zone: str
    #: path of the playbook in the catalog
    path: str
    created_at: int
    #: 0 for the newest version at the time of the run
    version: int = 0
    workload: dict[str, Any] = {}
    catch_up: str = "last"
    overlap: str = "skip"
    paused: bool = False
    #: the next time that is not decided; None if there is none
    next_due: int | None = None
    #: times that wait for the last run to end, in order
    queue: tuple[int, ...] = ()
    #: the time whose run is being started; after a crash it is started again with the same key
    firing: int | None = None
    #: the time that fired last, and its run; 0 if none
    last_due: int = 0
    last_execution: int = 0
    #: number of skipped times, and the reason for the last one or for the last run that could not start
    skipped: int = 0
    note: str = ""
    #: incremented by each change
    revision: int = 1

    @property
    def wakes_at(self) -> int:
        """The time of the next check."""
        if self.paused:
            return MAX_ID
        if self.queue or self.firing is not None:
            return 0
        return MAX_ID if self.next_due is None else self.next_due

    def key(self, due: int) -> str:
        """Return the idempotency key of a time's run."""
        return f"schedule:{self.name}:{due}"
