"""`ports.control` over HTTP, for workers on other machines.

A report is sent until it is answered; the worker, which knows its lease, decides when to give up. The wait for one
server is a part of the lease, since the network to one of several may be cut. Requests for work or revocations are
repeated whatever a server answers, unless it rejects the worker's credentials.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence

from arclog.client.transport import Transport
from arclog.model.commands import Command, Report, ReportAnswer, Revocation
from arclog.model.errors import (
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

# ── control ───────────────────────────────────────────────────────────────────────────────────────────────────────────

#: A report that one server does not answer must reach another while the lease lasts.
_TRIES_IN_A_LEASE = 3
#: Lines that the server does not accept for this long are dropped.
_LOGS_PATIENCE_S = 10.0
#: Errors that end a worker: its credential is rejected, and it has no other.
_SHUT_OUT = (Unauthenticated, NotAllowed)
#: Errors that are answers about the command, not failures of the server.
_ANSWERS = (RequestRejected, LeaseLost)
#: Maximum number of reports that are sent at the same time. A server commits those that it has together; more of them
#: would only need more connections.
_REPORTS_AT_A_TIME = 64
#: Number of failures of a server at a command after which the worker gives the command up.
_TRIES = 3


class RemoteControl:
    """Implements `ports.control.Control`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._claims = 0
        self._looks = 0
        self._lease_s = math.inf
        self._reports = asyncio.Semaphore(_REPORTS_AT_A_TIME)

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
        first = self._claims + 1

        def asked(failures: int) -> work.ClaimBody:
            # The number changes only after an answer: until then it is the same claim, and the server returns the same
            # commands.
            self._claims = first + failures
            return work.ClaimBody(worker, min(limit, work.MOST_COMMANDS), wait_s, self._claims)

        return (await self._transport.call(ops.CLAIM, body=asked, wait_s=wait_s, answers=_SHUT_OUT)).commands

    async def report(self, report: Report) -> ReportAnswer:
        async with self._reports:
            return await self._transport.call(ops.REPORT, body=report, answers=_ANSWERS, tries=_TRIES)

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        asked = work.HeartbeatBody(worker_id, list(held))
        try:
            # A server that hangs must not prevent the worker from noticing that its lease expires.
            async with asyncio.timeout(self._lease_s / 4):
                # The shorter limit leaves time for another server, if there is one.
                return (await self._transport.once(ops.HEARTBEAT, asked, limit_s=self._lease_s / 8)).commands
        except TimeoutError:
            raise ServerUnavailable(f"no answer within {self._lease_s / 4:g} s, a quarter of the lease") from None

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        await self._transport.call(ops.GIVE_BACK, body=work.GiveBackBody(worker_id, execution_id, command_id, fence))

    async def revoked(self, worker_id: str, wait_s: float, held: Sequence[Held] = ()) -> list[Revocation]:
        if not wait_s:  # without a wait there are no retries either
            return (await self._transport.once(ops.REVOKED, work.RevokedBody(worker_id, held=list(held)))).revoked
        first = self._looks + 1

        def asked(failures: int) -> work.RevokedBody:
            self._looks = first + failures
            return work.RevokedBody(worker_id, wait_s, self._looks, list(held))

        return (await self._transport.call(ops.REVOKED, body=asked, wait_s=wait_s, answers=_SHUT_OUT)).revoked

    async def program(self, digest: str) -> Program:
        body = await self._transport.raw(ops.PLAN, ops.ByDigest(digest), answers=_ANSWERS, tries=_TRIES)
        if net.digest(body) != digest:
            raise InvariantBroken(f"the server returned another plan for {digest[:12]} is another one")
        return Program(net.decode(body), digest, len(body))

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        asked = work.LoopResultsBody(execution_id, step, run, after, limit)
        return await self._transport.call(ops.LOOP_RESULTS, body=asked)

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
