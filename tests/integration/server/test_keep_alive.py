"""A stream is never silent for longer than `server.keep_alive_s`: in virtual time, over a real run."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from arclog.model.config.settings import Settings
from arclog.server.services import Services
from arclog.server.streams.events import KEEP_ALIVE, RunEvents
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually

#: a minute in which nothing happens, and one in which something does every five seconds
QUIET = """\
metadata: {name: quiet}
workflow:
  - {step: start, tool: {kind: act, takes: 60}}
"""
BUSY = """\
metadata: {name: busy}
workflow:
  - step: start
    loop: {in: "{{ range(12) }}", iterator: i, spec: {mode: sequential}}
    tool: {kind: act, takes: 5}
"""


async def silences(text: str, names: tuple[str, ...]) -> tuple[list[float], bytes]:
    """How long a follower heard nothing, each time, and all that it heard."""
    async with World(text) as world:
        running = asyncio.ensure_future(world.run())
        await asyncio.sleep(1)  # it comes late, and hears all that was before at once
        settings = Settings()
        services = SimpleNamespace(
            settings=settings, clock=world.clock, draining=lambda: False, stopping=asyncio.Event()
        )
        run_events = RunEvents(world.current_life.api, str(world.execution_id), "canonical", names)
        loop = asyncio.get_running_loop()
        last, pauses, received = loop.time(), [], b""
        async for chunk in run_events.stream(cast("Services", services), 0):
            pauses.append(loop.time() - last)
            last, received = loop.time(), received + chunk
        await running
        return pauses, received


@pytest.mark.parametrize(
    ("text", "names"),
    [(QUIET, ()), (BUSY, ()), (BUSY, ("step.done",))],
    ids=["nothing happens", "much happens", "what happens was not asked for"],
)
def test_a_stream_is_never_silent_for_long(text: str, names: tuple[str, ...]) -> None:
    pauses, received = run_virtually(silences(text, names))
    comments = received.count(KEEP_ALIVE)
    assert max(pauses) <= Settings().number("server.keep_alive_s")
    assert b"step.done" in received
    assert comments <= 1 + sum(pauses) // Settings().number("server.keep_alive_s"), "no more often than is needed"
