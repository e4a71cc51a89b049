"""States that are kept in memory: how many, and how many bytes of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.engine.commits import snapshots
from arclog.model.config.settings import Settings
from arclog.model.data.json_data import decoded_size
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from arclog.testing.harness import Life, World
from arclog.testing.virtual import run_virtually

#: No worker is there: a run stays where it is.
WAITING = """
metadata: {name: waiting}
workload: {data: []}
workflow:
  - step: start
    tool: {kind: wait, for_s: 600}
"""
LARGE: dict[str, Any] = {"data": [[]] * 20_000}
SMALL: dict[str, Any] = {"data": [1]}


async def started(life: Life, workload: dict[str, Any]) -> int:
    return int((await life.api.execute(ExecuteRequest(WAITING, workload=workload))).execution_id)


def kept(life: Life, runs: list[int]) -> list[int]:
    return [run for run in runs if life.engine.live.kept(run) is not None]


def test_runs_that_nobody_goes_on_with_are_bounded_in_number() -> None:
    async def story() -> None:
        async with World(WAITING, settings=Settings({"engine.cache_executions": 5})) as world:
            life = world.begin_life()
            runs = [await started(life, {}) for _ in range(20)]
            assert kept(life, runs) == runs[-5:]

    run_virtually(story())


def test_the_bytes_of_states_are_bounded_and_large_ones_go_first() -> None:
    async def story() -> None:
        most = 8_000_000
        async with World(WAITING, settings=Settings({"engine.cache_executions_bytes": most})) as world:
            life = world.begin_life()
            small = [await started(life, dict(SMALL)) for _ in range(5)]
            large = [await started(life, dict(LARGE)) for _ in range(20)]
            live = life.engine.live
            assert live.total_bytes <= most
            assert kept(life, small) == small, "a tenant with large states does not drive out those of others"
            assert 1 <= len(kept(life, large)) < 10
            assert kept(life, large) == large[-len(kept(life, large)) :], "the one that was used last stays"

            # What was given up is folded from the log when it is needed.
            cancelled = await life.api.signal(str(large[0]), SignalRequest("CANCEL", reason="enough"))
            assert cancelled.accepted
            assert live.total_bytes <= most

    run_virtually(story())


@pytest.mark.parametrize("workload", [SMALL, LARGE])
def test_a_state_is_weighed_as_what_it_takes(workload: dict[str, Any]) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            life = world.begin_life()
            run = await started(life, workload)
            live = life.engine.live.kept(run)
            assert live is not None
            exact = decoded_size(snapshots.encode_state(live.state))
            assert exact / 2 <= live.bytes <= 2 * exact + 65_536
            life.engine.live.drop(run)
            assert life.engine.live.total_bytes == 0
            folded = await life.engine.live.get(run)
            assert folded.bytes == life.engine.live.total_bytes == exact

    run_virtually(story())


def test_a_long_log_is_read_without_keeping_others_waiting() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            life = world.begin_life()
            run = await started(life, {})
            for number in range(600):
                signal = "RESUME" if number % 2 else "PAUSE"
                await life.api.signal(str(run), SignalRequest(signal, signal_id=f"s{number}"))
            turns = 0

            async def count_turns() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            counting = asyncio.ensure_future(count_turns())
            await asyncio.sleep(0)
            turns = 0
            await life.engine.live.folded(run)
            counting.cancel()
            assert turns >= 4

    run_virtually(story())
