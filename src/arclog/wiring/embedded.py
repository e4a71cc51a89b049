"""arclog in one process: SQLite store, engine and worker. The composition root of the CLI."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arclog import __version__
from arclog.core.boundary.inputs import Continue
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import LeasedMinter
from arclog.engine.commits.turns import Turns
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.duties.upkeep import Upkeep
from arclog.engine.duties.webhooks import Outbox
from arclog.engine.runs.children import Children
from arclog.engine.runs.inputs import RunSecrets
from arclog.engine.views.api import EngineApi
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, MissingExtra, StoreUnavailable
from arclog.model.ids import MAX_ID, parse_id, timestamp
from arclog.plan.net import Plan
from arclog.ports.boundary import Boundary
from arclog.ports.clock import Clock
from arclog.ports.control import Control, WorkerInfo
from arclog.ports.results import Results
from arclog.ports.secrets import Secrets
from arclog.ports.storage.marks import CrashBook
from arclog.ports.storage.pools import PoolApi
from arclog.ports.storage.schedules import ScheduleApi
from arclog.ports.storage.store import ExecutionFilter, Store
from arclog.ports.tool import ToolServices
from arclog.sandbox.folders import workdir_of
from arclog.wiring.backends import DATABASE, choose_bus, choose_results, choose_store, keeps_files
from arclog.wiring.clocks import SystemClock
from arclog.wiring.homes.folders import Scratch, prepare_home, remove_abandoned
from arclog.wiring.homes.presence import FileMarks, Presence
from arclog.wiring.kinds import KindSpecs, ToolKinds, kinds_named_in, tool_kinds
from arclog.wiring.process import protect_process
from arclog.wiring.secrets import SecretsOnDemand, choose_vault
from arclog.wiring.senders.webhooks import WebhookSender
from arclog.worker.runner import Worker
from arclog.worker.toolbox import Toolbox

if TYPE_CHECKING:
    from arclog.engine.commits.relay import Relay
    from arclog.engine.duties.publishing import Publisher
    from arclog.engine.history.lineage import LineageSender
    from arclog.wiring.senders.lineage import LineagePoster

#: The pools of a worker by default.
DEFAULT_POOL = "default"
#: Claimed commands that are checked when a server starts.
_MOST_CLAIMED = 10_000
#: Time for follow-up work of the last commits (notifying parents, cancelling children) when the program exits.
_SETTLE_S = 2.0
#: The networks that http tasks may reach by default: the user who runs playbooks here can reach this machine anyway.
_REACHABLE = "loopback"

log = logging.getLogger("arclog.engine")


class Embedded:
    """Store, engine and (once started) a worker, in this process."""

    def __init__(
        self,
        settings: Settings,
        home: Path,
        store: Store,
        engine: Engine,
        worker_id: str,
        secrets: Secrets,
        kinds: ToolKinds,
    ) -> None:
        self.engine = engine
        self._kinds = kinds
        #: the kinds of tasks as data
        self.kinds = KindSpecs(kinds)
        self._secrets = secrets
        self.control = EngineControl(engine)
        #: the control of the worker in this process
        self.worker_control: Control = self.control
        self.children = Children(engine)
        self.results: Results = choose_results(settings)
        self._settings = settings
        self._store = store
        self._presence = Presence(home)
        self.api = EngineApi(engine, self.kinds, self.results, self._is_alive, self._is_served)
        self._worker_id = worker_id
        self._scratch: Scratch | None = None
        self._toolbox: Toolbox | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._upkeep: Upkeep | None = None
        self._webhooks = WebhookSender(settings)
        self._outbox: Outbox | None = None
        #: notifies other servers; None if there are none
        self.relay: Relay | None = None
        self.publisher: Publisher | None = None
        self._lineage: LineageSender | None = None
        self._lineage_poster: LineagePoster | None = None
        #: whether the store still accepts writes
        self.in_touch = True
        #: resolves with the error that stopped the worker
        self.worker: asyncio.Task[None] | None = None

    def keep_plan(self, text: str, plan: Plan) -> None:
        """Keep a plan that the caller has compiled already."""
        self.api.compiler.keep(text, plan)

    def open_tools(self, text: str) -> None:
        """Open the tools that a playbook's text seems to name, so that their processes are ready when they are
        needed.
        """
        toolbox = self._tools()
        for kind in kinds_named_in(text, self._kinds):
            with suppress(MissingExtra):  # a task of that kind reports it
                toolbox.prepare(kind)

    def _tools(self) -> Toolbox:
        if self._toolbox is None:
            workdir_of(self._settings)  # raises before anything runs if the folder does not exist
            protect_process(self._settings)
            self._scratch = Scratch()
            self._toolbox = Toolbox(self._kinds, ToolServices(self._settings, self._scratch.folder))
        return self._toolbox

    async def isolate_tenants(self) -> None:
        """Let the worker serve several tenants only if their tasks are isolated. Raises SettingsError if it must not
        start.
        """
        from arclog.wiring.isolation import has_several_tenants, isolate

        toolbox = self._tools()
        if await has_several_tenants(self._settings, self._store):
            await isolate(self._settings, toolbox, several=True)
        else:
            self._tasks.append(asyncio.ensure_future(isolate(self._settings, toolbox, several=False)))

    async def start_worker(self, execution_id: str = "", *, unattended: bool = False) -> None:
        """Begin to run commands and to fire timers; with an id, only commands of that execution and its descendants.
        `unattended` means that no caller waits for it, so it continues after errors.
        """
        only = parse_id(execution_id, "execution id") if execution_id else 0
        self._presence.enter(self._worker_id, only)
        toolbox = self._tools()
        # A worker for a single run serves all pools that its steps name, since the run has no other worker.
        pools = () if only else (DEFAULT_POOL,)
        info = WorkerInfo(
            self._worker_id,
            toolbox.kinds,
            pools,
            only,
            slots=self._settings.integer("worker.slots"),
            host=socket.gethostname(),
            version=__version__,
        )
        clock, settings = self.engine.clock, self._settings
        worker = Worker(
            info, self.worker_control, toolbox, self.results, clock, settings, self._secrets, unattended=unattended
        )
        self.worker = asyncio.ensure_future(worker.run())
        self._tasks.append(self.worker)
        self.start_duties(only)
        if self._scratch is not None and self._scratch.has_others():
            self._tasks.append(asyncio.ensure_future(asyncio.to_thread(_tidy)))

    def pools(self, boundary: Boundary | None = None) -> PoolApi:
        """Pools and workers within a boundary; without one, as the owner of the store sees them."""
        from arclog.engine.dispatch.pools import EnginePools

        return EnginePools(self.engine, boundary)

    def start_duties(self, only: int = 0) -> None:
        """Begin to fire timers, to end leases that were lost and to start runs that wait, also for workers elsewhere.
        With an id, for that execution, whether or not another process does the same; else as one server of several.
        """
        if self._upkeep is None:
            self._presence.enter(self._worker_id, only)
            self._upkeep = Upkeep(
                self.engine,
                self.control,
                self.children,
                self._worker_id,
                results=self.results,
                is_served=lambda number: bool(self._presence.serving(number)),
                takes_all=keeps_files(self._settings),
            )
            self._outbox = Outbox(self.engine, self.children, self._secrets, self._webhooks.send)
            duties = (*self._upkeep.begin(only), self._outbox.run())
            self._tasks += [asyncio.ensure_future(duty) for duty in duties]
            if self.relay is not None and self.relay.bus.topic is not None:
                from arclog.engine.duties.publishing import Publisher

                self.publisher = Publisher(self.engine, self.relay.bus.topic, self._worker_id)
                self._tasks.append(asyncio.ensure_future(self.publisher.run()))
            if not only and (self._settings.text("lineage.url") or self._settings.text("lineage.file")):
                from arclog.wiring.senders.lineage import LineagePoster, lineage_sender

                self._lineage_poster = LineagePoster(self._settings, self._secrets)
                self._lineage = lineage_sender(self.engine, self._settings, self._worker_id, self._lineage_poster)
                self._tasks.append(asyncio.ensure_future(self._lineage.run()))

    async def open_bus(self) -> None:
        """Begin to exchange notices with other servers."""
        bus = choose_bus(self._settings)
        if bus is not None:
            from arclog.engine.commits.relay import Relay

            self.relay = Relay(self.engine, self.control, bus)
            await self.relay.open()

    def schedules(self, boundary: Boundary | None = None) -> ScheduleApi:
        """Return the schedules within a boundary, or those of the tenant in the settings."""
        from arclog.engine.runs.schedules import EngineSchedules

        own = Boundary.owner(self._settings, self._settings.text("scope.tenant"))
        return EngineSchedules(self.engine, boundary or own)

    def start_scheduler(self) -> None:
        """Begin to fire schedules."""
        from arclog.engine.runs.schedules import Scheduler

        self._tasks.append(asyncio.ensure_future(Scheduler(self.engine, self._worker_id).run()))

    async def free_dead(self) -> None:
        """Take back commands of this home's workers whose processes are gone, instead of waiting for their leases to
        end.
        """
        if not keeps_files(self._settings):
            return
        for record in await self._store.expired(MAX_ID, _MOST_CLAIMED):
            if self._is_alive(record.worker_id) is False:
                try:
                    await self.control.end_lease(record)
                except ArclogError as problem:  # an error of one must not delay the others
                    log.warning("command %s could not be taken back: %s", record.command_id, problem)

    def served_by(self, execution_id: str) -> str:
        """The worker of another process that serves only this run; '' if there is none."""
        return self._presence.serving(parse_id(execution_id, "execution id"))

    async def take_over(self, execution_id: str) -> str:
        """Take a run back from workers that are gone. Returns '' if this process may continue with it, else the
        worker that runs it.
        """
        number = parse_id(execution_id, "execution id")
        held = await self._free(number)
        if held:
            return held
        await self.engine.put(number, Continue())
        await self.children.recover(number)
        return ""

    async def _free(self, execution_id: int) -> str:
        """End the leases of workers that are gone or hang, in a run and in those that it waits for."""
        for record in await self._store.commands(execution_id):
            if record.state != "claimed":
                continue
            # A process whose lease has expired is stopped or hangs; should it continue, its fence is out of date.
            # Nothing is known about a worker elsewhere, so its lease holds until it expires.
            if record.lease_until > self.engine.clock.now() and self._is_alive(record.worker_id) is not False:
                until = timestamp(record.lease_until)
                return f"step {record.step} is being run by worker {record.worker_id} (lease until {until})"
            await self.control.end_lease(record)
        below = ExecutionFilter(states=("PENDING", "RUNNING"), parent=execution_id)
        for child in await self._store.executions(below, limit=10_000):
            held = await self._free(child.execution_id)
            if held:
                return held
            await self.engine.put(child.execution_id, Continue())
        return ""

    def _is_alive(self, worker_id: str) -> bool | None:
        """Return whether a worker's process is alive; None for a worker on another machine, or in another home on the
        same store.
        """
        if not keeps_files(self._settings) or not worker_id.startswith(f"{socket.gethostname()}-"):
            return None
        return self._presence.is_alive(worker_id)

    def _is_served(self, execution_ids: Collection[int]) -> bool | None:
        """Return whether a process of this home runs one of these executions; None if other homes share the store."""
        return self._presence.is_served(execution_ids) if keeps_files(self._settings) else None

    async def close(self) -> None:
        reachable = self.in_touch = await self._is_store_there() if self._tasks else True
        if self._tasks and reachable:
            # The end of a run may arrive here before its reason; the tasks of a run that was stopped in an emergency
            # get no time to finish.
            await last_word(self.control.watch())
        if self._outbox is not None and reachable:
            await self._outbox.settle(_SETTLE_S)
        await self._settle_followers(reachable)
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._upkeep is not None and reachable:
            await last_word(self._upkeep.give_up())
        if self._toolbox is not None:
            await self._toolbox.close()
        await (self.children.settle(_SETTLE_S) if reachable else self.children.close())
        await self._webhooks.close()
        if self.engine.run_secrets is not None:
            await self.engine.run_secrets.settle()
        await self._settle_followers(reachable)
        if self._lineage_poster is not None:
            await self._lineage_poster.close()
        await self.engine.close()
        if self.relay is not None:
            await self.relay.close()
        await self.results.close()
        await self._secrets.close()
        self._presence.leave(self._worker_id)
        if self._scratch is not None:
            self._scratch.remove()

    async def _settle_followers(self, reachable: bool) -> None:
        for follower in (self.publisher, self._lineage):
            if follower is not None and reachable:
                await follower.settle(_SETTLE_S)

    async def _is_store_there(self) -> bool:
        """Return whether the store still accepts writes; logged once if not. Waiting commands have leases that
        expire.
        """
        try:
            async with asyncio.timeout(_SETTLE_S):
                await self._store.time()
        except (ArclogError, TimeoutError) as problem:
            why = str(problem) or f"it does not answer within {_SETTLE_S:g} s"
            log.warning(
                "stopping although the store is unavailable: commands held here become available when their leases expire (%s)",
                why,
            )
            return False
        return True


async def last_word(work: Coroutine[Any, Any, None]) -> None:
    """Write to the store, if it accepts that at once."""
    with suppress(ArclogError, TimeoutError):
        async with asyncio.timeout(_SETTLE_S):
            await work


def _tidy() -> None:
    """Remove leftovers of killed processes."""
    with suppress(OSError):
        count = remove_abandoned()
        if count:
            log.info("removed %d scratch folders of processes that are gone", count)


def _prepare(settings: Settings, *, read_only: bool) -> None:
    """Create the home; a reader creates nothing and needs an existing one."""
    home = Path(settings.text("home"))
    if read_only:
        if keeps_files(settings) and not (home / DATABASE).exists():
            raise StoreUnavailable(f"there are no runs in {home}; start one with `arclog run FILE`")
        return
    prepare_home(home)


@asynccontextmanager
async def opened_store(settings: Settings) -> AsyncIterator[Store]:
    """The store of `settings.home` alone, created if necessary."""
    _prepare(settings, read_only=False)
    store = choose_store(settings, SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def embedded(
    settings: Settings, *, read_only: bool = False, works_here: bool = True, kinds: ToolKinds | None = None
) -> AsyncIterator[Embedded]:
    """An open arclog on `settings.home`; with `read_only` nothing is created. Unless it `works_here`, credentials
    belong to the workers and are resolved when they are used. `kinds` are the installed ones and those of the calling
    program.
    """
    if not settings.text("webhooks.allow_networks"):
        host = settings.text("server.host")
        near = _REACHABLE if host in ("localhost", "::1") or host.startswith("127.") else "none"
        settings = settings.replaced(webhooks__allow_networks=settings.text("http.allow_networks") or near)
    if not settings.text("http.allow_networks"):
        settings = settings.replaced(http__allow_networks=_REACHABLE)
    home = Path(settings.text("home"))
    _prepare(settings, read_only=read_only)
    own = SystemClock()
    shared = _home_clock(settings, own, writes=not read_only) if keeps_files(settings) else own
    store = choose_store(settings, shared)
    await store.open()
    try:
        async with _clock(settings, store, shared) as clock:
            owner = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"
            minter = LeasedMinter(clock, store, owner)
            if not read_only:
                await minter.renew()
            secrets = SecretsOnDemand(settings, clock, lambda: (choose_vault(settings, store),))
            wall = own if keeps_files(settings) else clock
            engine = Engine(store, clock, settings, minter, secrets if works_here else None, wall)
            engine.deciding.turns = Turns()
            engine.run_secrets = RunSecrets(engine, lambda: choose_vault(settings, store))
            book = store if isinstance(store, CrashBook) else None
            marks = None if read_only else FileMarks(home, owner, is_shared=book is not None)
            runtime = Embedded(settings, home, store, engine, owner, secrets, kinds or tool_kinds())
            try:
                if marks is not None:
                    await engine.keep_marks(marks, book, owner)
                if not read_only:
                    await runtime.open_bus()
                yield runtime
            finally:
                await runtime.close()
                if marks is not None:
                    marks.close()
                if not read_only and runtime.in_touch:
                    await last_word(minter.give_up())
    finally:
        await store.close()


def _home_clock(settings: Settings, own: Clock, *, writes: bool) -> Clock:
    from arclog.wiring.clocks import IS_KNOWN, SteadyClock

    if not IS_KNOWN:
        return own
    return SteadyClock(own, settings.number("engine.max_clock_step_s"), Path(settings.text("home")), writes=writes)


@asynccontextmanager
async def _clock(settings: Settings, store: Store, own: Clock) -> AsyncIterator[Clock]:
    """The home's clock, or the store's if several machines share one."""
    if keeps_files(settings):
        yield own
        return
    from arclog.wiring.clocks import StoreClock

    clock = StoreClock(store.time, own)
    await clock.measure()
    following = asyncio.ensure_future(clock.follow(settings.number("store.clock_s")))
    try:
        yield clock
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
