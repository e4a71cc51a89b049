"""A log with an event of a newer release is continued, simulated and checked by no older one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from arclog.model.errors import NewerLog
from arclog.model.events import Event
from arclog.ports.storage.store import StoredEvent
from arclog.ports.views.api import ForkRequest
from arclog.ports.views.history import SimulateRequest
from arclog.testing.harness import World
from arclog.testing.virtual import run_virtually

TEXT = """
metadata: {name: two}
workflow:
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: noop}}
"""


def _of_tomorrow(event: Event) -> None:
    event.version = 9


def _of_a_new_type(event: Event) -> None:
    event.type = "step.dreamt"


async def with_newer(world: World, change: Callable[[Event], None]) -> int:
    """Make the routing behind step b an event of a newer release. Returns its seq."""
    real = world.current_life.engine.store.events

    async def events(*given: Any, **named: Any) -> list[StoredEvent]:
        page = await real(*given, **named)
        for stored in page:
            if stored.event.type == "next.evaluated" and stored.event.step == "b":
                change(stored.event)
        return page

    seq = next(
        entry.seq for entry in await real(world.execution_id, types=("next.evaluated",)) if entry.event.step == "b"
    )
    world.current_life.engine.store.events = events  # type: ignore[method-assign]  # stands for a newer release's row
    return seq


@pytest.mark.parametrize("change", [_of_tomorrow, _of_a_new_type])
def test_a_log_of_a_newer_release_is_left_alone(change: Callable[[Event], None]) -> None:
    async def go() -> None:
        async with World(TEXT) as world:
            await world.run()
            run, api = str(world.execution_id), world.current_life.api
            seq = await with_newer(world, change)
            refused: list[Callable[[], Awaitable[Any]]] = [
                lambda: api.fork(run, ForkRequest(step="b")),
                lambda: api.fork(run, ForkRequest(at=seq)),
                lambda: api.simulate(SimulateRequest(TEXT, runs=[run])),
            ]
            for request in refused:
                with pytest.raises(NewerLog, match=f"event {seq} of execution {run} .*newer arclog"):
                    await request()
            check = await api.replay(run)
            assert check.difference is not None
            assert (check.difference.seq, check.difference.fields) == (seq, ["problem"])
            assert "newer arclog" in check.difference.problem
            await api.fork(run, ForkRequest(at=seq - 1))

    run_virtually(go())
