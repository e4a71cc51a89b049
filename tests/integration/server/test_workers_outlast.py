"""What a worker on its own outlasts: a server that fails at what it is asked, in whatever way. It says so and goes on; only a
credential that is refused ends it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from arclog.model.commands import Revocation
from arclog.model.config.settings import Settings
from arclog.model.errors import InvariantBroken, NotAllowed, NotFound, RequestRejected, StoreError
from arclog.plan.program import Programs
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.worker import remote_worker
from arclog.worker.runner import Worker
from tests.servers.workplace import served

STEPS = """
metadata: {name: steps}
workflow:
  - step: first
    tool: {kind: noop, data: 1}
    next: {arcs: [{step: second}]}
  - step: second
    tool: {kind: noop, data: 2}
"""
PROBLEMS = (
    InvariantBroken("odd rows"),
    KeyError("internal error"),
    StoreError("no such table"),
    RequestRejected("odd words"),
)


class Site:
    """A real server, a worker that came to it over HTTP, and the server's troubles."""

    def __init__(self, embedded_runtime: Embedded, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.embedded_runtime = embedded_runtime
        self.worker = worker
        self._monkeypatch = monkeypatch
        self.working: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def work(self) -> None:
        self.working = asyncio.ensure_future(self.worker.run())

    def fails(self, call: str, *problems: Exception) -> asyncio.Event:
        """The server fails at its next calls in these ways; set when it has."""
        real, left, done = getattr(self.embedded_runtime.control, call), list(problems), asyncio.Event()

        async def failing(*args: Any, **options: Any) -> Any:
            if not left:
                return await real(*args, **options)
            problem = left.pop(0)
            if not left:
                done.set()
            raise problem

        self._monkeypatch.setattr(self.embedded_runtime.control, call, failing)
        return done

    async def start(self) -> str:
        return (await self.embedded_runtime.api.execute(ExecuteRequest(playbook=STEPS))).execution_id

    async def meanwhile(self, waited_for: Coroutine[Any, Any, Any]) -> None:
        """Wait while the worker is at work."""
        task = asyncio.ensure_future(waited_for)
        async with asyncio.timeout(60):
            await asyncio.wait((task, self.working), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            self.working.result()
            raise AssertionError("the worker has left")

    async def ends(self, execution_id: str) -> str:
        await self.meanwhile(self.embedded_runtime.api.ended(execution_id))
        return (await self.embedded_runtime.api.status(execution_id)).state

    async def lapse(self, execution_id: str) -> None:
        """The leases of the run are over."""
        for record in await self.embedded_runtime.engine.store.commands(int(execution_id)):
            await self.embedded_runtime.control.end_lease(record)


@pytest.fixture
async def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    settings = Settings({"home": str(tmp_path)})
    async with (
        embedded(settings) as runtime,
        served(runtime) as url,
        remote_worker(settings, url, "", ["default"]) as worker,
    ):
        site = Site(runtime, worker, monkeypatch)
        yield site
        site.working.cancel()
        await asyncio.gather(site.working, return_exceptions=True)


def error_count(caplog: pytest.LogCaptureFixture, words: str) -> int:
    """How often the worker said so, loudly."""
    return sum(words in record.message and record.levelno >= logging.ERROR for record in caplog.records)


async def test_asking_for_work_goes_on(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.fails("claim", *PROBLEMS)
    site.work()
    assert await site.ends(await site.start()) == "COMPLETED"
    assert [
        error_count(caplog, words) for words in ("odd rows", "internal error: KeyError", "no such table", "odd words")
    ] == [1] * 4


async def test_asking_for_news_goes_on(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    done = site.fails("revoked", *PROBLEMS)
    site.work()
    await site.meanwhile(done.wait())
    assert error_count(caplog, "odd rows") == 1
    assert await site.ends(await site.start()) == "COMPLETED"
    site.embedded_runtime.control._holders.revoke(site.worker.info.worker_id, Revocation(0, leave=True))
    async with asyncio.timeout(60):
        await site.working  # it heard


@pytest.mark.parametrize("call", ["report", "program"])
async def test_a_command_that_the_server_fails_at_is_given_up(site: Site, call: str) -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "asked again" not in record.getMessage():
                queue.put_nowait(record.getMessage())

    async def hears(words: str) -> None:
        while words not in await queue.get():
            pass

    listener, log = Listener(), logging.getLogger("arclog.worker")
    log.addHandler(listener)
    site.work()
    try:
        for problem in (*PROBLEMS, NotFound("gone")):
            site.worker._programs = Programs(Settings())  # plans are fetched again
            site.fails(call, *[problem] * (1 if isinstance(problem, RequestRejected) else 3))
            run = await site.start()
            await site.meanwhile(hears(str(problem.args[0])))
            assert await site.ends(await site.start()) == "COMPLETED"  # others go on
            await site.lapse(run)
            assert await site.ends(run) == "COMPLETED"
    finally:
        log.removeHandler(listener)


async def test_a_report_that_fails_for_a_moment_is_handed_in_again(site: Site) -> None:
    site.fails("report", InvariantBroken("odd rows"), KeyError("internal error"))
    site.work()
    run = await site.start()
    assert await site.ends(run) == "COMPLETED"
    events = await site.embedded_runtime.engine.store.events(int(run))
    assert all(event.event.payload.get("reason") != "lease_lost" for event in events)


async def test_a_run_that_cannot_be_read_keeps_no_other_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim, and each look for lost leases, finds it first."""
    odd, other, engine = await site.start(), await site.start(), site.embedded_runtime.engine
    get = engine.live.get

    async def getting(execution_id: int) -> Any:
        if execution_id == int(odd):
            raise InvariantBroken("odd rows")
        return await get(execution_id)

    engine.live.drop(int(odd))
    monkeypatch.setattr(engine.live, "get", getting)
    monkeypatch.setattr(site.embedded_runtime.control, "_lease_us", -1)  # over at once
    for fence in (1, 2):
        (command,) = await site.embedded_runtime.control.claim(WorkerInfo("gone", ("noop",)), 2)
        assert (command.execution_id, command.fence) == (int(other), fence)
        await site.embedded_runtime.control.sweep()


async def test_a_refused_credential_ends_the_worker(site: Site) -> None:
    site.fails("claim", NotAllowed("worker is not allowed to do this"))
    site.work()
    async with asyncio.timeout(60):
        with pytest.raises(NotAllowed):
            await site.working
