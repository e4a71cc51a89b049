"""Whoever looks and then waits must hear what happened while it looked."""

from __future__ import annotations

import asyncio
import logging

import pytest

from arclog.engine.api import EngineApi
from arclog.engine.control import EngineControl
from arclog.engine.engine import Engine
from arclog.engine.hints import Hints
from arclog.engine.minter import Minter
from arclog.model.settings import Settings
from arclog.ports.api import ExecuteRequest
from arclog.ports.control import WorkerInfo
from arclog.results.memory import MemoryResults
from arclog.stores.memory import MemoryStore
from arclog.testing.clock import FakeClock
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
    heard: list[str] = []

    def broken(*_: object) -> None:
        raise KeyError("a bug")

    hints = engine.hints
    for listeners in (hints.on_committed, hints.on_closed, hints.on_ended, hints.on_caught_up):
        listeners.append(broken)
    hints.on_ended.append(lambda: heard.append("ended"))
    hints.on_committed.append(lambda state, _: heard.append(state.status))
    api = EngineApi(engine, {"noop": noop.KIND.spec}, MemoryResults())
    text = "metadata: {name: x}\nworkflow: [{step: start, tool: {kind: noop}}]"
    run = (await api.execute(ExecuteRequest(text))).execution_id
    (command,) = await EngineControl(engine).claim(WorkerInfo("w", ("noop",), ("default",)), 1)
    assert str(command.execution_id) == run
    assert (await api.cancel(run, "enough")).state == "CANCELLED"
    assert {"CANCELLED", "ended"} <= set(heard)
    assert "this is a bug in it" in caplog.text
    assert "KeyError" in caplog.text
    await engine.close()
    await store.close()
