"""Whoever looks and then waits must hear what happened while it looked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from arclog.engine.commits.engine import Engine
from arclog.engine.commits.hints import Hints
from arclog.engine.commits.ids import Minter
from arclog.engine.dispatch.control import EngineControl
from arclog.engine.views.api import EngineApi
from arclog.model.commands import Command
from arclog.model.config.settings import Settings
from arclog.ports.control import WorkerInfo
from arclog.ports.views.api import ExecuteRequest
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.virtual import FakeClock
from arclog.tools import noop


@pytest.mark.parametrize("what", ["appended", "ended", "offered"])
async def test_what_happens_between_the_look_and_the_wait_is_heard(what: str) -> None:
    hints = Hints()
    listen = {"appended": hints.on_append(7), "ended": hints.on_end(7), "offered": hints.on_offer()}[what]
    with listen as news:
        # the look: nothing there yet, and then it happens before anybody waits
        {
            "appended": lambda: hints.appended(7, 1),
            "ended": lambda: hints.ended(7),
            "offered": lambda: hints.offered({"default": 1}),
        }[what]()
        async with asyncio.timeout(10):
            assert await news.heard(None)


async def test_a_listener_that_leaves_is_forgotten() -> None:
    hints = Hints()
    with hints.on_append(7) as news:
        assert not await news.heard(0.0)
    with hints.on_offer():
        pass
    assert not hints.listeners


async def test_news_of_another_run_wakes_nobody() -> None:
    hints = Hints()
    with hints.on_end(7) as news:
        hints.ended(8)
        hints.appended(7, 1)
        assert not await news.heard(0.0)


async def test_a_listener_that_fails_stops_neither_the_run_nor_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("arclog"), "propagate", True)  # a command may have been run here
    clock = FakeClock()
    store = MemoryStore(clock=clock)
    await store.open()
    engine = Engine(store, clock, Settings(), Minter(clock, 1))
    messages: list[str] = []

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    hints = engine.hints
    for listeners in (hints.on_committed, hints.on_closed, hints.on_slot_freed, hints.on_caught_up):
        listeners.append(broken)
    hints.on_slot_freed.append(lambda _: messages.append("freed"))
    hints.on_committed.append(lambda state, _: messages.append(state.status))
    api = EngineApi(engine, {"noop": noop.KIND.spec}, MemoryResults())
    text = (
        "metadata: {name: x}\nexecutor: {spec: {concurrency: {max: 2}}}\nworkflow: [{step: start, tool: {kind: noop}}]"
    )
    run = (await api.execute(ExecuteRequest(text))).execution_id
    (command,) = await EngineControl(engine).claim(WorkerInfo("w", ("noop",), ("default",)), 1)
    assert str(command.execution_id) == run
    assert (await api.cancel(run, "enough")).state == "CANCELLED"
    assert {"CANCELLED", "freed"} <= set(messages)
    assert "this is a bug in the listener" in caplog.text
    assert "KeyError" in caplog.text
    await engine.close()
    await store.close()


# -- claims that wait ---------------------------------------------------------------------------------------------------


class Crowd:
    """Claims of many workers that wait on one engine; only a hint wakes them."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.store = MemoryStore(clock=clock)
        settings = Settings({"engine.idle_look_s": 600, "scope.tenant": "t"})
        self.engine = Engine(self.store, clock, settings, Minter(clock, 1))
        self.control = EngineControl(self.engine)
        self.api = EngineApi(self.engine, {"noop": noop.KIND.spec}, MemoryResults())
        self.looks: list[str] = []
        self.claims: dict[str, asyncio.Task[list[Command]]] = {}
        claim = self.store.claim

        async def counted(worker_id: str, **more: Any) -> Any:
            self.looks.append(worker_id)
            return await claim(worker_id, **more)

        self.store.claim = counted  # type: ignore[method-assign]  # looks are what is counted

    async def waits(self, name: str, *, kinds: str = "noop", pool: str = "default", limit: int = 1) -> None:
        info = WorkerInfo(name, (kinds,), (pool,))
        self.claims[name] = asyncio.ensure_future(self.control.claim(info, limit, 600))
        await settle()
        self.looks.clear()

    async def start(self, pool: str = "default") -> None:
        text = f"metadata: {{name: x}}\nworkflow: [{{step: start, spec: {{pool: {pool}}}, tool: {{kind: noop}}}}]"
        await self.api.execute(ExecuteRequest(text))
        await settle()

    @property
    def served(self) -> list[str]:
        return [name for name, task in self.claims.items() if task.done() and not task.cancelled() and task.result()]


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.fixture
async def crowd() -> AsyncIterator[Crowd]:
    made = Crowd()
    await made.store.open()
    yield made
    for task in made.claims.values():
        task.cancel()
    await asyncio.gather(*made.claims.values(), return_exceptions=True)
    assert not made.engine.hints.listeners


async def test_an_offer_wakes_as_many_as_there_are_commands(crowd: Crowd) -> None:
    for name in "abcde":
        await crowd.waits(name)
    await crowd.start()
    assert crowd.served == ["a"]  # who waits longest
    assert len(crowd.looks) == 2  # it took all that it could: one more looks whether that was all
    await asyncio.gather(crowd.start(), crowd.start())
    assert crowd.served == ["a", "b", "c"]


async def test_one_that_could_take_more_wakes_nobody_else(crowd: Crowd) -> None:
    for name in "abcde":
        await crowd.waits(name, limit=8)
    await crowd.start()
    assert (crowd.served, crowd.looks) == (["a"], ["a"])


async def test_who_looks_in_vain_hands_the_offer_on(crowd: Crowd) -> None:
    for name in "abc":
        await crowd.waits(name, kinds="http")
    await crowd.waits("d")
    await crowd.waits("e")
    await crowd.start()
    assert (crowd.served, crowd.looks[:4]) == (["d"], ["a", "b", "c", "d"])
    await crowd.start()
    assert crowd.served == ["d", "e"]


async def test_who_leaves_without_a_look_hands_the_offer_on(crowd: Crowd) -> None:
    for name in "abc":
        await crowd.waits(name, limit=8)
    offered = crowd.engine.hints.offered

    def offered_and_left(pools: Mapping[str, int]) -> None:
        offered(pools)
        crowd.claims["a"].cancel()  # it was woken, and had no turn yet

    crowd.engine.hints.offered = offered_and_left  # type: ignore[method-assign]  # the moment that counts
    await crowd.start()
    assert (crowd.served, crowd.looks) == (["b"], ["b"])


async def test_nobody_of_another_pool_is_woken(crowd: Crowd) -> None:
    await crowd.waits("a", pool="gpu")
    await crowd.waits("b", limit=8)
    await crowd.start()
    assert (crowd.served, crowd.looks) == (["b"], ["b"])
    await crowd.start("gpu")
    assert crowd.served == ["a", "b"]
