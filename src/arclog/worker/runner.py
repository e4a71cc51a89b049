"""A worker: claims commands, renews their leases, and executes them in its slots."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import suppress
from typing import Any

from msgspec import Struct

from arclog.drivers.backoff import Backoff
from arclog.model.commands import TOO_LONG, Command, Revocation
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, LeaseLost, RequestRejected, StoreError
from arclog.plan.program import Programs
from arclog.ports.clock import Clock
from arclog.ports.control import Control, Held, WorkerInfo
from arclog.ports.results import Results
from arclog.ports.secrets import Secrets
from arclog.worker.logs import LogSink
from arclog.worker.loop_results import Ordered
from arclog.worker.pipeline import CommandRun, Limits, PausedHere, Surroundings
from arclog.worker.reading import ReadLately, SyncReader, ThreadReader
from arclog.worker.stream import ReportStream, Timing
from arclog.worker.toolbox import Toolbox

log = logging.getLogger("arclog.worker")

#: Seconds that one claim waits for work.
_CLAIM_WAIT_S = 20.0
#: Pauses between claims while the store is unavailable.
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
#: Seconds between the first and the second cancellation of a tool that must stop at once.
_NO_GRACE_S = 0.02
#: Time limit of each last request, such as returning a command at the end of the drain time.
_LAST_WORD_S = 2.0


#: If the answer to a command's last report takes longer than _USUAL_S, the command leaves its slot: the report may lead
#: to a slow decision, and other commands need the slot. At most _LATE_PER_SLOT commands per slot wait this way.
_USUAL_S = 0.01
_LATE_PER_SLOT = 4


class _Held(Struct):
    """A command that this worker holds."""

    command: Command
    stream: ReportStream
    #: the task to cancel to stop the command
    task: asyncio.Task[Any] | None
    #: whether its last report has been sent; the answer may contain the next command
    concluding: bool = False


class Worker:
    """Claims and runs commands until it is stopped, or until the log can no longer be written."""

    def __init__(
        self,
        info: WorkerInfo,
        control: Control,
        toolbox: Toolbox,
        results: Results,
        clock: Clock,
        settings: Settings,
        secrets: Secrets | None = None,
        sync_reader: SyncReader | None = None,
        *,
        unattended: bool = False,
    ) -> None:
        """Create a worker.

        With `unattended`, the worker survives failures: a failed command is logged and left to its lease, other
        commands continue, and the worker waits for an unavailable store. Otherwise a failure ends the worker, whose
        process exists only for its runs.
        """
        self.info = info
        self._unattended = unattended
        self._control = control
        self._toolbox = toolbox
        self._clock = clock
        self._logs = LogSink(control, clock, settings)
        self._around = Surroundings(
            toolbox,
            results,
            secrets,
            self._logs,
            clock,
            Limits.of(settings),
            control,
            sync_reader or ThreadReader(),
            ReadLately(settings.integer("results.cache_bytes")),
            Ordered(),
        )
        self._slots = settings.integer("worker.slots")
        self._lease_s = settings.number("leases.seconds")
        self._timing = Timing.of(settings)
        self._held: dict[int, _Held] = {}
        #: number of held commands per execution
        self._held_of: Counter[int] = Counter()
        self._runs: set[asyncio.Task[None]] = set()
        #: runs that wait longer than usual for the answer to a last report: they have left their slots
        self._late: set[asyncio.Task[None]] = set()
        #: runs whose last report was sent → the loop's time by which an answer is usual, in this order
        self._unanswered: dict[asyncio.Task[None], float] = {}
        self._answers_timer: asyncio.TimerHandle | None = None
        self._programs = Programs(settings)
        self._slot_free = asyncio.Event()
        self._failure: ArclogError | None = None
        self._failed = asyncio.Event()
        self._leaving = asyncio.Event()
        self._drain_s = settings.number("worker.drain_s")

    async def run(self) -> None:
        """Work until cancelled or until `leave` is called. Raises if commands can no longer be claimed or reported."""
        claiming = asyncio.ensure_future(self._claim())
        duties = (self._keep_leases(), self._watch_revocations(), self._failed.wait(), self._leaving.wait())
        tasks = [claiming, *(asyncio.ensure_future(duty) for duty in duties)]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
            if self._failure is not None:
                raise self._failure
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            await self._drain()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()

    def leave(self) -> None:
        """Drain: claim no more commands, and return held ones at the next task boundary, or after `worker.drain_s`."""
        self._leaving.set()

    @property
    def is_leaving(self) -> bool:
        return self._leaving.is_set()

    async def _drain(self) -> None:
        for held in list(self._held.values()):
            held.stream.leave()
        if self._runs:
            await asyncio.wait(self._runs, timeout=self._drain_s)
        late = [held.command for held in self._held.values()]
        for task in list(self._runs):
            task.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)
        for command in late:
            log.warning("worker %s stops during a task of command %s", self.info.worker_id, command.command_id)
            with suppress(ArclogError, TimeoutError):
                async with asyncio.timeout(_LAST_WORD_S):
                    await self._give_back(command)

    async def _claim(self) -> None:
        """Claim commands for free slots."""
        while True:
            free = self._slots - self._working
            if free > 0:
                asked_at, commands = await self._claimed(free)
                for command in commands:
                    self._begin(command, min(asked_at + command.waited_ms / 1000, self._clock.monotonic()))
            else:
                self._slot_free.clear()
                await self._slot_free.wait()

    @property
    def _working(self) -> int:
        """The number of occupied slots."""
        return len(self._runs) - len(self._late)

    async def _claimed(self, free: int) -> tuple[float, list[Command]]:
        """Return the claimed commands, and the time of the request."""
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            asked_at = self._clock.monotonic()
            try:
                return asked_at, await self._control.claim(self.info, free, _CLAIM_WAIT_S)
            except StoreError as problem:
                if not self._unattended:
                    raise
                pause = backoff.pause_s()
                log.warning(
                    "worker %s cannot claim commands: %s; retrying in %g s", self.info.worker_id, problem, pause
                )
                await self._clock.sleep(pause)

    def _begin(self, command: Command, proved_at: float) -> None:
        """Start a command. `proved_at` is a time at which the command certainly belonged to this worker."""
        task = asyncio.ensure_future(self._run_in_slot(command, proved_at))
        self._runs.add(task)
        task.add_done_callback(self._run_ended)

    def _run_ended(self, task: asyncio.Task[None]) -> None:
        self._runs.discard(task)
        self._late.discard(task)
        self._slot_free.set()
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("worker %s: %s", self.info.worker_id, problem)
            if self._unattended:
                return
            self._failure = problem if isinstance(problem, ArclogError) else ArclogError(str(problem))
            self._failed.set()

    async def _run_in_slot(self, command: Command | None, proved_at: float) -> None:
        """Run a command, then the commands that the answers to its reports contain, in the same slot."""
        task = asyncio.current_task()
        while command is not None:
            proved_at, following = await self._run_command(command, proved_at, task)
            if self._late and task is not None and task in self._late:
                following = await self._back_in_slot(task, following)
            for further in following[1:]:
                self._begin(further, proved_at)
            if not following:
                await self._maybe_ended(command.execution_id)
            command = following[0] if following else None

    async def _back_in_slot(self, task: asyncio.Task[None], following: list[Command]) -> list[Command]:
        """Start the commands of a late answer if slots are still free, and return the others."""
        room = self._slots - self._working
        kept, rest = following[: max(room, 0)], following[max(room, 0) :]
        if kept:
            self._late.discard(task)
        for command in rest:
            await self._give_back(command)
        return kept

    def _expect_answer(self, task: asyncio.Task[None]) -> None:
        """Watch the run of a command whose last report is about to be sent.

        One timer serves all runs: most answers come long before it expires.
        """
        loop = asyncio.get_running_loop()
        due = self._unanswered[task] = loop.time() + _USUAL_S
        if self._answers_timer is None:
            self._answers_timer = loop.call_at(due, self._look_at_answers)

    def _look_at_answers(self) -> None:
        """Let runs leave their slots whose answers take longer than usual."""
        self._answers_timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for task, due in list(self._unanswered.items()):
            if due > now:
                self._answers_timer = loop.call_at(due, self._look_at_answers)
                return
            del self._unanswered[task]
            if len(self._late) < self._slots * _LATE_PER_SLOT:
                self._late.add(task)
                self._slot_free.set()

    async def _run_command(
        self, command: Command, proved_at: float, task: asyncio.Task[Any] | None
    ) -> tuple[float, list[Command]]:
        """Run a command.

        Returns the time of its last report and the commands in the answer; none if the command was lost or failed.
        """
        try:
            return await self._done(command, proved_at, task)
        except (LeaseLost, RequestRejected) as lost:
            log.warning("worker %s: %s", self.info.worker_id, lost)
        except Exception as problem:
            if not self._unattended:
                raise
            log.error(
                "worker %s abandons command %s of execution %s, which another worker gets when its lease expires: %s",
                self.info.worker_id,
                command.command_id,
                command.execution_id,
                problem,
                exc_info=None if isinstance(problem, ArclogError) else problem,
            )
        return 0.0, []

    async def _done(
        self, command: Command, proved_at: float, task: asyncio.Task[Any] | None
    ) -> tuple[float, list[Command]]:
        program = self._programs.get(command.plan)
        if program is None:
            program = self._programs.keep(await self._control.program(command.plan))
        stream = ReportStream(
            self._control, self._clock, command, self.info.worker_id, self._timing, proved_at, self._held_commands
        )
        if self._leaving.is_set():
            stream.leave()
        self._held[command.command_id] = _Held(command, stream, task)
        self._held_of[command.execution_id] += 1
        try:
            run = CommandRun(command, program, stream, self._around)
            await run.run()
            if (held := self._held.get(command.command_id)) is not None:
                held.concluding = True
            # One command, for this slot: the pending claim fills the free slots.
            wants = 0 if self._leaving.is_set() else 1
            if task is not None:
                self._expect_answer(task)
            if self._logs.has_lines:
                # Both are queued before either is awaited, so that they share a commit.
                _, following = await asyncio.gather(self._logs.flush(), stream.flush(wants))
            else:
                following = await stream.flush(wants)
        except PausedHere:
            # The run pauses or this worker drains: report the events so far, then return the command.
            await asyncio.gather(self._logs.flush(), stream.flush())
            await self._give_back(command)
            return 0.0, []
        else:
            return stream.granted_at, following
        finally:
            if task is not None:
                self._unanswered.pop(task, None)
            self._release(command)
            await stream.abandon()

    def _release(self, command: Command) -> None:
        self._held.pop(command.command_id, None)
        self._held_of[command.execution_id] -= 1
        if not self._held_of[command.execution_id]:
            del self._held_of[command.execution_id]

    async def _give_back(self, command: Command) -> None:
        await self._control.give_back(self.info.worker_id, command.execution_id, command.command_id, command.fence)

    async def _maybe_ended(self, execution_id: int) -> None:
        """Release the cached data of an execution if the worker holds none of its commands any more."""
        if execution_id not in self._held_of:
            await self._toolbox.execution_ended(str(execution_id))

    async def _keep_leases(self) -> None:
        """Send heartbeats for long commands, and stop commands that were not confirmed for two thirds of a lease."""
        while True:
            await self._clock.sleep(self._lease_s / 4)
            held = self._held_commands()
            if not held:
                continue
            asked_at = self._clock.monotonic()
            try:
                lost = set(await self._control.heartbeat(self.info.worker_id, held))
            except ArclogError as problem:
                log.warning("worker %s: heartbeat failed: %s", self.info.worker_id, problem)
            else:
                for command_id, _ in held:
                    if command_id in lost:
                        # A last report that was committed during the heartbeat also closes the command: the answer to
                        # the report decides, and stopping the command would lose the commands in that answer.
                        if command_id in self._held and not self._held[command_id].concluding:
                            self._drop(command_id, "its lease was lost")
                    elif command_id in self._held:
                        stream = self._held[command_id].stream
                        stream.proved_at = max(stream.proved_at, asked_at)
            self._drop_unconfirmed()

    def _held_commands(self) -> list[tuple[int, int]]:
        return [(held.command.command_id, held.command.fence) for held in self._held.values()]

    def _drop_unconfirmed(self) -> None:
        """Stop commands that no server confirms any more.

        A finished command keeps the whole lease for its last report.
        """
        now = self._clock.monotonic()
        for command_id, held in list(self._held.items()):
            silent_s = now - held.stream.proved_at
            if held.concluding and silent_s > self._lease_s:
                self._drop(command_id, "its last report was not confirmed within the lease; the work will be repeated")
            elif not held.concluding and silent_s > self._lease_s * 2 / 3:
                self._drop(command_id, "no heartbeat was confirmed for two thirds of the lease")

    async def _watch_revocations(self) -> None:
        while True:
            for revocation in await self._control.revoked(self.info.worker_id, _CLAIM_WAIT_S, self._revocable()):
                self._revoke(revocation)

    def _revocable(self) -> list[Held]:
        """Return the held commands, except those whose last report has been sent."""
        return [
            (held.command.execution_id, held.command.command_id, held.command.fence)
            for held in self._held.values()
            if not held.concluding
        ]

    def _revoke(self, revocation: Revocation) -> None:
        if revocation.leave:
            if not self.is_leaving:
                log.warning("worker %s is draining: it takes no new commands", self.info.worker_id)
            self.leave()
            return
        held = self._held.get(revocation.command_id)
        if held is None or held.concluding:
            # Nothing of it runs any more, and the answer to its last report decides: one server may report its end as a
            # withdrawal while another is about to answer with the next command.
            return
        if revocation.pause:
            held.stream.pausing.set()
            return
        self._drop(revocation.command_id, "the server withdrew it", late=revocation.late)
        if revocation.kill and held.task is not None:
            # A tool that is cancelled a second time kills its processes at once.
            asyncio.get_running_loop().call_later(_NO_GRACE_S, held.task.cancel)

    def _drop(self, command_id: int, why: str, *, late: bool = False) -> None:
        held = self._held.pop(command_id, None)
        if held is not None:
            log.warning("worker %s stops command %s: %s", self.info.worker_id, command_id, why)
            if held.task is not None:
                held.task.cancel(TOO_LONG if late else None)

    async def _stop(self) -> None:
        with suppress(ArclogError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                for revocation in await self._control.revoked(self.info.worker_id, 0.0, self._revocable()):
                    self._revoke(revocation)
        for task in list(self._runs):
            task.cancel()
        await asyncio.gather(*self._runs, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORD_S):
                await self._logs.close()
        await self._toolbox.close()
