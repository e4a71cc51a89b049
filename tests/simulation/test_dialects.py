"""Random playbooks, on several workers and through crashes: every dialect keeps its laws."""

from __future__ import annotations

from random import Random

import pytest

from arclog.ports.storage.store import Append, Appended
from arclog.testing.faults import forever
from arclog.testing.harness import World
from arclog.testing.laws import check_dialects
from arclog.testing.playbooks import Drawn, by_seed
from tests.simulation.support import EAGER, LEAN, run, seeds


class Fragile:
    """A run whose process dies after some of its commits."""

    def __init__(self, drawn: Drawn, seed: int) -> None:
        self.chance = Random(seed)
        self.deaths = 0
        self.most = seed % 4
        with_settings = EAGER if seed % 2 else LEAN
        self.world = World(drawn.text, settings=with_settings, after=self.after, workers=1 + seed % 3)

    async def after(self, _: int, append: Append, done: Appended) -> None:
        if self.deaths < self.most and self.chance.random() < 0.2:
            self.deaths += 1
            self.world.crash_now()
            await forever()

    async def check(self) -> None:
        async with self.world as world:
            await world.run()
            log = await world.current_life.api.events(str(world.execution_id), limit=1_000_000)
            check_dialects(log, self.chance.randrange(len(log) + 1))


@pytest.mark.parametrize("group", seeds(160, 8), ids=str)
def test_every_dialect_keeps_its_laws_whatever_the_run_went_through(group: range) -> None:
    died = 0
    for seed in group:
        drawn = by_seed(seed)
        fragile = Fragile(drawn, seed)
        run(drawn, fragile.check())
        died += fragile.deaths
    assert died or len(group) == 1
