"""The report stream of one command: sends events in order, many events per report.

Invariant: once `flush` returns, its events are durable. Events wait here at most `worker.started_flush_ms`. A lease is
measured from its request, by this machine's clock, because the answer may have been delayed for any time, on the
network or in the buffer of a suspended process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from arclog.core.boundary.reports import MAX_REPORT_EVENTS
from arclog.model.commands import Command, Report
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, LeaseLost, RequestTooLarge
from arclog.model.events import Event
from arclog.ports.clock import Clock
from arclog.ports.control import Control

#: Pause between two attempts to confirm a command while no server answers.
_PAUSE_S = 0.2
#: After _CONFIRMATIONS slow answers, the last one is accepted if it came within the share _SHARE of the lease.
_CONFIRMATIONS = 3
_SHARE = 1 / 3

#: Returns the commands that a worker holds, with their fences.
HeldCommands = Callable[[], list[tuple[int, int]]]


class Timing(Struct, frozen=True):
    """How long events and leases may wait, the same for all streams of a worker."""

    flush_s: float
    lease_s: float
    #: maximum age of a confirmation before an irreversible action
    proof_s: float

    @classmethod
    def of(cls, settings: Settings) -> Timing:
        lease_s = settings.number("leases.seconds")
        return cls(
            flush_s=settings.number("worker.started_flush_ms") / 1000,
            lease_s=lease_s,
            proof_s=min(settings.number("leases.proof_s"), lease_s * _SHARE),
        )


class ReportStream:
    """Buffers a command's events and reports them."""

    def __init__(
        self,
        control: Control,
        clock: Clock,
        command: Command,
        worker_id: str,
        timing: Timing,
        proved_at: float,
        held_commands: HeldCommands | None = None,
    ) -> None:
        """`proved_at` is the monotonic time at which the command was claimed.

        `held_commands` returns all commands that the worker holds: a heartbeat confirms all of them.
        """
        self._control = control
        self._clock = clock
        self._command = command
        self._worker_id = worker_id
        self._timing = timing
        self._held_commands = held_commands or (lambda: [(command.command_id, command.fence)])
        #: held during a confirmation; created for the first one
        self._proving: asyncio.Lock | None = None
        self._n = 0
        self._waiting: list[Event] = []
        self._oldest = 0.0
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._background: asyncio.Task[None] | None = None
        #: monotonic time at which the command certainly belonged to this worker: when the last confirmation was
        #: requested
        self.proved_at = proved_at
        #: when the report was sent whose answer contained further commands
        self.granted_at = proved_at
        #: whether the end of an effectful task is not acknowledged yet
        self.unacknowledged_effect = False
        #: set while the run is about to pause: no new task starts
        self.pausing = asyncio.Event()
        #: whether the worker drains: it pauses whatever the server answers
        self.leaving = False

    def add(self, event: Event) -> None:
        if not self._waiting:
            self._oldest = self._clock.monotonic()
        self._waiting.append(event)

    @property
    def should_flush(self) -> bool:
        """Return whether there are enough events to report, or they have waited long enough."""
        if not self._waiting:
            return False
        return (
            len(self._waiting) >= MAX_REPORT_EVENTS // 2
            or self._clock.monotonic() - self._oldest >= self._timing.flush_s
        )

    def flush_soon(self) -> None:
        """Report waiting events soon, unless `flush` is called first. For use before operations that may take long."""
        if self._waiting and self._timer is None and (self._background is None or self._background.done()):
            self._timer = asyncio.get_running_loop().call_later(self._timing.flush_s, self._start_background)

    async def flush(self, wants: int = 0) -> list[Command]:
        """Report all waiting events. Raises LeaseLost if the command no longer belongs to this worker."""
        self.stop_timer()
        if self._background is not None:
            background, self._background = self._background, None
            await background
        return await self._send(wants)

    async def prove(self) -> None:
        """Confirm that the command still belongs to this worker, before an irreversible action. Raises LeaseLost.

        Sends no request if a report or a claim was answered recently.
        """
        proof_s = self._timing.proof_s
        if self._is_proved(proof_s):
            return
        asked_at = self._clock.monotonic()
        if self._proving is None:
            self._proving = asyncio.Lock()
        async with self._proving:
            if self.proved_at >= asked_at and self._is_proved(proof_s):
                return  # another iteration confirmed it meanwhile
            for _ in range(_CONFIRMATIONS):
                await self._confirm()
                if self._is_proved(proof_s):
                    return
            if not self._is_proved(self._timing.lease_s * _SHARE):
                raise LeaseLost(f"command {self._command.command_id} was not confirmed within a third of its lease")

    def _is_proved(self, within_s: float) -> bool:
        return self._clock.monotonic() - self.proved_at <= within_s

    async def _confirm(self) -> None:
        command = self._command
        while True:
            held, asked_at = self._held_commands(), self._clock.monotonic()
            try:
                lost = await self._control.heartbeat(self._worker_id, held)
            except ArclogError as problem:
                if not self._is_proved(self._timing.lease_s):
                    message = f"command {command.command_id} is not started: its lease may have expired and cannot be confirmed"
                    raise LeaseLost(f"{message} ({problem})") from problem
                await self._clock.sleep(_PAUSE_S)
                continue
            if command.command_id in lost or (command.command_id, command.fence) not in held:
                raise LeaseLost(f"command {command.command_id} is no longer held by this worker and is not started")
            self.proved_at = max(self.proved_at, asked_at)
            return

    def leave(self) -> None:
        """Stop at the next task boundary."""
        self.leaving = True
        self.pausing.set()

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def abandon(self) -> None:
        """Stop sending: the command is over for this worker."""
        self.stop_timer()
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)

    def _start_background(self) -> None:
        self._timer = None
        self._background = asyncio.ensure_future(self._send_quietly())

    async def _send_quietly(self) -> None:
        await self._send(0)

    async def _send(self, wants: int) -> list[Command]:
        command = self._command
        async with self._lock:
            granted: list[Command] = []
            most = MAX_REPORT_EVENTS
            while self._waiting:
                piece = self._waiting[:most]
                last = len(piece) == len(self._waiting)
                report = Report(
                    worker_id=self._worker_id,
                    execution_id=command.execution_id,
                    command_id=command.command_id,
                    fence=command.fence,
                    n=self._n + 1,
                    events=piece,
                    wants=wants if last else 0,
                )
                self.unacknowledged_effect = False
                sent_at = self._clock.monotonic()
                try:
                    answer = await self._control.report(report)
                except RequestTooLarge:
                    if len(piece) == 1:
                        raise
                    most = len(piece) // 2
                    continue
                self._n += 1
                del self._waiting[: len(piece)]
                self.proved_at = max(self.proved_at, sent_at)
                self.granted_at = sent_at
                if answer.pause or self.leaving:
                    self.pausing.set()
                else:
                    self.pausing.clear()
                if answer.closed and not answer.commands:
                    raise LeaseLost(f"command {command.command_id} has ended; the report is not needed")
                granted += answer.commands
            return granted
