"""`ports.control` over HTTP, for workers on other machines.

Several processes may share an address. A report is sent until it is answered, if possible to the process that granted
the command, which has the run in memory. A claim and a request for revocations wait at each process, so that a process
grants the commands of its own runs and revokes what it granted.

The worker, which knows its lease, decides when to give up. The wait for one server is a part of the lease, since the
network to one of several may be cut. Requests for work or revocations are repeated whatever a server answers, unless it
rejects the worker's credentials.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from arclog.client.transport import Transport
from arclog.model.commands import Command, Report, ReportAnswer, Revocation
from arclog.model.data.lru import LruCache
from arclog.model.errors import (
    ArclogError,
    InvariantBroken,
    LeaseLost,
    NotAllowed,
    NotFound,
    RequestRejected,
    ServerUnavailable,
    Unauthenticated,
)
from arclog.operations import workers as ops
from arclog.plan import net
from arclog.plan.program import Program
from arclog.ports import work
from arclog.ports.control import Held, LoopPage, Until, WorkerInfo
from arclog.ports.secrets import SealedSecret
from arclog.ports.storage.task_logs import LogLine

T = TypeVar("T")

# ── control ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#: A report that one server does not answer must reach another while the lease lasts.
_TRIES_IN_A_LEASE = 3
#: Lines that the server does not accept for this long are dropped.
_LOGS_PATIENCE_S = 10.0
#: Errors that end a worker: its credential is rejected, and it has no other.
_SHUT_OUT = (Unauthenticated, NotAllowed)
#: Errors that are answers about the command, not failures of the server.
_ANSWERS = (RequestRejected, LeaseLost)
#: Maximum number of reports that are sent to a process at the same time. It commits those that it has together; more of
#: them would only need more connections.
_REPORTS_AT_A_TIME = 128
#: Maximum number of runs whose processes are remembered.
_RUNS_KNOWN = 10_000
#: How long commands that a process granted while the worker was not waiting for any are kept for its next claim.
_UNCOLLECTED_S = 1.0
#: Number of failures of a server at a command after which the worker gives the command up.
_TRIES = 3


class _Poll(NamedTuple):
    """A request that waits at a process."""

    server: str
    #: maximum number of commands that it returns
    limit: int
    #: by the clock of the event loop
    began: float


class _Polls(Generic[T]):
    """Requests of one kind that wait at the processes of a server, at most one at each."""

    def __init__(self) -> None:
        self._polls: dict[asyncio.Task[T], _Poll] = {}
        self.is_awaited = False

    @property
    def limit(self) -> int:
        """The number of commands that they may return."""
        return sum(poll.limit for poll in self._polls.values())

    def free(self, servers: Iterable[str]) -> list[str]:
        """Return the processes where none waits; '' (any process) if no process is known and none waits."""
        asked = {poll.server for poll in self._polls.values()}
        return [server for server in servers if server not in asked] or ([] if asked else [""])

    def start(self, server: str, request: Coroutine[Any, Any, T], limit: int = 0) -> asyncio.Task[T]:
        task = asyncio.ensure_future(request)
        self._polls[task] = _Poll(server, limit, asyncio.get_running_loop().time())
        return task

    def remove(self, task: asyncio.Task[T]) -> bool:
        """Remove a request. Returns False if its result was returned already."""
        return self._polls.pop(task, None) is not None

    async def ended(self) -> list[tuple[T, _Poll]]:
        """Wait until one has ended, and return the results of all that have. A cancellation cancels all of them. Raises the
        error of one if none of them has a result: commands that a process granted must not be lost with another process.
        """
        self.is_awaited = True
        try:
            ended, _ = await asyncio.wait(self._polls, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            polls, self._polls = self._polls, {}
            for task in polls:
                task.cancel()
            await asyncio.gather(*polls, return_exceptions=True)
            raise
        finally:
            self.is_awaited = False
        polls = {task: self._polls.pop(task) for task in ended}
        problems = [problem for task in ended if (problem := task.exception()) is not None]
        if len(problems) == len(ended):
            raise problems[0]
        return [(task.result(), poll) for task, poll in polls.items() if task.exception() is None]


class RemoteControl:
    """Implements `ports.control.Control`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        #: number of claims and of requests for revocations
        self._requests = 0
        self._lease_s = math.inf
        #: limits the reports to a process that is not known
        self._reports = asyncio.Semaphore(_REPORTS_AT_A_TIME)
        #: the process that granted the commands of a run, by execution id
        self._granted_by: LruCache[int, str] = LruCache(_RUNS_KNOWN)
        #: the processes that answer, and what limits the reports to each; several may share the address
        self._servers: dict[str, asyncio.Semaphore] = {}
        self._claiming: _Polls[list[Command]] = _Polls()
        self._watching: _Polls[list[Revocation]] = _Polls()
        #: requests that return commands which no claim took
        self._returning: set[asyncio.Task[None]] = set()

    async def register(self, worker: WorkerInfo) -> work.WorkerSettings:
        """Register the worker. Raises ServerUnavailable when the server cannot be reached."""
        welcome = await self._transport.once(ops.REGISTER, work.RegisterWorkerBody(worker))
        self._lease_s = welcome.lease_s
        self._transport.limit_s = welcome.lease_s / _TRIES_IN_A_LEASE
        return welcome

    async def claim(
        self,
        worker: WorkerInfo,
        limit: int,
        wait_s: float = 0.0,
        until: Until | None = None,  # noqa: ARG002 - who claims by HTTP ends the wait by hanging up
    ) -> list[Command]:
        if not wait_s:
            return await self._claim_at("", worker, limit, wait_s)
        called_at = asyncio.get_running_loop().time()
        servers = self._claiming.free(self._servers)
        left = limit - self._claiming.limit
        for count in range(len(servers), 0, -1):
            share = -(-left // count)
            if share > 0:
                left -= share
                server = servers[-count]
                claim = self._claiming.start(server, self._claim_at(server, worker, share, wait_s), share)
                claim.add_done_callback(lambda ended: self._keep_for_next_claim(worker.worker_id, ended))
        commands: list[Command] = []
        for claimed, poll in await self._claiming.ended():
            for command in claimed:
                # The server counts from its own request, which may be older than this call.
                command.waited_ms -= round((called_at - poll.began) * 1000)
            commands += claimed
        return commands

    def _keep_for_next_claim(self, worker_id: str, claim: asyncio.Task[list[Command]]) -> None:
        """Return commands to the server if no call of `claim` takes them soon: nothing renews their leases."""
        if self._claiming.is_awaited or claim.cancelled() or claim.exception() is not None:
            return

        def give_back() -> None:
            if self._claiming.remove(claim):
                for command in claim.result():
                    returning = asyncio.ensure_future(self._give_back(worker_id, command))
                    self._returning.add(returning)
                    returning.add_done_callback(self._returning.discard)

        asyncio.get_running_loop().call_later(_UNCOLLECTED_S, give_back)

    async def _give_back(self, worker_id: str, command: Command) -> None:
        with suppress(ArclogError):  # then its lease ends
            await self.give_back(worker_id, command.execution_id, command.command_id, command.fence)

    async def _claim_at(self, preferred: str, worker: WorkerInfo, limit: int, wait_s: float) -> list[Command]:
        """Claim commands from one process, if it can be reached."""
        number = self._number()
        body = work.ClaimBody(worker, min(limit, work.MOST_COMMANDS), wait_s)
        claimed, server, others = await self._transport.call_at(
            preferred, ops.CLAIM, lambda failures: replace(body, n=number(failures)), wait_s=wait_s, answers=_SHUT_OUT
        )
        self._answered_by(server, others, preferred)
        for command in claimed.commands:
            self._granted_by.replace(command.execution_id, server)
        return claimed.commands

    async def report(self, report: Report) -> ReportAnswer:
        preferred = self._granted_by.get(report.execution_id) or ""
        async with self._servers.get(preferred, self._reports):
            preferred = (
                self._granted_by.get(report.execution_id) or ""
            )  # reports before this one may have moved the run
            answer, server, others = await self._transport.call_at(
                preferred, ops.REPORT, report, answers=_ANSWERS, tries=_TRIES
            )
        self._add((*others, server))
        if server != preferred:
            self._granted_by.replace(report.execution_id, server)
        return answer

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        body = work.HeartbeatBody(worker_id, list(held))
        try:
            # A server that hangs must not prevent the worker from noticing that its lease expires.
            async with asyncio.timeout(self._lease_s / 4):
                # The shorter limit leaves time for another server, if there is one.
                return (await self._transport.once(ops.HEARTBEAT, body, limit_s=self._lease_s / 8)).commands
        except TimeoutError:
            raise ServerUnavailable(f"no answer within {self._lease_s / 4:g} s, a quarter of the lease") from None

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        await self._transport.call(ops.GIVE_BACK, body=work.GiveBackBody(worker_id, execution_id, command_id, fence))

    async def revoked(self, worker_id: str, wait_s: float, held: Sequence[Held] = ()) -> list[Revocation]:
        if not wait_s:  # without a wait there are no retries either
            return (await self._transport.once(ops.REVOKED, work.RevokedBody(worker_id, held=list(held)))).revoked
        for server in self._watching.free(self._servers):
            self._watching.start(server, self._revoked_at(server, worker_id, wait_s, self._granted(server, held)))
        return [revocation for revoked, _ in await self._watching.ended() for revocation in revoked]

    def _granted(self, server: str, held: Sequence[Held]) -> list[Held]:
        """Return the held commands that a process granted, and those of which it is not known who did."""
        if not server:
            return list(held)
        return [command for command in held if self._granted_by.get(command[0]) in (server, None)]

    async def _revoked_at(self, preferred: str, worker_id: str, wait_s: float, held: list[Held]) -> list[Revocation]:
        """Wait at one process for revocations, if it can be reached."""
        number = self._number()
        body = work.RevokedBody(worker_id, wait_s, 0, held)
        answer, server, others = await self._transport.call_at(
            preferred, ops.REVOKED, lambda failures: replace(body, n=number(failures)), wait_s=wait_s, answers=_SHUT_OUT
        )
        self._answered_by(server, others, preferred)
        return answer.revoked

    def _number(self) -> Callable[[int], int]:
        """Return the numbers of a request by the number of its failures. The number changes only after an answer: until
        then it is the same request, and the server returns the same answer.
        """
        numbers: dict[int, int] = {}

        def number(failures: int) -> int:
            if failures not in numbers:
                self._requests += 1
                numbers[failures] = self._requests
            return numbers[failures]

        return number

    def _answered_by(self, server: str, others: Sequence[str], preferred: str) -> None:
        """Record which process answered, and which others exist."""
        if server != preferred:
            # The preferred one may be gone. If it is not, its next answer to a report adds it again.
            self._servers.pop(preferred, None)
        self._add((*others, server))

    def _add(self, servers: Iterable[str]) -> None:
        """Record that these processes exist."""
        for server in servers:
            if server not in self._servers:
                self._servers[server] = asyncio.Semaphore(_REPORTS_AT_A_TIME)

    async def program(self, digest: str) -> Program:
        body = await self._transport.raw(ops.PLAN, ops.ByDigest(digest), answers=_ANSWERS, tries=_TRIES)
        if net.digest(body) != digest:
            raise InvariantBroken(f"the server returned another plan for {digest[:12]}")
        return Program(net.decode(body), digest, len(body))

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        body = work.LoopResultsBody(execution_id, step, run, after, limit)
        return await self._transport.call(ops.LOOP_RESULTS, body=body)

    async def write_logs(self, lines: Sequence[LogLine]) -> None:
        await self._transport.call(ops.WRITE_LOGS, body=work.Lines(list(lines)), patience_s=_LOGS_PATIENCE_S)


# ── secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Sealed secrets of a server, for workers on other machines. The key that opens them is never sent.


class ServerSecrets:
    """Implements `ports.secrets.SecretSource`. Each look-up is a request, so changes are seen at once."""

    place = "the server"

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def find(self, name: str, scope: str) -> SealedSecret | None:
        try:
            return (await self._transport.call(ops.SECRET, body=work.SecretBody(name, scope))).secret
        except NotFound:  # it has no secrets, or none of this tenant for this worker
            return None
