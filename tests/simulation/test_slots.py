"""executor.spec.concurrency: never more than so many at a time, nobody forgotten, and always a word about why."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.core.boundary.inputs import Request
from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.store import Append, ExecutionRecord, NewExecution, Scope
from arclog.ports.views.api import SignalRequest
from arclog.testing.harness import Life, World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually


def playbook(most: int, on_excess: str = "queue", approval: str = "none") -> str:
    return f"""
metadata: {{name: slots}}
executor: {{spec: {{concurrency: {{max: {most}, on_excess: {on_excess}}}, policy: {{approval: {approval}}}}}}}
workflow:
  - {{step: start, tool: {{kind: act, takes: 10}}}}
"""


async def another(world: World, life: Life, tenant: str = "tenant") -> int:
    """One more run of the world's playbook."""
    scope = Scope(tenant, "project", "test")
    new = NewExecution(f"run-{world.clock.now()}", "slots", "slots", 1, world.program.digest, scope, world.clock.now())
    return await life.engine.start(world.program, new, Request("slots", 1, {}, "scope"))


async def records(world: World, ids: list[int]) -> list[ExecutionRecord]:
    stored = [await world.store.execution(event_id) for event_id in ids]
    return [record for record in stored if record is not None]


def busiest(found: list[ExecutionRecord]) -> int:
    """Most runs at a time."""
    times = [(record.now.started_at, record.now.ended_at) for record in found]
    return max(sum(begin <= moment < end for begin, end in times) for moment, _ in times)  # type: ignore[operator] # all have ended


@pytest.mark.parametrize("most", [1, 3])
def test_runs_queue_for_a_slot_and_start_in_order(most: int) -> None:
    async def main() -> None:
        async with World(playbook(most)) as world:
            life = world.begin_life()
            ids = [await world.start()]
            ids += [await another(world, life) for _ in range(6)]
            life.start_sweeper()
            life.start_worker()
            states = [record.now.state for record in await records(world, ids)]
            assert states == ["RUNNING"] * most + ["PENDING"] * (7 - most)
            why = (await life.api.why(str(ids[-1]))).summary
            assert f"concurrency slot held by execution {ids[0]}" in why
            assert why.endswith(f"(`arclog why {ids[0]}`)")
            for event_id in ids:
                assert await life.api.ended(str(event_id), timeout_s=1000)
            queued = await records(world, ids)
            assert {record.now.state for record in queued} == {"COMPLETED"}
            assert busiest(queued) == most
            starts = [record.now.started_at or 0 for record in queued]
            assert starts == sorted(starts)
            for event_id in ids:
                world.execution_id = event_id
                check_log(await world.stored())

    run_virtually(main())


def test_too_many_are_rejected_visibly() -> None:
    async def main() -> None:
        async with World(playbook(1, "reject")) as world:
            life = world.begin_life()
            first = await world.start()
            second = await another(world, life)
            third = await another(world, life, tenant="other")
            states = [record.now.state for record in await records(world, [first, second, third])]
            assert states == ["RUNNING", "FAILED", "RUNNING"]
            events = await life.api.events(str(second))
            assert [(e["event_type"], e["status"]) for e in events[1:]] == [
                ("playbook.request.evaluated", "error"), ("playbook.finished", "error"), ("playbook.processed", "success"),
            ]  # fmt: skip
            error = events[1]["payload"]["error"]
            assert (error["kind"], error["code"]) == ("limit", "CONCURRENCY")
            assert str(first) in error["message"]

    run_virtually(main())


def test_an_approved_run_still_waits_for_its_slot() -> None:
    async def main() -> None:
        async with World(playbook(1, approval="required")) as world:
            life = world.begin_life()
            ids = [await world.start(), await another(world, life)]
            life.start_sweeper()
            life.start_worker()
            for event_id in ids:
                assert (await life.api.signal(str(event_id), SignalRequest("APPROVE"))).accepted
            await asyncio.sleep(3)
            assert [record.now.state for record in await records(world, ids)] == ["RUNNING", "PENDING"]
            for event_id in ids:
                assert await life.api.ended(str(event_id), timeout_s=100)
            assert busiest(await records(world, ids)) == 1

    run_virtually(main())


def test_a_queued_run_can_be_cancelled_and_a_cancelled_one_frees_its_slot() -> None:
    async def main() -> None:
        async with World(playbook(1)) as world:
            life = world.begin_life()
            ids = [await world.start(), await another(world, life), await another(world, life)]
            life.start_sweeper()
            life.start_worker()
            await life.api.cancel(str(ids[1]), "no longer needed")
            await life.api.cancel(str(ids[0]), "nor this")
            assert await life.api.ended(str(ids[2]), timeout_s=100)
            assert [record.now.state for record in await records(world, ids)] == ["CANCELLED", "CANCELLED", "COMPLETED"]

    run_virtually(main())


def test_a_start_that_is_lost_with_its_process_is_made_up_for() -> None:
    """The request is durable, the process dies before it asks for its slot: the next sweep of anybody starts it."""

    async def main() -> None:
        async def before(number: int, append: Append) -> None:
            if append.slots and world.lives == 1:
                raise StoreUnavailable("dying")

        world = World(playbook(1), before=before)
        async with world:
            world.begin_life()
            with pytest.raises(StoreUnavailable):
                await world.start()
            await world.crash()
            (left,) = await world.store.executions()
            assert left.now.state == "PENDING"
            world.execution_id = left.execution_id
            assert (await world.run()).status == "COMPLETED"

    run_virtually(main())


def test_two_processes_never_pass_together() -> None:
    async def main() -> None:
        async def slow(_: int, __: Append) -> None:
            await asyncio.sleep(0.3)

        async with World(playbook(2)) as world:
            await world.start()
            lives = [Life(world, number, slow, None) for number in (50, 51, 52)]
            for life in lives:
                life.engine.live.keep(world.program)
            made: Any = await asyncio.gather(*(another(world, life) for life in lives for _ in range(4)))
            states = [record.now.state for record in await records(world, [world.execution_id, *made])]
            assert states.count("RUNNING") == 2
            assert states.count("PENDING") == 11

    run_virtually(main())
