"""What the simulations share: seeds, what a run came to, and how two runs are compared."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.ports.storage.store import Append, Appended
from arclog.testing.faults import forever
from arclog.testing.harness import World
from arclog.testing.playbooks import Drawn
from arclog.testing.virtual import run_virtually

#: SIMULATION_FACTOR=10 runs ten times the counts that stand at the tests; SIMULATION_SEED=7 runs that seed only.
FACTOR = float(os.environ.get("SIMULATION_FACTOR", "0.3"))
ONLY = os.environ.get("SIMULATION_SEED")

#: Starts are handed in at once, so there are as many commits, and places to die, as there can be.
EAGER = Settings({"worker.started_flush_ms": 0, "leases.max_losses": 1_000_000})
#: As shipped, but a command may be lost as often as a test kills.
LEAN = Settings({"leases.max_losses": 1_000_000})


def seeds(count: int, groups: int, first: int = 0) -> list[range]:
    """Seeds in groups, so that several processes share them."""
    if ONLY is not None:
        return [range(int(ONLY), int(ONLY) + 1)]
    size = max(1, round(count * FACTOR / groups))
    return [range(first + i * size, first + (i + 1) * size) for i in range(groups)]


@dataclass
class Ending:
    """What matters of a run that has ended."""

    status: str
    ctx: dict[str, Any]
    result: Any
    error: Any
    results: dict[str, Any]
    runs: dict[str, int]
    ends: Counter[Any]


async def ending(world: World, state: State) -> Ending:
    ends: Counter[Any] = Counter()
    for event in await world.events():
        if event.type in {
            "step.done",
            "step.failed",
            "task.done",
            "task.failed",
            "loop.done",
            "loop.iteration.done",
            "loop.iteration.failed",
            "next.evaluated",
        }:
            outcome = event.payload.get("outcome") or {}
            error = event.payload.get("error") or outcome.get("error") or {}
            ends[
                event.type,
                event.step,
                event.iteration,
                event.task,
                event.task_run,
                repr(outcome.get("result")),
                error.get("kind"),
            ] += 1
    results = {name: without_times(record) for name, record in state.results.items()}
    return Ending(state.status, state.ctx, state.result, state.error, results, state.runs, ends)


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "meta"}


def assert_same(drawn: Drawn, plain: Ending, other: Ending) -> None:
    """The disturbed run came to the same as the plain one."""
    if any(end[0] == "step.failed" and end[1] in drawn.racing for end in plain.ends):
        # Which item failed first, and what it cancelled, is the items' own race.
        return
    assert other.status == plain.status, (other.error, plain.error)
    if drawn.branching and plain.status == "FAILED":
        # Which failure comes first, and what it cancels, is the branches' own race.
        return
    assert other.ctx == plain.ctx
    assert other.result == plain.result
    assert other.runs == plain.runs
    assert other.ends == plain.ends
    assert other.error == plain.error
    for step, record in plain.results.items():
        if not drawn.branching or plain.runs[step] == 1:
            assert other.results[step] == record, step


def run(drawn: Drawn, main: Any) -> Any:
    """Run it in virtual time; a failure names the seed."""
    try:
        return run_virtually(main)
    except BaseException as problem:
        problem.add_note(f"SIMULATION_SEED={drawn.seed} reproduces it: {drawn!r}")
        raise


class Mortal:
    """A world whose process dies before or after its n-th commit."""

    def __init__(self, text: str, n: int, when: str) -> None:
        self.world = World(text, settings=EAGER, before=self.before, after=self.after)
        self.n, self.when, self.commits = n, when, 0

    async def before(self, _: int, append: Append) -> None:
        self.commits += 1
        await self.die("before")

    async def after(self, _: int, append: Append, done: Appended) -> None:
        await self.die("after")

    async def die(self, when: str) -> None:
        if self.commits == self.n and when == self.when:
            self.world.crash_now()
            await forever()
