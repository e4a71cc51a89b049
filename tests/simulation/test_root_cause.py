"""Whatever a run of a random family fails with, the cause that it names is one of the failures that were planted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from arclog.model.events import Event
from arclog.model.outcome import is_consequence
from arclog.ports.views.api import Summary
from arclog.ports.views.insight import Cause
from arclog.testing.harness import World
from arclog.testing.planted import (
    EXHAUSTED,
    HARMLESS,
    LATE_STEP,
    LOST,
    REFUSED,
    SHAPES,
    SLOW_TASK,
    UNEVALUABLE,
    WAYS,
    Planted,
    planted,
)
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER, LEAN, seeds

#: What the runs of all seeds blamed, by way, shape and depth of calls: a test of the tests.
BLAMED: Counter[tuple[str, str, int]] = Counter()


async def run(family: Planted) -> list[tuple[Summary, list[Event], Any]]:
    """All runs of a family that have ended, the first one first, with their logs and records."""
    settings = (EAGER if family.seed % 3 else LEAN).replaced(leases__max_losses=3)
    world = World(family.main, settings=settings, workers=1 + family.seed % 3)
    world.hook = family.hook(world)
    async with world:
        for child in family.children:
            await world.register(child)
        await world.run()
        life = world.current_life
        await life.children.settle(1000.0)
        causes = []
        for record in reversed(await world.store.executions(limit=1000)):
            summary = await life.api.summary(str(record.execution_id))
            events = [entry.event for entry in await world.store.events(record.execution_id, limit=100_000)]
            (listed,) = await life.api.list(before=str(record.execution_id + 1), limit=1)
            causes.append((summary, events, listed))
        return causes


def check(family: Planted, summary: Summary, events: list[Event], runs: dict[str, list[Event]]) -> None:
    cause = summary.cause
    assert cause is not None, summary.error
    assert cause.kind != "cancelled"
    plant = blamed(family, cause)
    BLAMED[plant.way, plant.shape, len(cause.via)] += 1
    assert summary.error is not None
    assert {"kind", "message", "step", "task", "item", "traceback", "cause"} <= set(summary.error)
    if plant.way == UNEVALUABLE:
        assert "its policy could not be evaluated" in cause.rule
    if plant.way == EXHAUSTED:
        assert cause.attempt == 2
    # It is the first failure of its step run that is not a consequence of another.
    log = runs[cause.execution_id]
    first = next(
        seq
        for seq, event in enumerate(log, 1)
        if (event.step, event.run) == (cause.step, cause.step_run)
        and event.type in ("loop.iteration.failed", "step.failed")
        and not is_consequence(event.payload.get("error") or {})
    )
    fault = log[cause.seq - 1]
    assert fault.type in ("loop.iteration.failed", "step.failed")
    if fault.type == "loop.iteration.failed":
        assert cause.seq == first
        # It is what made the step fail: an item that failed before a step took too long did not.
        ended = next(event for event in log if event.type == "step.failed" and event.step == cause.step)
        assert ended.payload["error"]["kind"] == fault.payload["error"]["kind"]
        assert ended.payload["error"]["message"].endswith(fault.payload["error"]["message"])
    if cause.via:
        assert runs[cause.execution_id] is not events


def blamed(family: Planted, cause: Cause) -> Any:
    """The planted failure that a cause names."""
    if cause.message in family.struck:
        assert family.struck[cause.message] == (cause.step, cause.task, cause.iteration)
        plant = family.plants[cause.step, cause.task]
        assert plant.way not in HARMLESS, f"{plant} was handled"
        return plant
    ways = {"POLICY": (REFUSED,)}.get(cause.code or "") or {
        "timeout": (SLOW_TASK, LATE_STEP),
        "poison": (LOST,),
        "killed": (LOST,),
    }.get(cause.kind)
    assert ways is not None, f"nobody planted {cause}"
    mine = [plant for plant in family.plants.values() if plant.step == cause.step and plant.way in ways]
    assert mine, f"nobody planted {cause}"
    named = [plant for plant in mine if plant.task == cause.task]
    return (named or mine)[0]


@pytest.mark.parametrize("group", seeds(100, 4, first=70_000), ids=str)
def test_the_named_cause_is_always_a_planted_one(group: range) -> None:
    for seed in group:
        family = planted(seed)
        try:
            outcome = run_virtually(run(family))
            runs = {summary.execution_id: events for summary, events, _ in outcome}
            for summary, events, listed in outcome:
                if summary.state == "FAILED":
                    check(family, summary, events, runs)
                    assert listed.error is not None
                    assert summary.cause is not None
                    assert summary.cause.message in listed.error
                for name, step in summary.steps.items():
                    check_items(events, name, step.items)
        except BaseException as problem:
            problem.add_note(f"SIMULATION_SEED={seed}: {family.main}\n{family.children}\n{family.plants}")
            raise


def check_items(events: list[Event], step: str, items: Any) -> None:
    """The counts are those of the log."""
    ended = [event for event in events if event.step == step and event.iteration and len(event.iteration) == 1]
    ok = sum(event.type == "loop.iteration.done" and not event.informative for event in ended)
    failed = [event for event in ended if event.type == "loop.iteration.failed" and not event.informative]
    bad = sum(not is_consequence(event.payload.get("error") or {}) for event in failed)
    if items is None:
        assert not ended
    else:
        assert (items.ok, items.failed) == (ok, bad)
        assert ok + bad <= items.total


def test_the_families_have_every_failure_in_every_shape() -> None:
    """Whoever changes the generator keeps what the test above is for."""
    plants = [plant for seed in range(70_000, 70_200) for plant in planted(seed).plants.values()]
    assert {plant.way for plant in plants} == {*WAYS, *HARMLESS}
    assert {(plant.way, plant.shape) for plant in plants} >= {(way, shape) for way in WAYS for shape in SHAPES}
    assert any(planted(seed).children for seed in range(70_000, 70_010))
