"""Control: the only interface between workers and engine, in one process or over HTTP.

Rules:
- A claimed command belongs to its worker until the lease ends. Every report extends it; `heartbeat` does so between reports.
- A command's reports are an ordered stream: n counts from 1 for each fence. The next n is accepted, a duplicate is
  answered as before, a gap raises `ReportGap` with the expected n, another fence raises `StaleFence`.
- An answered report is durable. `wants` claims up to that many of the commands that the report itself made possible,
  in the same commit.
- While a run is about to pause, reports are answered with `pause`: the worker stops at the next task boundary (between two
  tasks, two attempts or two iterations), reports its remaining events, and returns the command.
- A worker only ever emits step.started, step.done, step.failed, task.*, loop.iteration.* and policy.task.evaluated for a
  command that it holds. Everything else is the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from arclog.model.commands import Command, Report, ReportAnswer, Revocation
from arclog.ports.storage.task_logs import LogLine

if TYPE_CHECKING:
    from arclog.plan.program import Program  # a client of a server needs no compiler


class WorkerInfo(Struct, frozen=True):
    """Describes a worker: its id, pools, kinds and slots."""

    worker_id: str
    kinds: tuple[str, ...]
    #: none: every pool
    pools: tuple[str, ...] = ("default",)
    #: 0, or the only execution that this worker serves, with those below it
    execution_id: int = 0
    #: '' or the only tenant whose runs it serves; the server says it, from the worker's credential
    tenant: str = ""
    #: '' or the only project and environment whose runs it serves; the server says it, too
    project: str = ""
    environment: str = ""
    #: commands that it runs at a time; 0: it does not say
    slots: int = 0
    host: str = ""
    version: str = ""
    #: whether the worker stops after `Revocation.leave`
    leaves: bool = False


class LoopItem(Struct, frozen=True, omit_defaults=True):
    """The outcome of a task in one iteration of a loop."""

    path: tuple[int, ...]
    data: Any = None
    #: its data is stored outside the log
    result_ref: dict[str, Any] | None = None


class LoopPage(Struct, frozen=True, omit_defaults=True):
    """Some outcomes in a loop, in the order of the log: the last one of an iteration is the iteration's."""

    items: list[LoopItem]
    #: ask for what comes after this; None: that was all
    after: int | None = None


#: A command that a worker holds: (execution_id, command_id, fence).
Held = tuple[int, int, int]


#: Returns when the caller no longer needs an answer.
Until = Callable[[], Coroutine[Any, Any, object]]


class Control(Protocol):
    async def claim(
        self, worker: WorkerInfo, limit: int, wait_s: float = 0.0, until: Until | None = None
    ) -> list[Command]:
        """Claim up to `limit` commands. If there are none, wait up to `wait_s` for one, or until `until` returns, which is called
        when the wait begins. A claim must not be cancelled instead: it may have claimed commands by then.
        """

    async def report(self, report: Report) -> ReportAnswer:
        """Send the next piece of a command's report. It is durable when this returns."""

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        """Extend leases by (command_id, fence); returns the command ids that are no longer this worker's."""

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        """Return a command between two tasks. The next worker continues from there. A stale fence is ignored."""

    async def revoked(self, worker_id: str, wait_s: float, held: Sequence[Held] = ()) -> list[Revocation]:
        """Commands that were withdrawn from this worker, or that should pause, since the last call; waits up to `wait_s` for one.
        `held` are the commands that it holds: each of several servers knows only the commands that it granted itself, or
        that were passed here.
        """

    async def program(self, digest: str) -> Program:
        """The plan that a command names, ready to run."""

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        """The results of a loop that has ended, in the order of the log; `after` 0 is its beginning."""

    async def write_logs(self, lines: Sequence[LogLine]) -> None:
        """Keep task log lines; best effort, outside the report stream."""


class BoundControl(Control, Protocol):
    """Control within a boundary: commands of other tenants, and of other credentials' workers, are not there."""

    async def check_holder(self, worker_id: str, execution_id: int, command_id: int) -> None:
        """Refuse a report before it is even read: raise NotFound or NotHolder unless the worker holds the command."""
