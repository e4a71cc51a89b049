"""Several servers on one store, workers that reach any of them through a balancer, and what goes wrong between them.

Each server has an engine, its duties and a clock of its own that is off. One can die, stand still and go on, or leave;
answers to workers are lost now and then. All of it in virtual time, from one seed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar, cast

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import LeasedMinter
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.duties.upkeep import Upkeep
from arclog.engine.runs.children import Children
from arclog.engine.views.api import EngineApi
from arclog.model.commands import Command, Report, ReportAnswer, Revocation
from arclog.model.config.settings import Settings
from arclog.model.errors import Conflict, ServerUnavailable, StoreUnavailable
from arclog.plan.program import Program
from arclog.ports.control import Control, Held, LoopPage, Until, WorkerInfo
from arclog.ports.storage.store import Append, Appended, Store
from arclog.ports.storage.task_logs import LogLine
from arclog.ports.tool import ToolKind, ToolServices
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.faults import FaultyStore, forever
from arclog.testing.harness import SPECS
from arclog.testing.scripted import Ledger, scripted_kinds
from arclog.testing.virtual import START, LoopClock
from arclog.tools import noop
from arclog.wiring.clocks import StoreClock
from arclog.worker.reading import DirectReader
from arclog.worker.runner import Worker
from arclog.worker.toolbox import Toolbox

T = TypeVar("T")

#: How long a worker waits for an answer before it asks again, maybe another server.
_CLIENT_S = 10.0
#: Events from which something follows for other runs.
_MATTERS = frozenset({"command.completed", "playbook.finished", "execution.cancelled", "signal.received"})
#: What passes by itself.
_PASSING = (ServerUnavailable, StoreUnavailable, Conflict, TimeoutError)


class _Reach(FaultyStore):
    """The store as one server reaches it: with delays, not at all once it is dead, and later while it stands still."""

    def __init__(self, below: Store, draw: Random, committed: Callable[[Append], None]) -> None:
        super().__init__(below)
        self._draw = draw
        self._committed = committed
        self.going = asyncio.Event()
        self.going.set()

    async def append(self, append: Append) -> Appended:
        await self._delay()
        done = await super().append(append)
        self._committed(append)
        await self._delay()
        self._check()
        return done

    async def _delay(self) -> None:
        await asyncio.sleep(self._draw.choice((0.0, 0.0, 0.0005, 0.003, 0.02)))
        await self.going.wait()

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)

        async def later(*args: Any, **kwargs: Any) -> Any:
            await self._delay()
            return await call(*args, **kwargs)

        return later


class Server:
    """One of them, from its start to its end."""

    def __init__(self, cluster: Cluster, number: int, skew_s: float) -> None:
        self.name = f"server-{number}"
        self.reach = _Reach(cluster.store, cluster.draw, lambda append: cluster.on_commit(self, append))
        store = cast("Store", self.reach)
        own = LoopClock(START + round(skew_s * 1_000_000))
        self.clock = StoreClock(store.time, own, asyncio.get_running_loop().time)
        self.engine = Engine(store, self.clock, cluster.settings, LeasedMinter(self.clock, store, self.name))
        self.control = EngineControl(self.engine)
        self.children = Children(self.engine)
        self.api = EngineApi(self.engine, SPECS, cluster.results)
        self.upkeep = Upkeep(self.engine, self.control, self.children, self.name)
        self.tasks: set[asyncio.Task[Any]] = set()
        self.gone = asyncio.Event()

    async def start(self) -> None:
        await self.clock.measure()
        await self.engine.minter.renew()
        for duty in (*self.upkeep.begin(), self.clock.follow(10.0)):
            self.tasks.add(asyncio.ensure_future(duty))

    @property
    def is_well(self) -> bool:
        return self.reach.going.is_set() and not self.reach._dead

    async def answer(self, work: Awaitable[T]) -> T:
        """What a request comes to. Whoever asked may leave; the server goes on with it all the same."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self._answered)
        gone = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not task.done() or task.cancelled():
            raise ServerUnavailable(f"{self.name} is gone")
        return task.result()

    def _answered(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may have left

    async def die(self) -> None:
        """As after kill -9."""
        self.reach.die()
        await self._end()

    async def leave(self) -> None:
        """As after SIGTERM: requests under way are lost here, too, but duties are given up."""
        await self.upkeep.give_up()
        await self.children.settle(2.0)
        self.reach.die()
        await self._end()

    async def _end(self) -> None:
        self.gone.set()
        self.reach.going.set()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.children.close()
        await self.engine.close()


class Balanced:
    """`ports.control.Control` that asks any of the servers, and again, maybe another one, when no answer comes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: the worker's process is: nothing that it still does counts
        self.gone = False

    async def _once(self, wait_s: float, ask: Callable[[Control], Awaitable[T]]) -> T:
        if self.gone:
            await forever()
        server = self._cluster.any_server()
        if server is None:
            raise ServerUnavailable("nobody listens")
        async with asyncio.timeout(wait_s + _CLIENT_S):
            answer = await server.answer(ask(server.control))
        if self._cluster.loses_answer():
            raise ServerUnavailable("the answer is lost on its way")
        return answer

    async def _ask(self, wait_s: float, ask: Callable[[Control], Awaitable[T]]) -> T:
        while True:
            try:
                return await self._once(wait_s, ask)
            except _PASSING:
                await asyncio.sleep(0.2)

    async def claim(
        self, worker: WorkerInfo, limit: int, wait_s: float = 0.0, until: Until | None = None
    ) -> list[Command]:
        return await self._ask(wait_s, lambda control: control.claim(worker, limit, wait_s, until))

    async def report(self, report: Report) -> ReportAnswer:
        return await self._ask(0.0, lambda control: control.report(report))

    async def heartbeat(self, worker_id: str, held: Sequence[tuple[int, int]]) -> list[int]:
        try:
            return await self._once(0.0, lambda control: control.heartbeat(worker_id, held))
        except _PASSING as problem:
            raise ServerUnavailable(str(problem)) from None

    async def give_back(self, worker_id: str, execution_id: int, command_id: int, fence: int) -> None:
        await self._ask(0.0, lambda control: control.give_back(worker_id, execution_id, command_id, fence))

    async def revoked(self, worker_id: str, wait_s: float, held: Sequence[Held] = ()) -> list[Revocation]:
        return await self._ask(wait_s, lambda control: control.revoked(worker_id, wait_s, held))

    async def program(self, digest: str) -> Program:
        return await self._ask(0.0, lambda control: control.program(digest))

    async def loop_results(self, execution_id: int, step: str, run: int, after: int, limit: int) -> LoopPage:
        return await self._ask(0.0, lambda control: control.loop_results(execution_id, step, run, after, limit))

    async def write_logs(self, lines: Sequence[LogLine]) -> None:
        await self._ask(0.0, lambda control: control.write_logs(lines))


class Cluster:
    """The store, the servers that there are, and the workers."""

    def __init__(self, settings: Settings, draw: Random, *, servers: int = 2, workers: int = 2) -> None:
        self.settings = settings
        self.draw = draw
        self.store: Store = MemoryStore(clock=LoopClock(), settings=settings)
        self.results = MemoryResults()
        self.ledger = Ledger()
        self.servers: list[Server] = []
        self.calm = False
        self._size, self._workers = servers, workers
        self._made = 0
        #: what becomes of a server right behind its commit
        self.on_commit: Callable[[Server, Append], None] = self._maybe_die
        #: servers that died behind a commit
        self.deaths = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._controls: list[Balanced] = []

    async def start(self) -> None:
        await self.store.open()
        for _ in range(self._size):
            await self.add()
        for number in range(self._workers):
            self.hire(f"worker-{number}")

    def hire(self, name: str) -> None:
        self._tasks.append(asyncio.ensure_future(self._work(name)))

    def fire_all(self) -> None:
        """The workers are gone, as after kill -9."""
        for control in self._controls:
            control.gone = True

    async def add(self) -> Server:
        """Start one more server; its own clock is off."""
        self._made += 1
        server = Server(self, self._made, self.draw.choice((0, -3600, 3600, 7)))
        await server.start()
        self.servers.append(server)
        return server

    async def remove(self, server: Server, *, kill: bool) -> None:
        self.servers.remove(server)
        await (server.die() if kill else server.leave())

    async def _work(self, name: str) -> None:
        kinds: dict[str, ToolKind] = {"noop": noop.KIND, **scripted_kinds(self.ledger, 1, None)}
        toolbox = Toolbox(kinds, ToolServices(self.settings, Path("/nonexistent")))
        info, control = WorkerInfo(name, toolbox.kinds), Balanced(self)
        self._controls.append(control)
        worker = Worker(info, control, toolbox, self.results, LoopClock(), self.settings, sync_reader=DirectReader())
        await worker.run()

    def any_server(self) -> Server | None:
        """As a balancer picks one: it does not know which of them stand still."""
        return self.draw.choice(self.servers) if self.servers else None

    def loses_answer(self) -> bool:
        return not self.calm and self.draw.random() < 0.02

    def _maybe_die(self, server: Server, append: Append) -> None:
        """A server may die right behind a commit, most likely behind one from which something follows for other runs."""
        matters = any(event.type in _MATTERS for event in append.events)
        if not self.calm and self.draw.random() < (0.25 if matters else 0.01):
            self.deaths += 1
            server.reach.die()
            self._tasks.append(asyncio.ensure_future(self._replace(server)))

    async def _replace(self, server: Server) -> None:
        if server in self.servers:
            await self.remove(server, kill=True)
            await self.add()

    def well(self) -> Server | None:
        return next((server for server in self.servers if server.is_well), None)

    async def stop(self) -> None:
        while left := [task for task in self._tasks if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=1.0)  # one that still asks for something is told again
        for server in list(self.servers):
            await self.remove(server, kill=True)
        await self.store.close()
