"""Runs one case: the real engine and worker over a store in memory, in virtual time, with mocked tools.

Nothing polls. The loop's clock jumps from one due timer to the next, so that a wait of a day costs nothing.
"""

from __future__ import annotations

import asyncio
import posixpath
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.duties.timers import Timers
from arclog.engine.runs.catalog import called_files
from arclog.engine.runs.compile_cache import Compiler
from arclog.engine.runs.inputs import RunSecrets
from arclog.engine.views.api import EngineApi
from arclog.model.commands import Command
from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.model.data.json_data import deep_merge
from arclog.model.errors import ArclogError, InvariantBroken, RequestRejected
from arclog.model.events import Event
from arclog.plan.net import Plan
from arclog.plan.program import Program
from arclog.playbook.files import beside
from arclog.ports.control import WorkerInfo
from arclog.ports.secrets import Credential
from arclog.ports.tool import ToolKind, ToolServices
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.playbook_tests.cases import Case, SignalAt
from arclog.testing.playbook_tests.mocks import Call, MockBook, MockedToolbox
from arclog.testing.virtual import LoopClock
from arclog.worker.reading import DirectReader
from arclog.worker.runner import Worker

#: Longer than any test, so that nothing polls.
_NEVER_S = 1e10
_QUIET = {
    "engine.sweep_s": _NEVER_S,
    "engine.look_again_s": _NEVER_S,
    "engine.idle_look_s": _NEVER_S,
    "leases.seconds": 4 * _NEVER_S,
    "workers.seen_every_s": _NEVER_S,
}
#: In the place of a playbook that is called by file: the task that calls it is mocked.
_CALLED = "metadata: {name: called}\nworkflow: [{step: start, tool: {kind: noop}}]\n"
#: Fields of a keychain entry for which a test gives no value.
_FIELDS = ("value", "token", "access_token", "username", "password", "user", "host", "database", "dsn")


@dataclass(slots=True)
class CaseRun:
    """The result of one run."""

    #: completed failed cancelled refused, or `open` when it did not end
    state: str
    events: list[Event] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    book: MockBook | None = None
    ctx: dict[str, Any] = field(default_factory=dict)
    #: outcome records of the steps that ran
    steps: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    error: dict[str, Any] | None = None
    #: virtual seconds from request to end
    duration_s: float = 0.0
    #: why it did not end, or could not be checked
    problem: str = ""


class FakeSecrets:
    """The keychain of a test: its own values, and made-up ones for the rest."""

    def __init__(self, secrets: Mapping[str, Any]) -> None:
        self._values = secrets

    async def check(self, entries: Sequence[Mapping[str, Any]], scope: str) -> list[str]:
        return []

    async def resolve(self, entry: Mapping[str, Any], scope: str) -> Credential:
        name = str(entry["name"])
        value = self._values.get(name)
        if value is None:
            fields = dict.fromkeys(_FIELDS, f"test-{name}")
        else:
            fields = dict(value) if isinstance(value, Mapping) else {"value": value}
        return Credential(name, str(entry["kind"]), fields, ())

    async def refused(self, entry: Mapping[str, Any], scope: str) -> None:
        """Nothing to do; nothing is cached."""

    async def close(self) -> None:
        """Nothing to close."""


class GivenSecrets(RunSecrets):
    """Secret inputs of a test's workload, as its keychain has them."""

    def __init__(self, engine: Engine, keychain: dict[str, Any]) -> None:
        super().__init__(engine, _no_vault)
        self._keychain = keychain

    async def keep(self, execution_id: int, scope: str, values: Mapping[str, str]) -> None:
        self._keychain.update(values)

    async def forget(self, execution_id: int, scope: str, names: Sequence[str]) -> None:
        """Nothing to remove."""


def _no_vault() -> Any:
    raise InvariantBroken("playbook tests keep secret inputs in their keychain and open no vault")


class _PatientControl(EngineControl):
    """A worker's control whose waits end only when there is news."""

    async def claim(self, worker: WorkerInfo, limit: int, wait_s: float = 0.0, until: Any = None) -> list[Command]:
        return await super().claim(worker, limit, _NEVER_S if wait_s else 0.0, until)

    async def revoked(self, worker_id: str, wait_s: float, held: Any = ()) -> Any:
        return await super().revoked(worker_id, _NEVER_S, held)


class Stage:
    """One playbook, compiled once, for many cases."""

    def __init__(
        self,
        text: str,
        plan: Plan,
        file: str,
        specs: Mapping[str, KindSpec],
        pure: Mapping[str, ToolKind],
        settings: Settings | None = None,
        files: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        base_settings = settings or Settings()
        self.text, self.plan, self.file = text, plan, file
        first = posixpath.normpath(file) if file else file
        self.files = {**files, **{beside(first, called): _CALLED for called in called_files(plan)}}
        self.specs = specs
        self.pure = pure
        self.settings = Settings({**{name: base_settings[name] for name in base_settings}, **_QUIET})
        self._tenant = self.settings.text("scope.tenant")
        #: compiled once, since it is the same for every case
        self._compiler = Compiler(specs, self.settings)
        compiled = self._compiler.keep(text, plan)
        self._program = Program(plan, compiled.digest)
        self._used_kinds = {
            task.kind: specs[task.kind] for step in plan.steps for task in step.tasks if task.kind in specs
        }

    async def run(self, case: Case) -> CaseRun:
        """Run a case on the running loop, which must be virtual."""
        random.seed(0)  # a retry's jitter is the same each time
        loop = asyncio.get_running_loop()
        clock = LoopClock(case.now - round(loop.time() * 1_000_000))
        book = MockBook(case.mocks, case.runs_python, deep_merge(self.plan.workload, case.workload))
        store = MemoryStore(clock=clock, settings=self.settings)
        await store.open()
        engine = Engine(store, clock, self.settings, Minter(clock, 1))
        engine.run_secrets = GivenSecrets(engine, case.keychain)
        tasks: list[asyncio.Future[Any]] = []
        try:
            return await self._go(case, engine, clock, book, tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await engine.close()
            await store.close()

    async def _go(
        self,
        case: Case,
        engine: Engine,
        clock: LoopClock,
        book: MockBook,
        tasks: list[asyncio.Future[Any]],
    ) -> CaseRun:
        began = clock.monotonic()
        results = MemoryResults()
        api = EngineApi(engine, self.specs, results)
        api.compiler = self._compiler
        engine.live.keep(self._program)
        try:
            request = ExecuteRequest(playbook=self.text, file=self.file, files=dict(self.files), workload=case.workload)
            started = await api.execute(request)
        except RequestRejected as refusal:
            return CaseRun("refused", error={"kind": "config", "message": str(refusal)}, book=book)
        services = ToolServices(self.settings, Path(tempfile.gettempdir()))
        toolbox = MockedToolbox(self._used_kinds, self.pure, services, book)
        worker = Worker(
            WorkerInfo("test", toolbox.kinds, pools=()),
            _PatientControl(engine),
            toolbox,
            results,
            clock,
            self.settings,
            FakeSecrets(case.keychain),
            DirectReader(),
        )
        working = asyncio.ensure_future(worker.run())
        ended = asyncio.ensure_future(api.ended(started.execution_id))
        unanswered = asyncio.ensure_future(book.unanswered.wait())
        late = asyncio.ensure_future(clock.sleep(case.within_s))
        tasks += [working, ended, unanswered, late, asyncio.ensure_future(Timers(engine).run())]
        problems: list[str] = []
        tasks += [asyncio.ensure_future(_send(api, started.execution_id, signal, problems)) for signal in case.signals]
        await asyncio.wait((working, ended, unanswered, late), return_when=asyncio.FIRST_COMPLETED)
        run = CaseRun("open", book=book, calls=book.calls, duration_s=clock.monotonic() - began)
        if book.missing is not None:
            run.problem = (
                f"task {book.missing} was called and no mock answers it\n"
                f"add: - {{step: {book.missing.step}, task: {book.missing.task}, ok: …}}"
            )
        elif working.done():
            run.problem = f"the worker stopped: {working.exception()}"
        elif not ended.done():
            why = await api.why(started.execution_id)
            run.problem = f"the run did not end within {case.within_s:,.0f} virtual seconds: {why.summary}"
        if problems:
            run.problem = "\n".join([*([run.problem] if run.problem else []), *problems])
        number = int(started.execution_id)
        run.events = [stored.event for stored in await engine.store.events(number, limit=1_000_000)]
        state = (await engine.seen(number)).state
        run.ctx, run.steps, run.result = dict(state.ctx), dict(state.results), state.result
        if ended.done() and not run.problem:
            run.state = state.status.lower()
            if run.state != "completed":
                run.error = (await api.summary(started.execution_id)).error
        return run


async def _send(api: EngineApi, execution_id: str, signal: SignalAt, problems: list[str]) -> None:
    await asyncio.sleep(signal.after_s)
    request = SignalRequest(signal.signal, reason=signal.reason, step=signal.step, data=signal.data, by=signal.by)
    try:
        answer = await api.signal(execution_id, request)
    except ArclogError as refusal:
        problems.append(f"signal {signal.signal} at {signal.after_s:g} s (line {signal.at.line}): {refusal}")
        return
    if not answer.accepted:
        problems.append(f"signal {signal.signal} at {signal.after_s:g} s (line {signal.at.line}): {answer.message}")
