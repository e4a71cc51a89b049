"""A worker without work asks the store seldom: it waits for an offer, and looks by itself only to make up for a lost one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.views.api import EngineApi
from arclog.model.commands import Command
from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.storage.pools import NewResource
from arclog.ports.views.api import ExecuteRequest
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.stores.sqlite.store import SqliteStore
from arclog.testing.virtual import FakeClock, LoopClock, run_virtually
from arclog.tools import noop

TEXT = "metadata: {name: x}\nworkflow: [{step: start, spec: {pool: POOL}, tool: {kind: noop}}]"
IDLE_S = 15.0
#: of one claim, as workers make them
POLL_S = 20.0


class Place:
    """An engine in virtual time whose calls of the store are counted."""

    def __init__(self, store: MemoryStore | None = None, node: int = 1) -> None:
        self.clock = LoopClock()
        self.store = store or MemoryStore(clock=self.clock)
        self.calls: Counter[str] = Counter()
        settings = Settings({"engine.idle_look_s": IDLE_S, "scope.tenant": "t"})
        self.engine = Engine(self._counted(), self.clock, settings, Minter(self.clock, node))
        self.control = EngineControl(self.engine)
        self.api = EngineApi(self.engine, {"noop": noop.KIND.spec}, MemoryResults())

    def _counted(self) -> Any:
        place = self

        class Counted:
            def __getattr__(self, name: str) -> Any:
                attribute = getattr(place.store, name)
                if asyncio.iscoroutinefunction(attribute):
                    place.calls[name] += 1
                return attribute

        return Counted()

    async def start(self, pool: str = "default") -> None:
        await self.api.execute(ExecuteRequest(TEXT.replace("POOL", pool)))

    async def works(self, worker: WorkerInfo, seconds: float) -> list[Command]:
        """What a worker gets that claims for so long."""
        until = self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0:
            if commands := await self.control.claim(worker, 4, min(left, POLL_S)):
                return commands
        return []


def worker(name: str = "w", pool: str = "default") -> WorkerInfo:
    return WorkerInfo(name, ("noop",), (pool,), slots=4)


def virtually(test: Callable[[Place], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        place = Place()
        await place.store.open()
        await test(place)
        await place.engine.close()

    run_virtually(main())


def test_an_idle_worker_asks_the_store_at_most_once_in_five_seconds() -> None:
    async def test(place: Place) -> None:
        assert await place.works(worker(), 600) == []
        assert sum(place.calls.values()) <= 600 / 5
        assert place.calls["claim"] <= 600 / IDLE_S + 1

    virtually(test)


def test_work_of_another_pool_makes_nobody_look() -> None:
    async def test(place: Place) -> None:
        waiting = asyncio.ensure_future(place.works(worker(), 100))
        await asyncio.sleep(1)
        for _ in range(100):
            await place.start("elsewhere")
            await asyncio.sleep(0.5)
        looks = place.calls["claim"]
        assert await waiting == []
        # At the beginning of a request it cannot know; there are few of those.
        assert looks <= 60 / IDLE_S + 60 / POLL_S + 1

    virtually(test)


def test_an_offer_is_heard_at_once_also_between_two_requests() -> None:
    async def test(place: Place) -> None:
        await place.works(worker(), POLL_S)
        await place.start()  # nobody waits at this moment
        before = place.clock.monotonic()
        assert len(await place.works(worker(), POLL_S)) == 1
        waiting = asyncio.ensure_future(place.works(worker(), 100))
        await asyncio.sleep(33)
        await place.start()
        assert len(await waiting) == 1
        assert place.clock.monotonic() - before == 33

    virtually(test)


def test_a_lost_notice_costs_no_more_than_one_look_of_the_setting() -> None:
    async def test(place: Place) -> None:
        other = Place(place.store, 2)  # another server, and no bus
        waiting = asyncio.ensure_future(place.works(worker(), 600))
        await asyncio.sleep(7)
        await other.start()
        before = place.clock.monotonic()
        assert len(await waiting) == 1
        assert place.clock.monotonic() - before <= IDLE_S
        await other.engine.close()

    virtually(test)


def test_with_the_bus_away_it_looks_more_often_and_not_too_often() -> None:
    class Away:
        def is_away(self) -> bool:
            return True

        def waiting(self, pools: Any) -> None:
            """Nobody is told."""

    async def test(place: Place) -> None:
        place.engine.hints.outward = Away()  # type: ignore[assignment]  # what is asked of it here
        await place.works(worker(), 60)
        assert 60 / 5 - 1 <= place.calls["claim"] <= 60 / 5 + 1
        place.engine.hints.outward = None

    virtually(test)


def test_a_worker_that_has_worked_looks_first() -> None:
    async def test(place: Place) -> None:
        other = Place(place.store, 2)
        await place.start()
        assert len(await place.works(worker(), 1)) == 1
        await other.start()  # not heard here
        before = place.clock.monotonic()
        assert len(await place.works(worker(), 60)) == 1
        assert place.clock.monotonic() == before
        await other.engine.close()

    virtually(test)


def test_who_does_not_wait_is_told_what_is_there() -> None:
    async def test(place: Place) -> None:
        other = Place(place.store, 2)
        await place.works(worker(), POLL_S)
        await other.start()
        assert len(await place.control.claim(worker(), 4)) == 1
        await other.engine.close()

    virtually(test)


def test_a_token_of_a_resource_is_waited_for_no_longer_than_it_takes() -> None:
    async def test(place: Place) -> None:
        from arclog.engine.dispatch.pools import EnginePools

        await EnginePools(place.engine).set_resource("api", NewResource(rate="1/s", burst=1))
        text = TEXT.replace("POOL", "default").replace("spec: {", "spec: {resources: [api], ")
        for _ in range(3):
            await place.api.execute(ExecuteRequest(text))
        before = place.clock.monotonic()
        for _ in range(3):
            assert len(await place.works(worker(), 60)) == 1
        assert place.clock.monotonic() - before <= 2.1

    virtually(test)


# -- a wait that nobody needs any more ---------------------------------------------------------------------------------


def test_a_wait_ends_when_nobody_is_there_for_its_commands() -> None:
    async def test(place: Place) -> None:
        gone = asyncio.Event()
        waiting = asyncio.ensure_future(place.control.claim(worker(), 1, 600.0, gone.wait))
        await asyncio.sleep(5)
        looks = place.calls["claim"]
        gone.set()
        before = place.clock.monotonic()
        assert await waiting == []
        assert place.clock.monotonic() == before
        assert place.calls["claim"] == looks, "it takes nothing on its way out"
        assert not place.engine.hints.listeners

    virtually(test)


def test_an_offer_to_one_who_is_gone_is_anothers() -> None:
    async def test(place: Place) -> None:
        gone = asyncio.Event()
        first = asyncio.ensure_future(place.control.claim(worker("first"), 1, 600.0, gone.wait))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(place.control.claim(worker("second"), 1, 600.0))
        await asyncio.sleep(1)
        gone.set()
        assert await first == []
        await place.start()
        assert len(await second) == 1
        assert place.clock.monotonic() < 3

    virtually(test)


def test_a_worker_that_is_told_to_leave_waits_without_looking() -> None:
    async def test(place: Place) -> None:
        await place.control.claim(worker(), 1)
        for listener in place.engine.hints.on_leaving:
            listener("w")
        looks = place.calls["claim"]
        await place.start()
        before = place.clock.monotonic()
        assert await place.control.claim(worker(), 1, POLL_S) == []
        assert (place.clock.monotonic() - before, place.calls["claim"]) == (POLL_S, looks)

    virtually(test)


# -- other processes on one SQLite file --------------------------------------------------------------------------------


async def test_a_store_of_files_knows_whether_another_process_wrote(tmp_path: Path) -> None:
    clock = FakeClock()
    ours, theirs = (SqliteStore(tmp_path / "a.db", clock=clock) for _ in range(2))
    await ours.open()
    await theirs.open()
    await ours.changed_elsewhere()
    assert not await ours.changed_elsewhere()
    await ours.lease_node("ours", 0, 1)
    assert not await ours.changed_elsewhere(), "its own commits do not count"
    await theirs.lease_node("theirs", 0, 1)
    assert await ours.changed_elsewhere()
    assert not await ours.changed_elsewhere()
    await ours.close()
    await theirs.close()
