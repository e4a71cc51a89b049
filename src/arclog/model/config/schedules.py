"""A schedule: which playbook runs when. Data; what is due is told by `core.boundary.schedules`."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from arclog.model.ids import MAX_ID

#: What becomes of times that went by while nobody could fire them: nothing, the newest alone, or each.
CATCH_UP = ("none", "last", "all")
#: What a time does that comes due while the schedule's last run has not ended.
OVERLAP = ("skip", "queue", "cancel")


class Schedule(Struct, frozen=True):
    """A row; times are microseconds since 1970."""

    tenant: str
    project: str
    environment: str
    #: unique in its tenant
    name: str
    #: five fields, or six with seconds in front
    cron: str
    #: time zone that the fields are read in, as the IANA database names it
    zone: str
    #: playbook in the catalog
    path: str
    created_at: int
    #: 0: the newest when it fires
    version: int = 0
    workload: dict[str, Any] = {}
    catch_up: str = "last"
    overlap: str = "skip"
    paused: bool = False
    #: the next time that nobody has decided about; None: there is none any more
    next_due: int | None = None
    #: times that wait for the last run to end, in the order in which they will run
    queue: tuple[int, ...] = ()
    #: the time whose run is being started; a crash in between is made good by starting it again under the same key
    firing: int | None = None
    #: the time that fired last, and its run; 0: none yet
    last_due: int = 0
    last_execution: int = 0
    #: times that were passed over, and why the last of them was, or why the last run could not be started
    skipped: int = 0
    note: str = ""
    #: raised by each change
    revision: int = 1

    @property
    def wakes_at(self) -> int:
        """When it should be checked next."""
        if self.paused:
            return MAX_ID
        if self.queue or self.firing is not None:
            return 0
        return MAX_ID if self.next_due is None else self.next_due

    def key(self, due: int) -> str:
        """The idempotency key of a time's run."""
        return f"schedule:{self.name}:{due}"
