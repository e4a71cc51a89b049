"""Interleavings that need a slow store: commits take time here, so things happen while one is under way."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest

from arclog.core.boundary.inputs import Continue, Signal
from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.model.outcome import Outcome
from arclog.ports.storage.store import Append
from arclog.ports.tool import TaskContext
from arclog.testing.harness import World
from arclog.testing.laws import check_log
from arclog.testing.playbooks import Drawn, by_seed
from arclog.testing.scripted import Call
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER, LEAN, Ending, assert_same, ending, run, seeds


def fan(width: int, **step: object) -> str:
    """A step that starts many others at once."""
    branches = [{"step": f"b{i}", **(step or {"tool": {"kind": "act", "takes": 1}})} for i in range(width)]
    arcs = [{"step": branch["step"]} for branch in branches]
    start = {"step": "start", "tool": {"kind": "noop"}, "next": {"spec": {"mode": "inclusive"}, "arcs": arcs}}
    return json.dumps({"metadata": {"name": "fan"}, "workflow": [start, *branches]})


async def _ended(drawn: Drawn, *, slow: bool) -> Ending:
    random = Random(drawn.seed)

    async def before(_: int, append: Append) -> None:
        if slow:
            await asyncio.sleep(random.choice([0, 0.01, 0.2, 3]))

    async with World(drawn.text, settings=random.choice([EAGER, LEAN]), before=before, workers=2) as world:
        state = await world.run()
        check_log(await world.stored(), "random")
        assert world.lives == 1
        assert all(times == 1 for times in world.ledger.times().values())
        return await ending(world, state)


@pytest.mark.parametrize("group", seeds(60, 3, first=60_000), ids=str)
def test_slow_commits_change_nothing(group: range) -> None:
    for seed in group:
        drawn = by_seed(seed)
        assert_same(drawn, run(drawn, _ended(drawn, slow=False)), run(drawn, _ended(drawn, slow=True)))


def test_ended_answers_only_after_the_commit() -> None:
    async def main() -> None:
        async def before(_: int, append: Append) -> None:
            await asyncio.sleep(0.5)

        async with World(fan(6), before=before) as world:
            life = world.begin_life()
            await world.start()
            life.start_worker()
            await life.api.ended(str(world.execution_id))
            record = await world.store.execution(world.execution_id)
            assert record is not None
            assert record.now.terminal_event == "playbook.finished"

    run_virtually(main())


def test_an_effect_is_acknowledged_before_the_next_one() -> None:
    """Also when a harmless task stands between the two, and the commit takes longer than that."""
    text = """
metadata: {name: effects}
workflow:
  - step: start
    tool:
      - {name: first, kind: act, takes: 0.16}
      - {name: look, kind: peek, takes: 0.3}
      - {name: second, kind: act}
"""

    async def main() -> None:
        async def hook(call: Call, context: TaskContext) -> Outcome | None:
            if call.task == "second":
                ends = [event.task for event in await world.events() if event.type == "task.done"]
                assert "first" in ends, "the effect of `first` could be lost and repeated after `second`"
            return None

        async def before(_: int, append: Append) -> None:
            await asyncio.sleep(0.2)

        world = World(text, hook=hook, before=before)
        async with world:
            state = await world.run()
            assert state.status == "COMPLETED", state.error

    run_virtually(main())


def test_many_large_reports_in_one_commit() -> None:
    """Branches of one run that report hundreds of events each while a commit is under way."""
    tool = [{"name": f"t{i}", "kind": "noop"} for i in range(4)]
    text = fan(8, tool=tool, loop={"in": "{{ range(400) }}", "iterator": "i"})

    async def main() -> None:
        async def before(_: int, append: Append) -> None:
            await asyncio.sleep(0.05)

        async with World(text, before=before) as world:
            state = await world.run()
            assert state.status == "COMPLETED", state.error

    run_virtually(main())


def test_a_worker_never_holds_more_commands_than_slots() -> None:
    most = 0

    async def main() -> None:
        async def hook(call: Call, context: TaskContext) -> Outcome | None:
            nonlocal most
            held = [command for command in await world.store.commands(world.execution_id) if command.state == "claimed"]
            most = max(most, len(held))
            return None

        world = World(fan(40), hook=hook, settings=Settings({"worker.slots": 3}))
        async with world:
            assert (await world.run()).status == "COMPLETED"

    run_virtually(main())
    assert most <= 3, f"{most} commands were held with 3 slots"


def test_a_caller_that_goes_away_takes_nobody_with_it() -> None:
    """Two inputs share a commit; the one that serves is cancelled; the other must still be answered."""

    async def main() -> None:
        gate = asyncio.Event()

        async def before(_: int, append: Append) -> None:
            if append.expected:
                await gate.wait()

        async with World(fan(3), before=before) as world:
            life = world.begin_life()
            await world.start()
            engine, execution_id = life.engine, world.execution_id
            serves = asyncio.ensure_future(engine.put(execution_id, Signal("CANCEL", "stop", "enough")))
            await asyncio.sleep(0)
            waits = asyncio.ensure_future(engine.put(execution_id, Continue()))
            await asyncio.sleep(1)
            serves.cancel()
            gate.set()
            await asyncio.sleep(1)
            assert waits.done()
            assert not waits.cancelled(), "cancelling one caller cancelled another"
            waits.result()

    run_virtually(main())


def test_a_worker_stops_also_right_after_a_cancel() -> None:
    """The news of withdrawn commands and the end of the worker come together; neither may swallow the other."""

    async def main() -> None:
        async with World(fan(3)) as world:
            life = world.begin_life()
            await world.start()
            life.start_worker()
            await asyncio.sleep(0.5)
            assert (await life.api.cancel(str(world.execution_id), "enough")).state == "CANCELLED"
            async with asyncio.timeout(60):
                await world.crash()

    run_virtually(main())


def test_going_on_after_a_store_error_is_not_forgotten() -> None:
    """A long decision goes on by a Continue of its own; when that cannot be committed, it must be tried again."""
    steps: list[dict[str, object]] = []
    for i in range(300):
        step: dict[str, object] = {"step": f"e{i}", "loop": {"in": [], "iterator": "i"}, "tool": {"kind": "noop"}}
        if i < 299:
            step["next"] = {"arcs": [{"step": f"e{i + 1}"}]}
        steps.append(step)
    text = json.dumps({"metadata": {"name": "long"}, "workflow": steps})

    async def main() -> None:
        failed = False

        async def before(number: int, append: Append) -> None:
            nonlocal failed
            if number == 2 and not failed:
                failed = True
                raise StoreUnavailable("for a moment")

        async with World(text, before=before) as world:
            state = await world.run()
            assert failed
            assert state.status == "COMPLETED"
            assert world.lives == 1

    run_virtually(main())


def test_a_wide_run_can_be_cancelled() -> None:
    async def main() -> None:
        async with World(fan(4000)) as world:
            life = world.begin_life()
            await world.start()
            life.start_worker()
            await asyncio.sleep(0.5)
            status = await life.api.cancel(str(world.execution_id), "too wide")
            assert status.state == "CANCELLED"

    run_virtually(main())
