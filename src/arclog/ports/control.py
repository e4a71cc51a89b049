"""Control: the only interface between workers and engine, in one process or over HTTP.

Rules:
- A claimed command belongs to its worker until the lease ends. Every report extends it; `heartbeat` does so between
  reports.
- A command's reports are an ordered stream: n counts from 1 for each fence. The next n is accepted, a duplicate is
  answered as before, a gap raises `ReportGap` with the expected n, another fence raises `StaleFence`.
- An answered report is durable. `wants` claims up to that many of the commands that the report itself made possible, in
  the same commit.
- While a run is about to pause, reports are answered with `pause`: the worker stops at the next task boundary (between
  two tasks, two attempts or two iterations), reports its remaining events, and returns the command.
- A worker only ever emits step.started, step.done, step.failed, task.*, loop.iteration.* and policy.task.evaluated for
  a command that it holds. Everything else is the engine's.
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
    #: empty for every pool
    pools: tuple[str, ...] = ("default",)
    #: 0, or the only execution, with its descendants, that this worker serves
    execution_id: int = 0
    #: '' or the only tenant whose runs it serves; set by the server from the worker's credential
    tenant: str = ""
    #: '' or the only project and environment whose runs it serves; set by the server as well
    project: str = ""
    environment: str = ""
    #: number of commands that it runs at a time; 0 if unknown
    slots: int = 0
    host: str = ""
    version: str = ""
    #: whether the worker stops after `Revocation.leave`
    leaves: bool = False


class LoopItem(Struct, frozen=True, omit_defaults=True):
    """The outcome of a task in one iteration of a loop."""

    path: tuple[int, ...]
    data: Any = None
    #: set if its data is stored outside the log
    result_ref: dict[str, Any] | None = None


class LoopPage(Struct, frozen=True, omit_defaults=True):
    """Some outcomes in a loop, in the order of the log: the last outcome of an iteration counts."""

    items: list[LoopItem]
    #: `after` for the next page; None if this is the last
    after: int | None = None


#: A command that a worker holds: (execution_id, command_id, fence).
Held = tuple[int, int, int]


#: Returns when the caller no longer needs an answer.
Until = Callable[[], Coroutine[Any, Any, object]]


class Control(Protocol):
    async def claim(
        self, worker: WorkerInfo, limit: int, wait_s: float = 0.0, until: Until | None = None
    ) -> list[Command]:
        """Claim up to `limit` commands. If there are none, wait up to `wait_s` for one, or until `until` returns.

        `until` is called when the wait begins. A claim must not be cancelled instead: it may have claimed commands by
        then.
        """

    async def report(self, report: Report) -> ReportAnswer:
        """Send the next report of a command. It is durable when this returns."""

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        """Extend leases by (command_id, fence). Returns the ids of commands that this worker no longer holds."""

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        """Return a command between two tasks. The next worker continues from there. A stale fence is ignored."""

    async def revoked(self, worker_id: str, wait_s: float, held: Sequence[Held] = ()) -> list[Revocation]:
        """Return commands that were withdrawn from this worker, or should pause, since the last call.

        Waits up to `wait_s` for one. `held` has the commands that it holds: each of several servers knows only the
        commands that it granted itself, or that were passed here.
        """

    async def program(self, digest: str) -> Program:
        """Return the plan that a command names, ready to run."""

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        """Return the results of a loop that has ended, in the order of the log; `after` 0 is its beginning."""

    async def write_logs(self, lines: Sequence[LogLine]) -> None:
        """Store task log lines; best effort, outside the report stream."""


class BoundControl(Control, Protocol):
    """Control within a boundary: commands of other tenants and of other credentials' workers do not exist for it."""

    async def check_holder(self, worker_id: str, execution_id: int, command_id: int) -> None:
        """Raise NotFound or NotHolder unless the worker holds the command, before its report is read."""
