"""A world whose recorded runs are gone on from."""

from __future__ import annotations

from arclog.core.transitions.state import State
from arclog.history.replay import Checked, check
from arclog.ports.storage.store import StoredEvent
from arclog.ports.views.api import ForkRequest, SignalRequest
from arclog.testing.harness import World


async def log_of(world: World, execution_id: int) -> list[StoredEvent]:
    return await world.store.events(execution_id, limit=1_000_000)


async def replay_of(world: World, execution_id: int) -> Checked:
    record = await world.store.execution(execution_id)
    assert record is not None
    program = await world.current_life.engine.live.program(record.new.plan)
    stored = await log_of(world, execution_id)
    return check(
        program, execution_id, [entry.event for entry in stored], [stored_event.event_id for stored_event in stored]
    )


async def went_on(world: World, request: ForkRequest, execution_id: int = 0) -> State:
    """Start a run from the world's run, and wait for its end."""
    forked = await world.current_life.api.fork(str(execution_id or world.execution_id), request)
    api, number = world.current_life.api, forked.execution_id
    while not await api.ended(number, timeout_s=600.0):
        approved = await api.signal(number, SignalRequest("APPROVE"))
        assert approved.accepted, await api.why(number)
    return (await world.current_life.engine.live.folded(int(forked.execution_id))).state


def called(world: World, since: int = 0) -> list[tuple[str, str]]:
    """Steps and tasks of the calls that were made."""
    return [(call.step, call.task) for call in world.ledger.calls[since:]]
