"""arclog as a server: store, engine and its duties in this process, the application on a socket.

Workers connect over HTTP; with `arclog up` one also runs in this process. On a stop signal the server first drains: new
work is refused, streams and long polls end, requests in progress are answered. Then it closes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing, nullcontext, suppress
from types import FrameType
from typing import Any

import msgspec
import uvicorn

from arclog.drivers.addresses import is_loopback
from arclog.engine.commits.engine import Engine
from arclog.engine.dispatch.scoped_control import ScopedControl
from arclog.engine.runs.compile_cache import is_small
from arclog.engine.runs.ingest import EngineIngest
from arclog.engine.views.run_contract import EngineRuns, new_cursors
from arclog.model.config.settings import Settings
from arclog.model.errors import ArclogError, Finding, PlaybookError
from arclog.plan import draw
from arclog.plan.build import build
from arclog.playbook.json_schema import json_schema
from arclog.ports.boundary import Boundary
from arclog.ports.control import BoundControl
from arclog.ports.secrets import Vault
from arclog.ports.views.checks import Diagnosis
from arclog.ports.views.runs import Runs
from arclog.sandbox.confinement_settings import for_server
from arclog.server.app import create_app
from arclog.server.auth.audit import Audit
from arclog.server.auth.gate import Gate
from arclog.server.connections import connection_of
from arclog.server.observability.logs import log_runs, operators_log
from arclog.server.observability.metrics import Metrics, SharedMetrics, measured
from arclog.server.services import Services, at_once
from arclog.server.traffic import Traffic
from arclog.wiring.compiling.pool import CompilingProcesses
from arclog.wiring.doctor import diagnosed
from arclog.wiring.embedded import DEFAULT_POOL, Embedded, embedded
from arclog.wiring.file_root import prepare_file_root
from arclog.wiring.kinds import installed_kinds
from arclog.wiring.process import freeze_imports
from arclog.wiring.secrets import choose_vault, left_in_home
from arclog.wiring.serving.processes import BACKLOG, Member, address_of, allow_files, listen

log = logging.getLogger("arclog.server")

#: Time for the next request on each connection that was accepted before this process was replaced.
_NEXT_REQUEST_S = 1.0
_LOOK_S = 0.01
#: Time for connections to close once the drain is over.
_CLOSE_S = 1


async def serve(
    settings: Settings,
    *,
    with_worker: bool,
    started: asyncio.Future[str] | None = None,
    stop: asyncio.Event | None = None,
    member: Member | None = None,
) -> None:
    """Serve until stopped (by `stop`, SIGTERM or SIGINT); `started` gets the address. With `member`, it is one of
    several processes behind one address.
    """
    is_own_machine = with_worker and is_loopback(settings.text("server.host"))
    settings = for_server(settings, is_own_machine=is_own_machine)
    if with_worker and not is_own_machine:
        prepare_file_root(settings)
    listener = listen(settings) if member is None else member.listener
    with closing(listener), operators_log(settings):
        allow_files(settings)
        async with (
            embedded(settings, works_here=with_worker) as runtime,
            _traced(runtime.engine),
            _compiling_elsewhere(runtime, settings) as compiling,
        ):
            stopping = stop or asyncio.Event()
            log_runs(runtime.engine.hints)
            gate = Gate(settings, runtime.engine.store, runtime.engine.clock)
            await gate.check_address(settings.text("server.host"))
            await runtime.free_dead()
            runtime.start_duties()
            runtime.start_scheduler()
            vault = choose_vault(settings, runtime.engine.store)
            await _warn_of_secrets(settings, vault)
            metrics = Metrics(runtime.engine)
            shared = SharedMetrics(metrics, member.folder) if member is not None else None
            services = _services(
                settings, runtime, compiling, gate, vault, metrics, metrics.text if shared is None else shared.text
            )
            metrics.watch_requests(services.traffic)
            runtime.worker_control = measured(runtime.control, metrics)
            if with_worker:
                runtime.engine.pools = (DEFAULT_POOL,)
                await runtime.isolate_tenants()
                await runtime.start_worker(unattended=True)
            server = _Server(services, stopping, asyncio.Event() if member is None else member.replaced)
            if runtime.worker is not None:
                runtime.worker.add_done_callback(lambda _: stopping.set())
            freeze_imports()
            if started is not None:
                started.set_result(address_of(listener))
            async with nullcontext() if shared is None else shared.written():
                await server.serve([listener])
            if runtime.worker is not None and runtime.worker.done():
                runtime.worker.result()  # raises the worker's error: a server without its worker is of no use


@asynccontextmanager
async def _compiling_elsewhere(runtime: Embedded, settings: Settings) -> AsyncIterator[CompilingProcesses]:
    """Compile large playbooks in separate processes while the context is open, and build their programs in turns, so
    that no tenant's playbook delays the requests of others.
    """
    compiling = CompilingProcesses(settings)
    runtime.api.compiler.elsewhere = compiling
    runtime.api.compiler.turns = runtime.engine.live.turns = runtime.engine.deciding.turns
    try:
        yield compiling
    finally:
        runtime.api.compiler.elsewhere = None
        await compiling.close()


@asynccontextmanager
async def _traced(engine: Engine) -> AsyncIterator[None]:
    """While the context is open, send traces, if an endpoint is set."""
    if not engine.settings.text("telemetry.otlp_endpoint"):
        yield
        return
    from arclog.server.observability.tracing import Tracing

    tracing = Tracing(engine)
    exporting = asyncio.ensure_future(tracing.run())
    try:
        yield
    finally:
        await tracing.close(engine.settings.number("telemetry.timeout_s"))
        exporting.cancel()
        await asyncio.gather(exporting, return_exceptions=True)


async def _warn_of_secrets(settings: Settings, vault: Vault) -> None:
    """Log problems that tasks would otherwise report one by one: this server cannot open the stored secrets, or does
    not use the ones in its home.
    """
    try:
        wrong = await vault.problem()
    except ArclogError as problem:
        wrong = str(problem)
    for finding in (wrong, await asyncio.to_thread(left_in_home, settings, vault)):
        if finding:
            log.error("secrets: %s", finding)


class _Server(uvicorn.Server):
    """Drains before it closes: `stop` begins the drain, a second signal ends it early."""

    def __init__(self, services: Services, stop: asyncio.Event, replaced: asyncio.Event) -> None:
        """`replaced`: set before `stop` if another process accepts connections on the same socket from now on."""
        proxies = services.settings.text("server.trusted_proxies").replace(" ", "")
        self._connections = connection_of(services.settings)
        super().__init__(
            uvicorn.Config(
                create_app(services),
                http=self._connections,
                ws="none",
                # By default, uvicorn trusts forwarding headers of every client on this machine.
                proxy_headers=bool(proxies),
                forwarded_allow_ips=proxies,
                server_header=False,
                log_config=None,
                access_log=False,
                lifespan="off",
                backlog=BACKLOG,
                timeout_keep_alive=services.settings.number("server.idle_timeout_s"),  # type: ignore[arg-type]  # passed to `call_later`
                timeout_graceful_shutdown=_CLOSE_S,
            )
        )
        self._services = services
        self._stop = stop
        self._replaced = replaced
        self._loop = asyncio.get_running_loop()

    async def main_loop(self) -> None:
        ticking = asyncio.ensure_future(super().main_loop())  # until a second signal
        tasks: list[asyncio.Task[Any]] = [ticking, asyncio.ensure_future(self._stop.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if self._replaced.is_set():
                await self._leave_connections()
            self._services.stopping.set()
            tasks.append(asyncio.ensure_future(self._services.traffic.quiet()))
            drain_s = self._services.settings.number("server.drain_s")
            await asyncio.wait((ticking, tasks[-1]), timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _leave_connections(self) -> None:
        """Leave new connections to the process that replaces this one, and refuse no request on those that were
        accepted: each is closed after its response.
        """
        for server in self.servers:
            for listener in server.sockets:
                self._loop.remove_reader(listener)  # asyncio's own loop loses connections that it accepts as it closes
        await asyncio.sleep(_LOOK_S)
        for server in self.servers:
            server.close()
        await asyncio.sleep(_LOOK_S)  # connections in the middle of their accept are in the list then
        self._connections.is_leaving = True
        connections = self.server_state.connections
        with suppress(TimeoutError):
            async with asyncio.timeout(_NEXT_REQUEST_S):
                while not all(connection.is_under_way() for connection in connections):  # type: ignore[union-attr]  # noqa: ASYNC110 - no event
                    await asyncio.sleep(_LOOK_S)
        for connection in list(connections):
            connection.shutdown()
        await asyncio.sleep(_LOOK_S)  # requests whose head has arrived begin before others are refused

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature is uvicorn's
        if self._stop.is_set():
            self.force_exit = self.should_exit = True
        self._loop.call_soon_threadsafe(self._stop.set)


def _services(
    settings: Settings,
    runtime: Embedded,
    compiling: CompilingProcesses,
    gate: Gate,
    vault: Vault,
    metrics: Metrics,
    figures: Callable[[], Awaitable[bytes]],
) -> Services:
    async def ready() -> str:
        limit_s = settings.number("server.ready_s")
        try:
            async with asyncio.timeout(limit_s):
                await runtime.api.list(limit=1)
        except TimeoutError:
            return f"the store does not answer within {limit_s:g} s (server.ready_s)"
        except ArclogError as problem:
            return str(problem)
        return ""

    clock, book = runtime.engine.clock, runtime.engine.store
    cursors = new_cursors()
    if runtime.relay is not None:
        metrics.watch(runtime.relay.bus, runtime.publisher)
    engine = runtime.engine

    def control(boundary: Boundary) -> BoundControl:
        return measured(ScopedControl(runtime.control, engine.store, clock, boundary), metrics)

    def runs(boundary: Boundary) -> Runs:
        return EngineRuns(engine, runtime.api.within(boundary), boundary, cursors)

    async def check(text: str, file: str, tenant: str) -> tuple[list[Finding], bytes]:
        if is_small(text):
            built = build(text, file, installed_kinds(), settings)
            return built.findings, b"" if built.plan is None else msgspec.json.encode(draw.as_json(built.plan))
        try:
            graph, findings = await compiling.check(text, file, tenant)
        except PlaybookError as problem:
            return problem.findings, b""
        return findings, graph

    async def doctor(boundary: Boundary) -> Diagnosis:
        return await diagnosed(settings, runtime, boundary.reach.tenant)

    return Services(
        settings=settings,
        doctor=doctor,
        schema=lambda: json_schema(installed_kinds()),
        check=check,
        api=runtime.api.within,
        control=control,
        metrics=figures,
        schedules=runtime.schedules,
        pools=runtime.pools,
        vault=vault,
        ingest=EngineIngest(runtime.engine),
        runs=runs,
        results=runtime.results,
        authenticate=gate.authenticate,
        gate=gate,
        key_made=gate.key_made,
        ready=ready,
        clock=clock,
        book=book,
        audit=Audit(book, clock, settings),
        traffic=Traffic(settings),
        turns=turns.run if (turns := runtime.engine.deciding.turns) is not None else at_once,
    )
