"""Waiting on behalf of a request: never longer than the server lives."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from arclog.server.services import Services

T = TypeVar("T")


async def unless_stopping(services: Services, work: Coroutine[Any, Any, T]) -> T | None:
    """What the work comes to; None once the server drains, and the work is cancelled then."""
    working = asyncio.ensure_future(work)
    stopping = asyncio.ensure_future(services.stopping.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
