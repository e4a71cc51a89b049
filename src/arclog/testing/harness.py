"""A world for one playbook: the real engine and the real worker over any store, with scripted tools.

    async with World(text) as world:
        await world.run()
        world.state.ctx, await world.events()

A *life* is one engine with its workers. `crash` ends a life: nothing but the store survives. `begin_life` starts the
next one on the same store. Run it in virtual time with `run_virtually` (memory store), or on a plain loop with any
other store and clock.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from arclog.core.boundary.inputs import Continue, Request
from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.duties.timers import Timers
from arclog.engine.runs.children import Children
from arclog.engine.runs.slots import Slots
from arclog.engine.views.api import EngineApi
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError
from arclog.model.events import TERMINAL, Event
from arclog.plan import net
from arclog.plan.build import build_or_raise
from arclog.plan.program import Program
from arclog.ports.clock import Clock
from arclog.ports.control import Control, WorkerInfo
from arclog.ports.storage.store import ExecutionFilter, NewExecution, Scope, Store, StoredEvent
from arclog.ports.tool import ToolKind, ToolServices
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.faults import After, Before, faulty
from arclog.testing.scripted import ACT, PEEK, Hook, Ledger, scripted_kinds
from arclog.testing.virtual import LoopClock
from arclog.tools import noop
from arclog.worker.reading import DirectReader
from arclog.worker.runner import Worker
from arclog.worker.toolbox import Toolbox

log = logging.getLogger("arclog.testing")

#: Kinds that every world has.
SPECS: dict[str, KindSpec] = {"noop": noop.KIND.spec, "act": ACT, "peek": PEEK}
#: Virtual time after which a run counts as stuck.
PATIENCE_S = 7200.0


class NeverEnds(AssertionError):
    """The run did not end; has the answer of `why`."""


@lru_cache(maxsize=256)
def _prepared(playbook: str, settings: Settings) -> tuple[Program, bytes]:
    return _compiled(playbook, settings, SPECS)


def _compiled(playbook: str, settings: Settings, specs: Mapping[str, KindSpec]) -> tuple[Program, bytes]:
    body = net.encode(build_or_raise(playbook, "test.yaml", specs, settings))
    return Program(net.decode(body), net.digest(body)), body


class Life:
    """One engine and its workers, from their start to the crash."""

    def __init__(self, world: World, number: int, before: Before | None, after: After | None) -> None:
        self.number = number
        self.store, self._wrapper = faulty(world.store, before, after)
        self.engine = Engine(self.store, world.clock, world.settings, Minter(world.clock, number % 1024))
        self.control = EngineControl(self.engine)
        self.children = Children(self.engine)
        self.api = EngineApi(self.engine, world.specs, world.results)
        self.slots = Slots(self.engine)
        self.tasks: list[asyncio.Task[None]] = []
        self._world = world

    def start_worker(self, name: str = "", control: Control | None = None) -> Worker:
        world = self._world
        kinds: dict[str, ToolKind] = {"noop": noop.KIND, **scripted_kinds(world.ledger, self.number, world.hook)}
        toolbox = Toolbox({**kinds, **world.kinds}, ToolServices(world.settings, world.scratch))
        info = WorkerInfo(name or f"worker-{self.number}", toolbox.kinds)
        worker = Worker(
            info,
            control or self.control,
            toolbox,
            world.results,
            world.clock,
            world.settings,
            sync_reader=DirectReader(),
        )
        self.tasks.append(asyncio.ensure_future(worker.run()))
        return worker

    def start_sweeper(self) -> None:
        self.tasks.append(asyncio.ensure_future(self._sweep()))
        self.tasks.append(asyncio.ensure_future(Timers(self.engine).run()))
        if self._world.program.plan.concurrency is not None:
            self.tasks.append(asyncio.ensure_future(self.slots.keep(0, self._world.settings.number("engine.sweep_s"))))

    async def _sweep(self) -> None:
        pause = self._world.settings.number("engine.sweep_s")
        while True:
            await self.engine.clock.sleep(pause)
            try:
                await self.control.sweep()
                await self.children.sweep()
                await self.children.check_orphans()
                await self.control.watch()
            except ArclogError as problem:
                log.info("sweep: %s", problem)

    async def end(self) -> None:
        """End as after kill -9: nothing reaches the store any more."""
        self._wrapper.die()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.children.close()
        await self.engine.close()


class World:
    """A playbook, a store, and a succession of lives."""

    def __init__(
        self,
        playbook: str,
        *,
        workload: Mapping[str, Any] | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        settings: Settings | None = None,
        hook: Hook | None = None,
        before: Before | None = None,
        after: After | None = None,
        around: Callable[[Control], Control] | None = None,
        workers: int = 1,
        kinds: Mapping[str, ToolKind] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.clock: Clock = clock or LoopClock()
        self.store: Store = store or MemoryStore(clock=self.clock, settings=self.settings)
        #: tools besides the scripted ones
        self.kinds = dict(kinds or {})
        self.specs = {**SPECS, **{name: kind.spec for name, kind in self.kinds.items()}}
        prepare = _prepared if not self.kinds else lambda text, its: _compiled(text, its, self.specs)
        self.program, self._body = prepare(playbook, self.settings)
        self.playbook = playbook
        self.workload = dict(workload or {})
        self.ledger = Ledger()
        self.results = MemoryResults()
        self.hook = hook
        self.before = before
        self.after = after
        self.around = around
        self.workers = workers
        self.scratch = Path(tempfile.gettempdir())
        self.execution_id = 0
        self.lives = 0
        self.life: Life | None = None
        self._crash_wanted = asyncio.Event()

    # -- lives --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.store.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, it: BaseException | None, at: TracebackType | None
    ) -> None:
        if self.life is not None:
            await self.life.end()
        await self.store.close()

    def begin_life(self, *, cold: bool = False) -> Life:
        """A new engine on the same store. `cold`: it also reads the plan from the store again."""
        self.lives += 1
        self._crash_wanted = asyncio.Event()
        self.life = Life(self, self.lives, self.before, self.after)
        if not cold:
            self.life.engine.live.keep(self.program)
        return self.life

    async def crash(self) -> None:
        """End the current life."""
        if self.life is not None:
            await self.life.end()
            self.life = None

    def crash_now(self) -> None:
        """From inside a hook: the process dies here. The hook must then never return (`faults.forever`)."""
        assert self.life is not None
        self.life._wrapper.die()
        self._crash_wanted.set()

    @property
    def current_life(self) -> Life:
        assert self.life is not None, "no life has begun"
        return self.life

    # -- the run ------------------------------------------------------------------------------------------------------

    async def start(self) -> int:
        """Request the run, which is durable when this returns."""
        life = self.life or self.begin_life()
        now = self.clock.now()
        plan = self.program.plan
        record = await life.store.register_plan(
            self.program.digest, plan.path or plan.name, self._body, self.playbook, now, tenant="tenant"
        )
        scope = Scope("tenant", "project", "test")
        run_id = str(uuid.UUID(int=1, version=4))
        new = NewExecution(run_id, plan.name, record.path, record.version, record.digest, scope, now)
        request = Request(record.path, record.version, self.workload, "tenant/project/test")
        self.execution_id = await life.engine.start(self.program, new, request)
        return self.execution_id

    async def run(self) -> State:
        """Start the run if necessary and continue, through every crash that the hooks cause, until it has ended."""
        while True:
            life = self.life or self.begin_life(cold=self.lives % 7 == 3)
            crashed = asyncio.ensure_future(self._crash_wanted.wait())
            going = asyncio.ensure_future(self._go(life))
            deadline = asyncio.ensure_future(self.clock.sleep(PATIENCE_S))
            waiting = (crashed, going, deadline)
            try:
                ended, _ = await asyncio.wait((*waiting, *life.tasks), return_when=asyncio.FIRST_COMPLETED)
                if deadline in ended:
                    raise NeverEnds(str(await self.current_life.api.why(str(self.execution_id))))
                if not crashed.done() and going in ended:
                    going.result()
                    return await self.state()
            finally:
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
            # The process died, or its worker stopped because the log could not be written.
            await self.crash()

    async def _go(self, life: Life) -> None:
        try:
            if not self.execution_id:
                await self._find_or_start()
            else:
                await self.free(life)
            life.start_sweeper()
            for number in range(self.workers):
                control = self.around(life.control) if self.around else life.control
                life.start_worker(f"worker-{life.number}-{number}", control)
            await self._ended(life)
        except ArclogError as problem:
            # The driver of the process sees the error and starts it again.
            log.info("life %d ends: %s", life.number, problem)
            self._crash_wanted.set()
            await asyncio.get_running_loop().create_future()

    async def _ended(self, life: Life) -> None:
        """Wait until the terminal event is durable, or a worker has stopped."""
        head = 0
        while True:
            record = await self.store.execution(self.execution_id)
            if record is not None and record.now.terminal_event is not None:
                return
            if any(task.done() for task in life.tasks):
                stopped = next(task for task in life.tasks if task.done())
                raise ArclogError(f"a worker stopped: {stopped.exception()}")
            head = await life.api.wait(str(self.execution_id), after=head, timeout_s=60.0)

    async def _find_or_start(self) -> None:
        """Find a start whose answer was lost, or start the run."""
        executions = await self.store.executions()
        if executions:
            self.execution_id = executions[-1].execution_id
            await self.free(self.current_life)
        else:
            await self.start()

    async def free(self, life: Life) -> None:
        """The first step of `arclog resume`: take back the commands of dead workers, and continue with those that
        are ready.
        """
        for record in await life.store.commands(self.execution_id):
            if record.state == "claimed":
                await life.control.end_lease(record)
        await life.engine.put(self.execution_id, Continue())
        for child in await life.store.executions(ExecutionFilter(states=("PENDING", "RUNNING"), children=True)):
            for command in await life.store.commands(child.execution_id):
                if command.state == "claimed":
                    await life.control.end_lease(command)
        await life.children.recover(self.execution_id)

    async def register(self, text: str) -> Program:
        """Put another playbook into the catalog, for the first to call."""
        program, body = _prepared(text, self.settings)
        plan = program.plan
        path = plan.path or plan.name
        await self.store.register_plan(program.digest, path, body, text, self.clock.now(), tenant="tenant")
        return program

    # -- looking at it ------------------------------------------------------------------------------------------------

    async def stored(self) -> list[StoredEvent]:
        return await self.store.events(self.execution_id, limit=1_000_000)

    async def events(self) -> list[Event]:
        return [stored.event for stored in await self.stored()]

    async def state(self, at: int | None = None) -> State:
        """The state folded from the log, up to event `at`."""
        state = State(execution_id=self.execution_id)
        for stored in await self.stored():
            if at is not None and stored.seq > at:
                break
            apply(self.program, state, stored.event)
        return state

    async def terminal_events(self) -> list[str]:
        return [event.type for event in await self.events() if event.type in TERMINAL]
