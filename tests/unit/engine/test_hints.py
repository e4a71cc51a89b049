"""Whoever looks and then waits must hear what happened while it looked."""

from __future__ import annotations

import asyncio

import pytest

from arclog.engine.hints import Hints


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
