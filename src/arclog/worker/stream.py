"""The report stream of one command: events go out in order, few reports for many events.

Law: what `flush` has answered is durable. Events wait here at most `worker.started_flush_ms`.
"""

from __future__ import annotations

import asyncio

from arclog.core.reports import MAX_REPORT_EVENTS
from arclog.model.commands import Command, Report
from arclog.model.errors import LeaseLost
from arclog.model.events import Event
from arclog.ports.clock import Clock
from arclog.ports.control import Control


class ReportStream:
    """Buffers a command's events and hands them in."""

    def __init__(self, control: Control, clock: Clock, command: Command, worker_id: str, flush_s: float) -> None:
        self._control = control
        self._clock = clock
        self._command = command
        self._worker_id = worker_id
        self._flush_s = flush_s
        self._n = 0
        self._waiting: list[Event] = []
        self._oldest = 0.0
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._background: asyncio.Task[None] | None = None
        #: monotonic time of the last proof that the command is still ours
        self.proved_at = clock.monotonic()
        #: an effectful task ended and nobody has acknowledged it yet
        self.unacknowledged_effect = False
        #: set while the run is to pause: nothing new is begun
        self.pausing = asyncio.Event()
        #: the worker leaves: it shall pause whatever the server says
        self.leaving = False

    def add(self, event: Event) -> None:
        if not self._waiting:
            self._oldest = self._clock.monotonic()
        self._waiting.append(event)

    @property
    def should_flush(self) -> bool:
        """Enough has gathered, or it has waited long enough."""
        if not self._waiting:
            return False
        return len(self._waiting) >= MAX_REPORT_EVENTS // 2 or self._clock.monotonic() - self._oldest >= self._flush_s

    def flush_soon(self) -> None:
        """Before something that may take long: hand in what waits, a little later, unless `flush` comes first."""
        if self._waiting and self._timer is None and (self._background is None or self._background.done()):
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._start_background)

    async def flush(self, wants: int = 0) -> list[Command]:
        """Hand in everything that waits. Raises LeaseLost when the command is no longer ours."""
        self.stop_timer()
        if self._background is not None:
            background, self._background = self._background, None
            await background
        return await self._send(wants)

    def leave(self) -> None:
        """Stop at the next task boundary."""
        self.leaving = True
        self.pausing.set()

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def abandon(self) -> None:
        """The command is over for this worker: stop sending."""
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
        async with self._lock:
            granted: list[Command] = []
            while self._waiting:
                piece = self._waiting[:MAX_REPORT_EVENTS]
                last = len(piece) == len(self._waiting)
                report = Report(
                    worker_id=self._worker_id,
                    execution_id=self._command.execution_id,
                    command_id=self._command.command_id,
                    fence=self._command.fence,
                    n=self._n + 1,
                    events=piece,
                    wants=wants if last else 0,
                )
                self.unacknowledged_effect = False
                answer = await self._control.report(report)
                self._n += 1
                del self._waiting[: len(piece)]
                self.proved_at = self._clock.monotonic()
                self.pausing.set() if answer.pause or self.leaving else self.pausing.clear()
                if answer.closed and not answer.commands:
                    raise LeaseLost(f"command {self._command.command_id} is over; what was done for it is not needed")
                granted += answer.commands
            return granted
