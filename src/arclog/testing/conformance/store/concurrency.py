"""Rules under concurrency: appends that are submitted together, and many tasks on one store."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from arclog.model.errors import Conflict, InvariantBroken
from arclog.ports.storage.outbox import NewDelivery
from arclog.ports.storage.store import Append, Appended, ExecutionState, NoSlot, TerminalExists, Timer
from arclog.testing.conformance.store.base import DONE, RUNNING, Rules, World, command, event, seqs

# ── groups ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules: appends of many executions that are submitted together have the same effects as separate appends.

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
        run, HEAD, event("playbook.finished"), now=DONE, deliveries=[NewDelivery("http://a/", "", "completed", b"{}")]
    ),
    "a lease": lambda world, run, held: world.change(run, HEAD, event("task.started", "a", 1), extend=[(held, 1, 99)]),
    "a held command": lambda world, run, held: world.change(run, HEAD, event("signal.received"), hold=[(held, 0)]),
    "a new run": _new,
}  # fmt: skip


async def _run_data(world: World, execution_id: int) -> tuple[Any, ...]:
    """Return the data of a run, without the ids that differ between two equal runs."""
    store = world.store
    record = await store.execution(execution_id)
    assert record is not None
    timers = [timer for timer in await store.due_timers(1 << 62, limit=10_000) if timer.execution_id == execution_id]
    return (
        (record.head, record.now, record.new.path),
        [(stored.seq, stored.event) for stored in await store.events(execution_id)],
        await store.step_runs(execution_id),
        [
            (command.step, command.pool, command.kinds, command.state, command.fence)
            for command in await store.commands(execution_id)
        ],
        [(timer.timer_id, timer.due, timer.payload) for timer in timers],
        [len(await _marks(world, name, execution_id)) for name in ("playbook.started", "playbook.finished")],
        [(delivery.url, delivery.event) for delivery in await store.deliveries(execution_id)],
    )


async def _marks(world: World, name: str, execution_id: int) -> list[Any]:
    return [mark for mark in await world.store.marks(name, limit=10_000) if mark.execution_id == execution_id]


async def _counts(world: World) -> list[tuple[int, int, int]]:
    counts = await world.store.run_counts("acme")
    return [(count.completed, count.failed, count.cancelled) for count in counts]


def _kinds(answers: Sequence[object]) -> list[type]:
    return [type(answer) for answer in answers]


class GroupRules(Rules):
    async def test_a_group_does_what_each_of_it_does_alone(self, world: World) -> None:
        alone = [change(world, *await _begun(world)) for change in CHANGES.values()]
        for run in alone:
            await world.store.append(run)
        counted = await _counts(world)
        together = [change(world, *await _begun(world)) for change in CHANGES.values()]
        answers = await world.store.append_all(together)
        assert _kinds(answers) == [Appended] * len(CHANGES)
        for name, before, other, answer in zip(CHANGES, alone, together, answers, strict=True):
            expected = await _run_data(world, before.execution_id)
            assert await _run_data(world, other.execution_id) == expected, name
            assert isinstance(answer, Appended)
            assert (answer.first_seq, answer.last_seq) == (other.expected + 1, expected[0][0]), name
        assert await _counts(world) == [tuple(2 * number for number in hour) for hour in counted]

    async def test_a_refused_append_of_a_group_changes_nothing_and_the_others_are_committed(self, world: World) -> None:
        runs = [await _begun(world) for _ in range(14)]
        over = await world.create(event("playbook.finished"), now=DONE)
        await world.create(new=world.new("key"))
        before = {run: await world.store.events(run) for run, _ in runs}
        good = [world.change(run, HEAD, event("task.started", "a", 1)) for run, _ in runs[:10]]
        stale = world.change(runs[10][0], HEAD - 1, event("playbook.finished"), now=DONE, clear_timers=["t"])
        ended = world.change(over, 1, event("playbook.finished"), now=DONE)
        missing = world.change(world.ids(), 3, event("task.started"))
        existing = Append(runs[11][0], 0, (event("playbook.started"),), world.ids(2), RUNNING, world.new())
        taken = Append(world.ids(), 0, (event("playbook.started"),), world.ids(2), RUNNING, world.new("key"))
        claimed = world.change(runs[12][0], HEAD, event("signal.received"), hold=[(runs[12][1], 7)])
        full = world.change(runs[13][0], HEAD, event("playbook.started"), slots=1)
        refused = [stale, ended, missing, existing, taken, claimed, full]
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


# ── races ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rules under concurrency: many tasks on one store.


class RaceRules(Rules):
    async def test_racing_writers_of_one_execution_leave_no_gap(self, world: World) -> None:
        execution_id = await world.create()
        conflicts = 0

        async def write(writer: int) -> None:
            nonlocal conflicts
            for n in range(10):
                while True:
                    head = await world.head(execution_id)
                    await asyncio.sleep(0)
                    try:
                        await world.add(execution_id, head, *[event("task.started", f"w{writer}", n + 1)] * (1 + n % 3))
                        break
                    except Conflict:
                        conflicts += 1

        await asyncio.gather(*(write(writer) for writer in range(8)))
        stored = await world.store.events(execution_id, limit=10_000)
        assert seqs(stored) == list(range(1, await world.head(execution_id) + 1))
        counts = Counter((stored_event.event.step, stored_event.event.run) for stored_event in stored[1:])
        assert counts == {(f"w{writer}", n + 1): 1 + n % 3 for writer in range(8) for n in range(10)}
        assert conflicts > 0
        assert len({event.event_id for event in stored}) == len(stored)

    async def test_many_executions_at_once(self, world: World) -> None:
        async def run(n: int) -> int:
            execution_id = await world.create(event("playbook.started"))
            for i in range(n % 7):
                await world.add(execution_id, 1 + i, event("task.started", "a", 1))
            await world.add(execution_id, 1 + n % 7, event("playbook.finished"), now=DONE)
            return execution_id

        created = await asyncio.gather(*(run(n) for n in range(200)))
        for n, execution_id in enumerate(created):
            assert seqs(await world.store.events(execution_id)) == list(range(1, 3 + n % 7))
        assert len(await world.store.marks("playbook.finished")) == 200

    async def test_one_of_many_endings_wins(self, world: World) -> None:
        execution_id = await world.create()
        names = ["playbook.finished", "execution.cancelled"] * 10
        results = await asyncio.gather(
            *(world.add(execution_id, 1, event(name), now=DONE) for name in names), return_exceptions=True
        )
        assert Counter(type(result) for result in results) == {Appended: 1, TerminalExists: 19}

    async def test_one_of_many_starts_with_a_key_wins(self, world: World) -> None:
        results = await asyncio.gather(*(world.create(new=world.new("k")) for _ in range(20)), return_exceptions=True)
        assert Counter(type(result) for result in results) == {int: 1, Conflict: 19}

    async def test_a_tail_reader_misses_nothing(self, world: World) -> None:
        writers = 6
        over = 0

        async def write() -> None:
            nonlocal over
            execution_id = await world.create()
            for n in range(40):
                await world.add(execution_id, await world.head(execution_id), *[event("task.started")] * (1 + n % 4))
            over += 1

        tasks = [asyncio.ensure_future(write()) for _ in range(writers)]
        position = 0
        read: list[tuple[int, int]] = []
        while True:
            ended = over == writers
            batches = await world.store.tail(after=position, limit=7)
            for batch in batches:
                assert batch.position > position
                position = batch.position
                read += [(batch.execution_id, event.seq) for event in batch.events]
            if ended and not batches:
                break
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert len(read) == len(set(read)) == writers * (1 + 100)
        by_execution: dict[int, list[int]] = {}
        for execution_id, seq in read:
            by_execution.setdefault(execution_id, []).append(seq)
        assert all(seqs == list(range(1, 102)) for seqs in by_execution.values())

    async def test_no_two_workers_get_the_same_command(self, world: World) -> None:
        all_work = [world.ids() for _ in range(120)]
        for i in range(0, 120, 10):
            await world.create(issue=[command(command_id) for command_id in all_work[i : i + 10]])
        taken: list[int] = []

        async def work(worker: str) -> None:
            while claimed := await world.store.claim(worker, limit=3, lease_until=99, kinds=["noop"]):
                assert all(record.fence == 1 and record.worker_id == worker for record in claimed)
                taken.extend(record.command_id for record in claimed)

        await asyncio.gather(*(work(f"w{n}") for n in range(10)))
        assert sorted(taken) == all_work

    async def test_racing_registers_give_each_content_its_own_version(self, world: World) -> None:
        register = partial(world.store.register_plan, tenant="t1")
        records = await asyncio.gather(
            *(register(f"d{n % 5}", "flows/a", b"%d" % (n % 5), f"text {n % 5}", n) for n in range(40))
        )
        versions = {record.digest: record.version for record in records}
        assert sorted(versions.values()) == [1, 2, 3, 4, 5]
        assert all(record.version == versions[record.digest] for record in records)

    async def test_a_read_sees_every_append_that_was_answered(self, world: World) -> None:
        execution_id = await world.create()

        async def noise() -> None:
            other = await world.create()
            for n in range(50):
                await world.add(other, 1 + n, event("task.started", payload={"x": "y" * 3000}))

        others = [asyncio.ensure_future(noise()) for _ in range(4)]
        for n in range(50):
            appended = await world.add(execution_id, 1 + n, event("task.started"))
            assert await world.head(execution_id) == appended.last_seq
            assert seqs(await world.store.events(execution_id, after=appended.last_seq - 1)) == [appended.last_seq]
        await asyncio.gather(*others)
