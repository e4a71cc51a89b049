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
        last, found, heard = loop.time(), [], b""
        async for said in run_events.stream(cast("Services", services), 0):
            found.append(loop.time() - last)
            last, heard = loop.time(), heard + said
        await running
        return found, heard


@pytest.mark.parametrize(
    ("text", "names"),
    [(QUIET, ()), (BUSY, ()), (BUSY, ("step.done",))],
    ids=["nothing happens", "much happens", "what happens was not asked for"],
)
def test_a_stream_is_never_silent_for_long(text: str, names: tuple[str, ...]) -> None:
    found, heard = run_virtually(silences(text, names))
    comments = heard.count(KEEP_ALIVE)
    assert max(found) <= Settings().number("server.keep_alive_s")
    assert b"step.done" in heard
    assert comments <= 1 + sum(found) // Settings().number("server.keep_alive_s"), "no more often than is needed"
