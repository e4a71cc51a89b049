"""Runs that call runs: the child is started once, its parent gets its end once, whatever dies in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.core.transitions.apply import apply
from arclog.core.transitions.state import State
from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.ports.storage.store import Append, Appended, ExecutionRecord
from arclog.ports.views.api import SignalRequest
from arclog.testing.faults import forever
from arclog.testing.harness import Life, World
from arclog.testing.laws import check_log
from arclog.testing.virtual import run_virtually
from tests.simulation.support import EAGER, Mortal

CHILD = """
metadata: {name: child, path: flows/child}
workload: {n: 1, fail: 0}
workflow:
  - step: work
    tool:
      - {name: rest, kind: wait, for_s: 20}
      - {name: add, kind: act, fail_attempts: "{{ workload.fail }}", returns: {sum: "{{ workload.n + 1 }}"}}
"""


def parent(task: str, more: str = "", root: str = "", step: str = "") -> str:
    return f"""
metadata: {{name: parent}}
{root}
workflow:
  - step: start
    {step}
    tool:
      - {{name: before, kind: act, returns: 1}}
      - {{name: call, kind: playbook, {task}}}
{more}
"""


AFTER = '      - {name: after, kind: act, returns: {got: "{{ call.sum }}", state: "{{ call.child.state }}"}}'


async def family(world: World) -> list[ExecutionRecord]:
    """Oldest first."""
    return list(reversed(await world.store.executions(limit=1000)))


async def check_family(world: World) -> None:
    """Every log keeps the laws and replays; nothing is left open."""
    for record in await family(world):
        stored = await world.store.events(record.execution_id, limit=1_000_000)
        check_log(stored, record.new.name)
        assert not await world.store.commands(record.execution_id)
    assert await world.store.next_due() is None


async def settled(world: World) -> None:
    await world.current_life.children.settle(1000.0)


async def ran(
    text: str, *children: str, settings: Settings = EAGER, **options: Any
) -> tuple[State, list[Event], World]:
    async with World(text, settings=settings, **options) as world:
        for child in children:
            await world.register(child)
        state = await world.run()
        await settled(world)
        await check_family(world)
        return state, await world.events(), world


def test_a_child_gets_args_and_gives_its_result() -> None:
    async def main() -> None:
        async with World(parent("path: flows/child, args: {n: 41}", AFTER), settings=EAGER) as world:
            await world.register(CHILD)
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(10)
            wait = next(iter((await world.state()).waits.values()))
            why = await world.current_life.api.why(str(world.execution_id))
            assert [wait.what for wait in why.waits] == ["child"]
            assert str(wait.child) in why.summary
            state = await going
            assert state.result == {"got": 42, "state": "COMPLETED"}
            await settled(world)
            await check_family(world)
            _, child = await family(world)
            assert child.execution_id == wait.child
            assert child.new.parent_execution_id == world.execution_id
            first = (await world.store.events(child.execution_id, limit=1))[0].event
            assert first.payload["parent"] == {
                "execution_id": str(world.execution_id),
                "step_run_id": "step:start:run:1",
                "task_run_id": "task:call:run:1",
                "wait": wait.key,
            }
            assert [call.task for call in world.ledger.calls] == ["before", "add", "after"]

    run_virtually(main())


def test_a_failed_child_is_an_error_outcome_and_may_be_tried_again() -> None:
    state, events, _ = run_virtually(ran(parent("path: flows/child, args: {fail: 9}"), CHILD))
    assert state.status == "FAILED"
    assert state.error is not None
    assert (state.error["kind"], state.error["step"]) == ("child", "start")
    assert "attempt 1 of add fails as scripted" in state.error["message"]
    retry = "spec: {policy: {rules: [{when: \"{{ outcome.error.kind == 'child' }}\", then: {do: retry, attempts: 3, delay: 100}}, {else: {then: {do: fail}}}]}}"
    state, events, _ = run_virtually(ran(parent(f"path: flows/child, args: {{fail: 9}}, {retry}"), CHILD))
    assert state.status == "FAILED"
    assert [event.attempt for event in events if event.type == "task.attempt.failed"] == [1, 2, 3]
    children = {event.payload["child"] for event in events if "child" in event.payload}
    assert len(children) == 3


@pytest.mark.parametrize(
    ("task", "kind", "says"),
    [
        ("path: flows/nothing", "child", "no playbook is registered as 'flows/nothing'"),
        ("path: flows/child, version: 7", "child", "version 7"),
        ("path: '{{ 3 }}'", "config", "catalog path"),
        ("path: flows/child, version: '{{ -1 }}'", "config", "whole number"),
        ("path: flows/child, args: '{{ [1] }}'", "config", "map"),
    ],
)
def test_a_call_that_cannot_be_made_is_an_error_outcome(task: str, kind: str, says: str) -> None:
    state, _, _ = run_virtually(ran(parent(task), CHILD))
    assert state.error is not None
    assert state.error["kind"] == kind
    assert says in state.error["message"]


def test_the_newest_version_is_called_unless_one_is_named() -> None:
    newer = CHILD.replace("workload.n + 1", "workload.n + 100")
    assert run_virtually(ran(parent("path: flows/child", AFTER), CHILD, newer))[0].result["got"] == 101
    assert run_virtually(ran(parent("path: flows/child, version: 1", AFTER), CHILD, newer))[0].result["got"] == 2


def test_children_of_a_loop_run_one_after_the_other() -> None:
    text = parent(
        "path: flows/child, args: {n: '{{ iter.x }}'}",
        step="loop: {in: [1, 2, 3], iterator: x}",
        root="executor: {spec: {result: '{{ start.results }}'}}",
    )
    state, _, _ = run_virtually(ran(text, CHILD))
    assert state.result == [{"sum": 2}, {"sum": 3}, {"sum": 4}]


def test_recursion_ends_at_the_cap() -> None:
    deep = """
metadata: {name: deep, path: deep}
workload: {n: 0}
workflow: [{step: start, tool: {kind: playbook, path: deep, args: {n: "{{ workload.n + 1 }}"}}}]
"""

    async def main() -> None:
        async with World(deep, settings=EAGER.replaced(limits__max_child_depth=5)) as world:
            state = await world.run()
            await settled(world)
            await check_family(world)
            assert state.status == "FAILED"
            assert state.error is not None
            assert "limits.max_child_depth" in state.error["message"]
            assert len(await family(world)) == 6

    run_virtually(main())


NEVER = """
metadata: {name: never, path: never}
workflow: [{step: start, tool: [{kind: act}, {kind: wait, signal: never}]}]
"""


@pytest.mark.parametrize(
    ("task", "root", "step", "state"),
    [
        ("path: never", "executor: {spec: {timeout_s: 50}}", "", "FAILED"),
        ("path: never", "", "spec: {policy: {lifecycle: {timeout_s: 50}}}", "FAILED"),
        ("path: never, spec: {timeout: 50, policy: {rules: [{else: {then: {do: continue}}}]}}", "", "", "COMPLETED"),
    ],
)
def test_a_child_that_never_ends_is_cancelled_when_its_parent_is_late(
    task: str, root: str, step: str, state: str
) -> None:
    ended, _, world = run_virtually(ran(parent(task, root=root, step=step), NEVER))
    assert ended.status == state
    if state == "FAILED":
        assert ended.error is not None
        assert ended.error["kind"] == "timeout"

    async def main() -> None:
        await world.store.open()
        assert [record.now.state for record in await family(world)] == [state, "CANCELLED"]

    run_virtually(main())


def test_cancel_goes_down_to_every_run_below() -> None:
    middle = "metadata: {name: middle, path: middle}\nworkflow: [{step: start, tool: {kind: playbook, path: never}}]"

    async def main() -> None:
        async with World(parent("path: middle"), settings=EAGER) as world:
            for text in (middle, NEVER):
                await world.register(text)
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(10)
            await world.current_life.api.cancel(str(world.execution_id), "enough")
            assert (await going).status == "CANCELLED"
            await settled(world)
            assert [record.now.state for record in await family(world)] == ["CANCELLED"] * 3
            await check_family(world)

    run_virtually(main())


def test_a_cancelled_child_fails_its_task() -> None:
    async def main() -> None:
        async with World(parent("path: never"), settings=EAGER) as world:
            await world.register(NEVER)
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(10)
            child = next(iter((await world.state()).waits.values())).child
            await world.current_life.api.cancel(str(child), "not this one")
            state = await going
            assert state.error is not None
            assert state.error["kind"] == "child"
            assert "was cancelled" in state.error["message"]
            await settled(world)
            await check_family(world)

    run_virtually(main())


def test_a_detached_child_is_started_and_left_alone() -> None:
    async def main() -> None:
        async with World(parent("path: flows/child, wait: false"), settings=EAGER) as world:
            await world.register(CHILD)
            state = await world.run()
            _, child = await family(world)
            assert state.result == {"execution_id": str(child.execution_id)}
            assert child.now.state == "RUNNING"
            await world.current_life.api.ended(str(child.execution_id))
            await settled(world)
            await check_family(world)

    run_virtually(main())


# -- faults --------------------------------------------------------------------------------------------------------------


class MortalFamily(Mortal):
    def __init__(self, n: int, when: str) -> None:
        super().__init__(parent("path: flows/child, args: {n: 41}", AFTER), n, when)

    async def run(self) -> State:
        async with self.world as world:
            await world.register(CHILD)
            state = await world.run()
            if world.life is None:
                world.begin_life()
            await settled(world)
            await world.current_life.children.recover(world.execution_id)
            await settled(world)
            assert len(await family(world)) == 2
            await check_family(world)
            for record in await family(world):
                live = await world.current_life.engine.live.folded(record.execution_id)
                again = State(execution_id=record.execution_id)
                for entry in await world.store.events(record.execution_id, limit=1_000_000):
                    apply(live.program, again, entry.event)
                assert again == live.state
            return state


def test_dying_at_every_commit_starts_and_answers_the_child_once() -> None:
    plain = MortalFamily(0, "")
    state = run_virtually(plain.run())
    assert state.result == {"got": 42, "state": "COMPLETED"}
    for n in range(1, plain.commits + 1):
        for when in ("before", "after"):
            it = MortalFamily(n, when)
            try:
                other = run_virtually(it.run())
                assert it.world.lives == 2 or n == plain.commits
                assert (other.status, other.result) == (state.status, state.result)
            except BaseException as problem:
                problem.add_note(f"died {when} commit {n} of {plain.commits}")
                raise


def test_a_grandchild_that_told_its_parent_is_processed_though_the_process_dies_after_every_commit() -> None:
    middle = (
        "metadata: {name: middle, path: middle}\nworkflow: [{step: start, tool: {kind: playbook, path: flows/child}}]"
    )

    async def after(_: int, append: Append, done: Appended) -> None:
        # What a restart itself writes is not a progress.
        if not {event.type for event in append.events} <= {"command.claimed", "command.issued"}:
            world.crash_now()
            await forever()

    async def main() -> State:
        async with world:
            for text in (CHILD, middle):
                await world.register(text)
            state = await world.run()
            if world.current_life._wrapper._dead:
                await world.crash()
                world.after = None
                world.begin_life()
                await world.current_life.children.recover(world.execution_id)
            await settled(world)
            await check_family(world)
            return state

    world = World(parent("path: middle", AFTER), settings=EAGER, after=after)
    assert run_virtually(main()).result == {"got": 2, "state": "COMPLETED"}


# -- pausing and stopping with the parent ----------------------------------------------------------------------------------

BUSY = """
metadata: {name: busy, path: busy}
workflow: [{step: start, tool: [{kind: act, takes: 5}, {kind: act, takes: 1000, returns: done}]}]
"""


def test_a_child_that_starts_while_its_parent_is_told_to_pause_is_paused_too() -> None:
    async def main() -> None:
        async def before(_: int, append: Append) -> None:
            if append.new is not None and append.new.parent_execution_id:
                answer = await world.current_life.api.signal(str(world.execution_id), SignalRequest("PAUSE", "p"))
                assert answer.paused
                # Whatever follows from that is done before the child is there.
                await asyncio.sleep(1)

        async with World(parent("path: busy"), settings=EAGER, before=before) as world:
            await world.register(BUSY)
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(100)
            _, child = await family(world)
            assert child.now.paused
            assert len([call for call in world.ledger.calls if call.step == "start"]) <= 2
            await world.current_life.api.signal(str(world.execution_id), SignalRequest("RESUME", "r"))
            assert (await going).result == "done"
            await settled(world)
            await check_family(world)

    run_virtually(main())


def test_a_pause_from_another_process_holds_the_child_until_it_is_taken_back() -> None:
    async def main() -> None:
        async with World(parent("path: busy"), settings=EAGER) as world:
            await world.register(BUSY)
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(2)
            # Another process on the same store: what it writes is not in the state that the first one keeps.
            other = Life(world, 77, None, None)
            await other.api.signal(str(world.execution_id), SignalRequest("PAUSE", "p"))
            await asyncio.sleep(60)
            assert [record.now.paused for record in await family(world)] == [True, True]
            await other.api.signal(str(world.execution_id), SignalRequest("RESUME", "r"))
            await other.children.settle(100)
            await other.end()
            assert (await going).result == "done"
            await settled(world)
            await check_family(world)

    run_virtually(main())


def test_a_child_that_its_own_people_paused_stays_paused() -> None:
    async def main() -> None:
        async with World(parent("path: busy"), settings=EAGER) as world:
            await world.register(BUSY)
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(2)
            _, child = await family(world)
            for which, signal in ((child.execution_id, "PAUSE"), (world.execution_id, "PAUSE")):
                await world.current_life.api.signal(str(which), SignalRequest(signal, f"{signal} of {which}"))
            await asyncio.sleep(100)
            await world.current_life.api.signal(str(world.execution_id), SignalRequest("RESUME", "r"))
            await asyncio.sleep(100)
            assert [record.now.paused for record in await family(world)] == [False, True]
            await world.current_life.api.signal(str(child.execution_id), SignalRequest("RESUME", "r"))
            assert (await going).result == "done"
            await settled(world)
            await check_family(world)

    run_virtually(main())


@pytest.mark.parametrize(("signal", "kill"), [("CANCEL", False), ("EMERGENCY_STOP", True)])
def test_what_ends_a_parent_ends_its_children_in_the_same_way(signal: str, kill: bool) -> None:
    async def main() -> None:
        async with World(parent("path: busy"), settings=EAGER) as world:
            await world.register(BUSY)
            going = asyncio.ensure_future(world.run())
            await asyncio.sleep(2)
            await world.current_life.api.signal(str(world.execution_id), SignalRequest(signal, "s", "enough"))
            assert (await going).status == "CANCELLED"
            await settled(world)
            await check_family(world)
            _, child = await family(world)
            events = [entry.event for entry in await world.store.events(child.execution_id)]
            ended = next(event for event in events if event.type == "execution.cancelled")
            assert ended.payload.get("code") == ("EMERGENCY_STOP" if kill else None)
            assert "its parent was cancelled: enough" in ended.payload["reason"]
            withdrawn = next(event for event in events if event.type == "command.cancelled")
            assert bool(withdrawn.payload.get("kill")) is kill

    run_virtually(main())


def test_children_queue_for_the_slots_of_their_playbook() -> None:
    one_at_a_time = CHILD.replace("workload:", "executor: {spec: {concurrency: {max: 1}}}\nworkload:")
    text = parent(
        "path: flows/child, args: {n: '{{ iter.x }}'}",
        step="loop: {in: [1, 2, 3], iterator: x, spec: {mode: parallel}}",
        root="executor: {spec: {result: '{{ start.results }}'}}",
    )
    state, _, _ = run_virtually(ran(text, one_at_a_time))
    assert state.result == [{"sum": 2}, {"sum": 3}, {"sum": 4}]
