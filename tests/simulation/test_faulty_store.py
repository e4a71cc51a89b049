"""A store that fails at any append, before or after the commit, and others who write to the same run in between."""

from __future__ import annotations

from random import Random

import pytest

from arclog.core.boundary.inputs import Signal
from arclog.engine.commits.engine import Engine
from arclog.engine.commits.ids import Minter
from arclog.model.config.settings import Settings
from arclog.model.errors import RequestRejected, StoreUnavailable
from arclog.model.events import Event
from arclog.ports.storage.store import Append, Appended
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.playbooks import Drawn, by_seed
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER, LEAN, Ending, assert_same, ending, run, seeds


class Troubled:
    """A run with trouble at some of its appends."""

    def __init__(self, drawn: Drawn, seed: int, trouble: str, with_settings: Settings = EAGER) -> None:
        self.world = World(drawn.text, settings=with_settings, before=self.before, after=self.after)
        self.random = Random(seed)
        self.trouble = trouble
        self.troubles = 0
        self.others = 0

    def strikes(self) -> bool:
        # Never so often that nothing gets done.
        struck = self.troubles < 15 and self.random.random() < 0.25
        self.troubles += struck
        return struck

    async def before(self, _: int, append: Append) -> None:
        if self.trouble == "unavailable before" and self.strikes():
            raise StoreUnavailable("disk full")
        if self.trouble == "others write" and append.expected and self.strikes():
            await self.write_something(append.execution_id)
        if self.trouble == "cancelled" and append.expected and not self.troubles and self.strikes():
            other = Engine(self.world.store, self.world.clock, self.world.settings, Minter(self.world.clock, 777))
            await other.put(append.execution_id, Signal("CANCEL", "stop", "somebody else said so"))

    async def after(self, _: int, append: Append, done: Appended) -> None:
        if self.trouble == "unavailable after" and self.strikes():
            raise StoreUnavailable("the connection broke; who knows")

    async def write_something(self, execution_id: int) -> None:
        """Another producer's fact, which is not a business of the run."""
        store = self.world.store
        record = await store.execution(execution_id)
        assert record is not None
        if record.now.terminal_event is None:
            event = Event(type="batch.completed", at=self.world.clock.now(), informative=True)
            self.others += 1
            base = (1 << 62) + record.head
            await store.append(Append(execution_id, record.head, [event], base, record.now))

    async def run(self) -> Ending:
        async with self.world as world:
            state = await world.run()
            stored = await world.stored()
            if self.trouble != "others write":
                check_log(stored, "random")
            assert len(await world.terminal_events()) == 1
            assert [entry.event.type for entry in stored].count("batch.completed") == self.others
            assert await world.store.commands(world.execution_id) == []
            return await ending(world, state)


@pytest.mark.parametrize("trouble", ["unavailable before", "unavailable after", "others write"])
@pytest.mark.parametrize("group", seeds(60, 3, first=40_000), ids=str)
def test_trouble_with_the_store_changes_nothing(group: range, trouble: str) -> None:
    for seed in group:
        drawn = by_seed(seed)
        expected = run(drawn, Troubled(drawn, seed, "").run())
        troubled = Troubled(drawn, seed, trouble)
        outcome = run(drawn, troubled.run())
        if "at_most_once" not in drawn.text:
            assert_same(drawn, expected, outcome)
        if trouble == "others write":
            # The worker never noticed.
            assert troubled.world.lives == 1
            assert all(times == 1 for times in troubled.world.ledger.times().values())


@pytest.mark.parametrize("group", seeds(60, 3, first=50_000), ids=str)
def test_a_cancel_that_comes_between_wins_and_is_final(group: range) -> None:
    cancelled = 0
    for seed in group:
        drawn = by_seed(seed)
        troubled = Troubled(drawn, seed, "cancelled", LEAN if seed % 3 else EAGER)
        outcome = run(drawn, troubled.run())
        if troubled.troubles:
            cancelled += 1
            assert outcome.status == "CANCELLED"
            assert outcome.error["kind"] == "cancelled"
    assert cancelled


@pytest.mark.parametrize("refusal", [RequestRejected("cannot take this value"), TypeError("no such bytes \ud800")])
def test_what_the_store_will_never_take_ends_the_run_with_the_reason(refusal: Exception) -> None:
    text = "metadata: {name: one}\nworkflow:\n  - {step: start, tool: {kind: noop}}\n"

    async def before(_: int, append: Append) -> None:
        if any(event.type == "task.done" for event in append.events):
            raise refusal

    async def main() -> None:
        async with World(text, before=before) as world:
            state = await world.run()
            assert state.status == "FAILED"
            assert state.error is not None
            assert state.error["kind"] == "internal"
            assert type(refusal).__name__ in state.error["message"]
            assert [event.type for event in await world.events()][-2:] == ["playbook.finished", "playbook.processed"]

    run_virtually(main())
