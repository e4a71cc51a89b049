"""Waiting on behalf of a request, at most until the server drains."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from arclog.engine.commits.hints import either
from arclog.model.errors import RequestRejected
from arclog.server.call import Call
from arclog.server.services import Services

T = TypeVar("T")


async def unless_stopping(services: Services, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of the work; None if the server drains first, which cancels the work."""
    return await _unless(services.stopping.wait(), work)


async def unless_gone(call: Call, work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of the work; None if the caller is gone first, which cancels the work."""
    return await _unless(caller_gone(call), work)


async def caller_gone(call: Call) -> None:
    """Return when the caller has hung up, or the server drains. The request's body must have been read."""
    await either(_hung_up(call), call.services.stopping.wait())


def longest_wait(services: Services, wait_s: float) -> float:
    """Return the time that a request may wait, given the requested time."""
    if wait_s < 0:
        raise RequestRejected(f"wait_s: {wait_s:g} is negative")
    return min(wait_s, services.settings.number("server.long_poll_s"))


async def _hung_up(call: Call) -> None:
    while (await call.receive())["type"] != "http.disconnect":
        pass


async def _unless(end: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T | None:
    working, ending = asyncio.ensure_future(work), asyncio.ensure_future(end)
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, ending):
            task.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)
