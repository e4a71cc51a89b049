"""Random playbooks on the real engine and worker: they end, keep the log's laws, and replay to the live state."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.model.events import TERMINAL
from arclog.ports.storage.store import Append, Appended
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.playbooks import Drawn, by_seed, playbooks
from tests.simulation.support import EAGER, FACTOR, LEAN, run, seeds

_STATE = msgspec.json.Decoder(State)


def encoded(state: State) -> bytes:
    # In the order of its maps: which token or step run is the oldest matters to decisions.
    return msgspec.json.encode(state)


class Watched:
    """A run whose live state is compared with the replay of its log at every commit."""

    def __init__(self, drawn: Drawn, with_settings: Settings) -> None:
        self.world = World(drawn.text, settings=with_settings, after=self.after)
        self.replica: State | None = None
        self.compared = 0
        self.whys = 0

    async def after(self, _: int, append: Append, done: Appended) -> None:
        world = self.world
        if self.replica is None:
            self.replica = State(execution_id=append.execution_id)
        # What a reader gets back from the store, not the objects that the engine holds.
        for entry in await world.store.events(append.execution_id, after=self.replica.head):
            apply(world.program, self.replica, entry.event)
            again = _STATE.decode(encoded(self.replica))
            assert again == self.replica, "a snapshot does not give the state back"
        assert self.replica.head == done.last_seq
        live = world.current_life.engine.live._live.get(append.execution_id)
        if live is not None:
            assert encoded(live.state) == encoded(self.replica), "live state and replay differ"
            self.compared += 1
        record = await world.store.execution(append.execution_id)
        assert record is not None
        now = record.now
        assert (now.state, now.terminal_event, now.current_step) == (
            self.replica.status,
            self.replica.terminal,
            self.replica.current_step,
        )
        if self.replica.terminal is None:
            why = await world.current_life.api.why(str(append.execution_id))
            assert why.waits, "a run that has not ended waits for something"
            assert why.waits[0].what != "none", why
            self.whys += 1


async def watched(drawn: Drawn, with_settings: Settings) -> None:
    it = Watched(drawn, with_settings)
    async with it.world as world:
        state = await world.run()
        stored = await world.stored()
        check_log(stored, "random")
        assert len([entry for entry in stored if entry.event.type in TERMINAL]) == 1
        status = await world.current_life.api.status(str(world.execution_id))
        assert status.state == state.status
        assert status.state in {"COMPLETED", "FAILED"}
        assert status.terminal_event == ("playbook.completed" if state.status == "COMPLETED" else "playbook.failed")
        why = await world.current_life.api.why(str(world.execution_id))
        assert why.waits == []
        assert it.replica is not None
        assert it.compared or world.current_life._wrapper._appends == 1
        assert encoded(it.replica) == encoded(state)
        # Nothing was done twice without a reason to.
        assert all(times == 1 for times in world.ledger.times().values())


@pytest.mark.parametrize("group", seeds(240, 8), ids=str)
def test_random_playbooks_end_replay_and_keep_the_laws(group: range) -> None:
    for seed in group:
        drawn = by_seed(seed)
        run(drawn, watched(drawn, EAGER if seed % 3 else LEAN))


@settings(max_examples=round(25 * FACTOR))
@given(playbooks())
def test_the_same_with_playbooks_that_shrink(drawn: Drawn) -> None:
    run(drawn, watched(drawn, EAGER))
