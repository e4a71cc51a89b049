"""Rules: appends of many executions that are handed in together do what each of them would do by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from arclog.model.errors import Conflict, InvariantBroken
from arclog.ports.storage.outbox import NewDelivery
from arclog.ports.storage.store import Append, Appended, ExecutionState, NoSlot, TerminalExists, Timer
from arclog.testing.conformance.store.base import DONE, RUNNING, Rules, World, command, event

PENDING = ExecutionState("PENDING")
FAILED = ExecutionState("FAILED", ended_at=9, terminal_event="playbook.finished", error="außer Betrieb")
BEFORE = (event("playbook.started"), event("step.scheduled", "a", 1), event("step.scheduled", "b", 1))
#: their last events, and those of the step that has ended before: `_begun` has all of them
HEAD = 4

Change = Callable[[World, int, int], Append]


async def _begun(world: World, now: ExecutionState = RUNNING) -> tuple[int, int]:
    """A run with an open step, one that has ended, a command and a timer; its id and the command's."""
    held = world.ids()
    run = await world.create(*BEFORE, now=now, issue=[command(held)])
    await world.add(run, 3, event("step.done", "b", 1), now=now, set_timers=[Timer(run, "t", 50, {"x": 1})])
    return run, held


def _new(world: World, run: int, held: int) -> Append:
    own = world.ids()
    events = (event("playbook.execution.requested", payload={"text": 'quote " and ü \u0000'}), *BEFORE)
    first = Append(own, 0, events, world.ids(8), RUNNING, world.new())
    return replace(first, issue=[command(world.ids(), pool="far", order=3)], set_timers=[Timer(own, "u", 60)])


#: all that an append can bring, one by one
CHANGES: dict[str, Change] = {
    "an event": lambda world, run, _: world.change(run, HEAD, event("task.started", "a", 1)),
    "no event": lambda world, run, _: world.change(run, HEAD),
    "another state": lambda world, run, _: world.change(run, HEAD, event("playbook.paused"), now=PENDING),
    "an end": lambda world, run, _: world.change(run, HEAD, event("playbook.finished"), now=DONE),
    "a bad end": lambda world, run, _: world.change(run, HEAD, event("playbook.finished"), now=FAILED),
    "new work": lambda world, run, _: world.change(
        run, HEAD, event("command.issued", "a", 1), issue=[command(world.ids()), command(world.ids(), "http", held=True)]
    ),
    "work that is over": lambda world, run, held: world.change(
        run, HEAD, event("step.done", "a", 1), close=[held], clear_timers=["t", "none"]
    ),
    "a timer that moves": lambda world, run, _: world.change(
        run, HEAD, event("timer.fired"), set_timers=[Timer(run, "t", 70), Timer(run, "v", 80, {"y": "ü"})]
    ),
    "a step run": lambda world, run, _: world.change(run, HEAD, event("step.scheduled", "c", 1), event("step.failed", "c", 1)),
    "a step that is open": lambda world, run, _: world.change(run, HEAD, event("step.scheduled", "c", 2)),
    "the end of a step": lambda world, run, _: world.change(run, HEAD, event("step.done", "a", 1), event("next.evaluated", "a", 1)),
    "a step that had ended": lambda world, run, _: world.change(run, HEAD, event("next.evaluated", "b", 1)),
    "something long": lambda world, run, _: world.change(run, HEAD, event("task.done", "a", 1, payload={"x": "y" * 5000})),
    "a word to others": lambda world, run, _: world.change(
        run, HEAD, event("playbook.finished"), now=DONE, tell=[NewDelivery("http://a/", "", "completed", b"{}")]
    ),
    "a lease": lambda world, run, held: world.change(run, HEAD, event("task.started", "a", 1), extend=[(held, 1, 99)]),
    "a held command": lambda world, run, held: world.change(run, HEAD, event("signal.received"), hold=[(held, 0)]),
    "a new run": _new,
}  # fmt: skip


async def _seen(world: World, execution_id: int) -> tuple[Any, ...]:
    """What is known of a run, without the ids that differ between two that were treated alike."""
    store = world.store
    record = await store.execution(execution_id)
    assert record is not None
    timers = [each for each in await store.due_timers(1 << 62, limit=10_000) if each.execution_id == execution_id]
    return (
        (record.head, record.now, record.new.path),
        [(each.seq, each.event) for each in await store.events(execution_id)],
        await store.step_runs(execution_id),
        [(each.step, each.pool, each.kinds, each.state, each.fence) for each in await store.commands(execution_id)],
        [(each.timer_id, each.due, each.payload) for each in timers],
        [len(await _marks(world, name, execution_id)) for name in ("playbook.started", "playbook.finished")],
        [(each.url, each.event) for each in await store.deliveries(execution_id)],
    )


async def _marks(world: World, name: str, execution_id: int) -> list[Any]:
    return [each for each in await world.store.marks(name, limit=10_000) if each.execution_id == execution_id]


async def _counts(world: World) -> list[tuple[int, int, int]]:
    found = await world.store.run_counts("acme")
    return [(each.completed, each.failed, each.cancelled) for each in found]


def _kinds(answers: Sequence[object]) -> list[type]:
    return [type(each) for each in answers]


class GroupRules(Rules):
    async def test_a_group_does_what_each_of_it_does_alone(self, world: World) -> None:
        alone = [change(world, *await _begun(world)) for change in CHANGES.values()]
        for each in alone:
            await world.store.append(each)
        counted = await _counts(world)
        together = [change(world, *await _begun(world)) for change in CHANGES.values()]
        answers = await world.store.append_all(together)
        assert _kinds(answers) == [Appended] * len(CHANGES)
        for name, one, other, answer in zip(CHANGES, alone, together, answers, strict=True):
            seen = await _seen(world, one.execution_id)
            assert await _seen(world, other.execution_id) == seen, name
            assert isinstance(answer, Appended)
            assert (answer.first_seq, answer.last_seq) == (other.expected + 1, seen[0][0]), name
        assert await _counts(world) == [tuple(2 * number for number in hour) for hour in counted]

    async def test_one_of_a_group_that_is_refused_changes_nothing_and_the_others_stand(self, world: World) -> None:
        runs = [await _begun(world) for _ in range(14)]
        over = await world.create(event("playbook.finished"), now=DONE)
        await world.create(new=world.new("key"))
        before = {run: await world.store.events(run) for run, _ in runs}
        good = [world.change(run, HEAD, event("task.started", "a", 1)) for run, _ in runs[:10]]
        stale = world.change(runs[10][0], HEAD - 1, event("playbook.finished"), now=DONE, clear_timers=["t"])
        ended = world.change(over, 1, event("playbook.finished"), now=DONE)
        missing = world.change(world.ids(), 3, event("task.started"))
        known = Append(runs[11][0], 0, (event("playbook.started"),), world.ids(2), RUNNING, world.new())
        taken = Append(world.ids(), 0, (event("playbook.started"),), world.ids(2), RUNNING, world.new("key"))
        claimed = world.change(runs[12][0], HEAD, event("signal.received"), hold=[(runs[12][1], 7)])
        full = world.change(runs[13][0], HEAD, event("playbook.started"), slots=1)
        refused = [stale, ended, missing, known, taken, claimed, full]
        answers = await world.store.append_all([*good[:5], *refused, *good[5:]])
        expected = [Conflict, TerminalExists, Conflict, Conflict, Conflict, Conflict, NoSlot]
        assert _kinds(answers) == [*[Appended] * 5, *expected, *[Appended] * 5]
        for run, _ in runs[:10]:
            assert await world.head(run) == HEAD + 1
        for run, _ in runs[10:]:
            assert await world.store.events(run) == before[run]
        assert await world.store.execution(taken.execution_id) is None

    async def test_of_two_new_runs_with_one_key_the_first_is_made(self, world: World) -> None:
        def new(key: str) -> Append:
            return Append(world.ids(), 0, (event("playbook.started"),), world.ids(2), RUNNING, world.new(key))

        appends = [new("twice"), *(new(f"key {number}") for number in range(10)), new("twice")]
        answers = await world.store.append_all(appends)
        assert _kinds(answers) == [*[Appended] * 11, Conflict]
        assert await world.store.execution(appends[-1].execution_id) is None

    async def test_one_of_a_group_that_cannot_be_stored_leaves_the_others(self, world: World) -> None:
        runs = [await _begun(world) for _ in range(12)]
        taken = runs[0][1]
        appends = [world.change(run, HEAD, event("task.started", "a", 1)) for run, _ in runs]
        appends[3] = world.change(runs[0][0], HEAD + 1, event("command.issued", "a", 1), issue=[command(taken)])
        appends[5] = world.change(runs[5][0], HEAD, event("task.done", "a", 1, payload={"x": object()}))
        answers = await world.store.append_all([*appends[:3], appends[5], *appends[6:]])
        assert _kinds(answers).count(Appended) == 9
        assert isinstance(answers[3], Exception)
        (answer,) = await world.store.append_all([appends[3]])
        assert isinstance(answer, InvariantBroken)
        assert await world.head(runs[5][0]) == HEAD

    async def test_a_group_of_none(self, world: World) -> None:
        assert await world.store.append_all([]) == []
