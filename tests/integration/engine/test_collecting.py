"""What is past its time goes by itself: once an interval for all servers, in pieces, and no trouble ends a server."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.engine.duties.doctor import WorkDoctor
from arclog.engine.duties.duty import Duty
from arclog.engine.duties.garbage_collection import GC, LOOK_S, Collector
from arclog.model.config.settings import Settings
from arclog.model.errors import ResultStoreAway
from arclog.ports.boundary import Boundary
from arclog.ports.views.checks import OK, WARN, Check
from tests.servers.arclog import running
from tests.unit.engine.views.test_stored_results import KEEP, Home

EVERY_S = 3600.0
STORES = """\
metadata: {name: stores}
workflow:
  - step: start
    tool: {kind: noop, data: "{{ 'x' * 100000 }}"}
"""


class Site(Home):
    """Several servers on one store."""

    def __init__(self, gc_s: float = EVERY_S) -> None:
        super().__init__()
        self.engine.settings = self.engine.settings.replaced(gc__every_s=gc_s)

    def at(self, other: Home) -> Site:
        """On the store of another."""
        self.engine.store, self.engine.clock = other.store, other.clock
        return self

    def server(self, name: str = "a") -> Collector:
        duty = Duty(self.store, self.clock, GC, name, 6.0)
        return Collector(self.engine, self.results, duty)

    async def turned(self, server: Collector) -> float:
        """A server's turn, with time going by."""
        turn = asyncio.ensure_future(server.turn())
        while not turn.done():
            await asyncio.sleep(0)
            self.clock.advance(0.01)
        return turn.result()

    async def stored(self, count: int = 1) -> None:
        """Results that are past their time."""
        run = await self.run()
        for number in range(count):
            await self.put(run, b"%d of %d" % (number, run), f"s.t{number}")
        await self.end(run)
        self.clock.advance(2 * KEEP)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.store.open()
    yield made
    await made.store.close()


async def test_one_of_several_collects_once_an_interval(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "arclog.engine")
    a, b = site.server("a"), site.server("b")
    await site.stored()
    assert [await site.turned(server) for server in (a, b)] == [LOOK_S, LOOK_S]
    assert await site.blobs() == 1  # the first interval begins now
    site.clock.advance(EVERY_S - 1)
    assert await site.turned(a) < 1
    assert await site.blobs() == 1
    site.clock.advance(1)
    await site.turned(a)
    assert await site.blobs() == 0
    assert "gc: released 1 results, removed 1 contents (" in caplog.text
    await site.stored()
    await site.turned(b)
    await site.turned(site.server("restarted"))
    assert await site.blobs() == 1
    site.clock.advance(EVERY_S)
    caplog.clear()
    await site.turned(b)
    assert await site.blobs() == 0
    assert caplog.text.count("gc: released") == 1
    site.clock.advance(EVERY_S)
    caplog.clear()
    await site.turned(b)
    assert "gc" not in caplog.text.replace("duty gc", "")  # there was nothing to tell


async def test_a_server_that_loses_the_duty_stops_after_a_piece(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arclog.engine.duties.garbage_collection._PAGE", 3)
    monkeypatch.setattr("arclog.engine.duties.garbage_collection._CONTENTS", 2)
    server = site.server()
    await site.turned(server)
    await site.stored(10)
    site.clock.advance(EVERY_S)
    turn = asyncio.ensure_future(server.turn())
    for _ in range(20):  # it rests after its first piece
        await asyncio.sleep(0)
    # It stands still past its lease, and another server has the duty when it goes on.
    site.clock.jump(7)
    assert await site.store.lease_duty(GC, "other", site.clock.now(), site.clock.now() + 3_600_000_000)
    while not turn.done():
        site.clock.advance(0.01)
        await asyncio.sleep(0)
    turn.result()
    assert (len(await site.store.kept_results()), await site.blobs()) == (7, 10)


async def test_trouble_is_told_and_the_next_interval_does_it(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = site.server()
    problems: list[Exception] = [ResultStoreAway("the results are away"), OSError("a bug")]

    async def failing(older_than: int) -> int:
        if problems:
            raise problems.pop(0)
        return 0

    monkeypatch.setattr(site.results, "leftovers", failing)
    running = asyncio.ensure_future(server.run())
    for wanted in ("gc: the results are away; the rest is removed in 3600 s", "gc failed because of a bug", ""):
        await site.stored()
        turns = 0
        while wanted not in caplog.text if wanted else await site.blobs():
            site.clock.advance(0.01 if turns % 2 else LOOK_S / 2)
            await asyncio.sleep(0)
            turns += 1
    assert not running.done()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_doctor_knows_whether_somebody_collects(site: Site) -> None:
    async def found(**settings: float) -> Check:
        (check,) = await WorkDoctor(Site(**settings).at(site).engine, site.api, Boundary.owner(Settings())).duties()
        return check

    await site.turned(site.server("a"))
    site.clock.advance(EVERY_S)
    check = await found()
    assert (check.status, check.detail.startswith("every 60 min; last started by a at ")) == (OK, True)
    site.clock.advance(1000)
    check = await found()
    assert (check.status, check.remedy.startswith("a running server should have started again")) == (WARN, True)
    assert (await found(gc_s=0)).status == OK


async def test_a_server_collects_by_itself(tmp_path: Path) -> None:
    """Without a time of grace, the content may go as an orphan in one turn and its result in the next."""
    collected, seen = asyncio.Event(), Counter[str]()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if match := re.match(r"gc: released (\d+) results, removed (\d+) contents", record.getMessage()):
                seen.update(results=int(match[1]), contents=int(match[2]))
                if seen == {"results": 1, "contents": 1}:
                    collected.set()

    listener, log = Listener(), logging.getLogger("arclog.engine")
    log.addHandler(listener)
    try:
        settings: dict[str, Any] = {"gc.every_s": 0.1, "results.keep_s": 0, "results.orphan_grace_s": 0}
        async with running(tmp_path / "home", **settings) as server, server.client() as client:
            assert (await client.post("/api/execute", json={"playbook": STORES})).status_code == 201
            async with asyncio.timeout(60):
                await collected.wait()
    finally:
        log.removeHandler(listener)
