"""Schedules: where their rows are kept, and what a user can ask for.

Rules that every store keeps (`arclog.testing.conformance.store` proves them):
- A change names the revision that it was decided on; one that is no longer the newest is a `Conflict`.
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
        """Keep a new one; Conflict when its tenant has one of that name."""

    async def schedule(self, tenant: str, name: str) -> Schedule | None:
        """One schedule."""

    async def schedules(self, tenant: str = "", *, after: str = "", limit: int = 1000) -> Sequence[Schedule]:
        """Those of a tenant (or of all) by tenant and name, behind a name."""

    async def late_schedules(self, before: int, limit: int = 1000) -> Sequence[Schedule]:
        """Schedules that were due by then, leased or not; the most recently due first."""

    async def next_schedules(self, tenant: str, limit: int = 20) -> Sequence[Schedule]:
        """Those of a tenant in the order in which they are to be looked at."""

    async def change_schedule(self, schedule: Schedule, owner: str = "", until: int = 0) -> Schedule:
        """Replace the one with this revision; the answer has the next one. Its lease is the owner's until then, or over."""

    async def change_schedules(
        self, schedules: Sequence[Schedule], owner: str = "", until: int = 0
    ) -> Sequence[Schedule | Conflict]:
        """The same for several, each of them once: what `change_schedule` would return or raise for each, in their order."""

    async def remove_schedule(self, tenant: str, name: str) -> bool:
        """Forget one; whether it was there."""

    async def lease_schedules(self, owner: str, now: int, until: int, limit: int = 100) -> Sequence[Schedule]:
        """Lease schedules that are due and not leased, the longest waiting first."""


class NewSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """A schedule asked for."""

    #: unique in its tenant: letters, digits, '.', '_' and '-'
    name: str
    #: minute hour day month weekday; with six fields the first is seconds
    cron: str
    #: of a playbook in the catalog
    path: str
    #: time zone of the cron fields, as the IANA database names it
    tz: str = "UTC"
    #: 0: the newest when it fires
    version: int = 0
    workload: dict[str, Any] = {}
    #: which times missed while no server was running are caught up: none | last | all
    catch_up: str = "last"
    #: what happens at a time when the previous run has not ended: skip | queue | cancel
    overlap: str = "skip"


class ScheduleView(Struct, frozen=True):
    """A schedule as it is shown; ids are decimal strings, times RFC 3339."""

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
    #: None: paused, or there is none any more
    next_due: str | None
    #: times that wait for the last run to end
    queued: builtins.list[str]
    last_due: str | None
    last_execution: str | None
    #: times that were passed over
    skipped: int
    #: why the last of them was
    note: str


class ScheduleApi(Protocol):
    """The port of CLI and HTTP. All methods except `list` raise NotFound for an unknown name."""

    async def add(self, new: NewSchedule) -> ScheduleView:
        """Keep a schedule. Raises RequestRejected or Conflict."""

    async def list(self, *, after: str = "", limit: int = 1000) -> builtins.list[ScheduleView]:
        """By name, behind a name."""

    async def upcoming(self, *, limit: int = 20) -> builtins.list[ScheduleView]:
        """Those that will fire, the next one first."""

    async def show(self, name: str) -> ScheduleView:
        """One schedule."""

    async def pause(self, name: str) -> ScheduleView:
        """Fire no more until `resume`."""

    async def resume(self, name: str) -> ScheduleView:
        """Fire again, from the next time on."""

    async def remove(self, name: str) -> None:
        """Forget it; its runs stay."""

    async def backfill(self, name: str, first: str, last: str) -> builtins.list[str]:
        """Queue its times from one moment to another; those that have run already start nothing. The times."""
