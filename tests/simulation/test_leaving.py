"""A worker that is told to leave: nothing new is begun, what it holds goes to the next one, and it ends by itself."""

from __future__ import annotations

import asyncio

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.ports.tool import TaskContext
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually

PLAYBOOK = """
metadata: {name: leaving}
workflow:
  - step: one
    tool:
      - {name: a, kind: act, returns: 1, takes: TAKES}
      - {name: b, kind: act, returns: 2}
    next: {arcs: [{step: two}]}
  - step: two
    tool: {kind: act, returns: 3}
"""


def told_in_the_middle(takes: float) -> tuple[list[str], list[str], float]:
    """The tasks that ran, why commands were issued again, and how long the worker took to leave."""

    async def main() -> tuple[list[str], list[str], float]:
        begun = asyncio.Event()

        async def hook(call: Call, _: TaskContext) -> Outcome | None:
            if call.task == "a":
                begun.set()
            return None

        text = PLAYBOOK.replace("TAKES", str(takes))
        async with World(text, hook=hook, settings=Settings({"worker.drain_s": 20})) as world:
            life = world.begin_life()
            await world.start()
            first = life.start_worker("first")
            life.start_sweeper()
            await begun.wait()
            told_at = world.clock.monotonic()
            first.leave()
            assert first.is_leaving
            while any(record.worker_id == "first" for record in await world.store.commands(world.execution_id)):  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.1)
            took = world.clock.monotonic() - told_at
            life.start_worker("second")
            await life.api.ended(str(world.execution_id))
            stored = await world.stored()
            check_log(stored, "leaving")
            again = [entry.event.payload["reason"] for entry in stored if entry.event.type == "command.issued"]
            return [call.task for call in world.ledger.calls], again, took

    return run_virtually(main())


def test_the_task_in_flight_is_ended_and_the_next_one_is_anothers() -> None:
    tasks, again, took = told_in_the_middle(5)
    assert tasks == ["a", "b", "two_task"]
    assert again == ["given_back"]
    assert 4.9 <= took <= 6


def test_a_task_that_takes_too_long_is_stopped_and_begun_again_elsewhere() -> None:
    tasks, again, took = told_in_the_middle(50)
    assert tasks == ["a", "a", "b", "two_task"]
    assert again == ["given_back"], "given back, not lost"
    assert 19.9 <= took <= 21
