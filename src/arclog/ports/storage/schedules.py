"""The storage of schedules, and the API for users.

Rules that every store keeps (`arclog.testing.conformance.store` checks them):
- A change names the revision on which it was decided; if that is no longer the newest, it raises `Conflict`.
- A leased schedule is not given to another server until the lease ends or a change releases it.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from arclog.model.config.schedules import Schedule
from arclog.model.errors import Conflict


class ScheduleStore(Protocol):
    async def add_schedule(self, schedule: Schedule) -> None:
        """Store a new schedule. Raises Conflict if its tenant has one of that name."""

    async def schedule(self, tenant: str, name: str) -> Schedule | None:
        """Return one schedule, or None."""

    async def schedules(self, tenant: str = "", *, after: str = "", limit: int = 1000) -> Sequence[Schedule]:
        """Return the schedules of a tenant (or of all) by tenant and name, after a name."""

    async def count_schedules(self, tenant: str) -> int:
        """Return the number of schedules of a tenant."""

    async def late_schedules(self, before: int, limit: int = 1000) -> Sequence[Schedule]:
        """Return schedules that were due by then, leased or not; the most recently due first."""

    async def next_schedules(self, tenant: str, limit: int = 20) -> Sequence[Schedule]:
        """Return the schedules of a tenant in the order of their next check."""

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        """Replace the schedule of this revision.

        Returns it with the next revision. The owner keeps its lease until `until`.
        """

    async def change_schedules(
        self, schedules: Sequence[Schedule], owner: str = "", until: int = 0
    ) -> Sequence[Schedule | Conflict]:
        """Change several schedules, each once.

        Returns, in order, the return value or the exception of each `change_schedule`.
        """

    async def remove_schedule(self, tenant: str, name: str) -> bool:
        """Remove a schedule. Returns whether it existed."""

    async def lease_schedules(self, owner: str, now: int, until: int, limit: int = 100) -> Sequence[Schedule]:
        """Lease schedules that are due and not leased, the longest waiting first."""


class NewSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a new schedule."""

    #: unique in its tenant: letters, digits, '.', '_' and '-'
    name: str
    #: minute hour day month weekday; with six fields the first is seconds
    cron: str
    #: path of a playbook in the catalog
    path: str
    #: IANA time zone of the cron fields
    tz: str = "UTC"
    #: 0 for the newest version at the time of the run
    version: int = 0
    workload: dict[str, Any] = {}
    #: handling of times missed while no server was running: none | last | all
    catch_up: str = "last"
    #: handling of a time at which the previous run has not ended: skip | queue | cancel
    overlap: str = "skip"


class ScheduleView(Struct, frozen=True):
    """A schedule in answers; ids are decimal strings, times RFC 3339."""

    name: str
    cron: str
    tz: str
    path: str
    version: int
    workload: Mapping[str, Any]
    catch_up: str
    overlap: str
    paused: bool
    created_at: str
    #: None if it is paused, or if there is no next time
    next_due: str | None
    #: times that wait for the last run to end
    queued: builtins.list[str]
    last_due: str | None
    last_execution: str | None
    #: number of skipped times
    skipped: int
    #: why the last of them was skipped
    note: str


class ScheduleApi(Protocol):
    """The API of CLI and HTTP. All methods except `list` raise NotFound for an unknown name."""

    async def add(self, new: NewSchedule) -> ScheduleView:
        """Create a schedule. Raises RequestRejected or Conflict."""

    async def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ScheduleView]:
        """Return the schedules by name, after a name."""

    async def upcoming(self, *, limit: int = 20) -> builtins.list[ScheduleView]:
        """Return the schedules that will fire, the next one first."""

    async def show(self, name: str) -> ScheduleView:
        """Return one schedule."""

    async def pause(self, name: str) -> ScheduleView:
        """Stop firing until `resume`."""

    async def resume(self, name: str) -> ScheduleView:
        """Fire again, from the next time on."""

    async def remove(self, name: str) -> None:
        """Remove a schedule; its runs stay."""

    async def backfill(self, name: str, first: str, last: str) -> builtins.list[str]:
        """Queue its times from one moment to another. Times that have run already start nothing. Returns the times."""
