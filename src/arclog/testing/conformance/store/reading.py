"""Rules of reading the log: ids, pages, filters, split rows, step runs, marks, tail."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from arclog.model.events import Event
from arclog.model.ids import EPOCH_MS, MAX_SEQUENCE, compose, moved, node_of
from arclog.ports.storage.store import Mark, StepRunRecord
from arclog.testing.conformance.store.base import DONE, Rules, World, event, seqs

STEP = "step.scheduled"


class ReadingRules(Rules):
    async def test_event_ids_count_from_the_base(self, world: World) -> None:
        execution_id = await world.create()
        change = world.change(execution_id, 1, *[event("task.started", "a", 1)] * 600)
        await world.store.append(change)
        stored = await world.store.events(execution_id, after=1)
        assert [event.event_id for event in stored] == [change.base_id + i for i in range(600)]

    async def test_a_long_run_of_ids_goes_on_in_the_next_millisecond(self, world: World) -> None:
        execution_id = await world.create()
        base = compose(EPOCH_MS + 1_000_000, 1023, MAX_SEQUENCE - 99)
        change = replace(world.change(execution_id, 1, *[event("task.started", "a", 1)] * 5000), base_id=base)
        await world.store.append(change)
        stored = await world.store.events(execution_id, after=1, limit=10_000)
        ids = [event.event_id for event in stored]
        assert ids == [moved(base, i) for i in range(5000)]
        assert ids == sorted(set(ids))
        assert {node_of(event_id) for event_id in ids} == {1023}
        assert ids[99:101] == [base + 99, compose(EPOCH_MS + 1_000_001, 1023, 0)]
        assert [moved(event_id, -i) for i, event_id in enumerate(ids)] == [base] * 5000

    async def test_an_outside_producers_id_is_kept(self, world: World) -> None:
        execution_id = await world.create()
        await world.add(
            execution_id, 1, event("batch.completed", informative=True, own_id=77), event("playbook.started")
        )
        stored = await world.store.events(execution_id, after=1)
        assert stored[0].event_id == 77
        assert stored[1].event_id != 77

    async def test_every_field_comes_back(self, world: World) -> None:
        full = Event(
            "task.failed",
            5,
            "a",
            2,
            (0, 3),
            "t",
            4,
            5,
            "error",
            1.25,
            6,
            7,
            "w",
            8,
            9,
            True,
            10,
            {"a": [None, 1.5, {}]},
        )
        execution_id = await world.create(full, Event("playbook.started", -1))
        stored = await world.store.events(execution_id)
        assert [row.event for row in stored] == [full, Event("playbook.started", -1)]
        assert {row.execution_id for row in stored} == {execution_id}

    async def test_what_was_handed_in_may_be_changed_afterwards(self, world: World) -> None:
        payload = {"list": [1]}
        execution_id = await world.create(event("task.done", payload=payload))
        payload["list"].append(2)
        stored = await world.store.events(execution_id)
        assert stored[0].event.payload == {"list": [1]}
        stored[0].event.payload["list"].append(3)
        assert (await world.store.events(execution_id))[0].event.payload == {"list": [1]}

    @pytest.mark.parametrize("page", [1, 3, 7, 100, 300, 1000])
    async def test_pages_join_without_gap_or_overlap(self, world: World, page: int) -> None:
        execution_id = await world.create()
        head = 1
        for count in (1, 2, 30, 300, 1, 5):
            head = (await world.add(execution_id, head, *[event("task.started", "a", 1)] * count)).last_seq
        numbers: list[int] = []
        while batch := await world.store.events(execution_id, after=numbers[-1] if numbers else 0, limit=page):
            assert len(batch) <= page
            numbers += seqs(batch)
        assert numbers == list(range(1, head + 1))

    async def test_a_page_may_start_anywhere(self, world: World) -> None:
        execution_id = await world.create(*[event("task.started")] * 5)
        await world.add(execution_id, 5, *[event("task.started")] * 600)
        for after in (0, 1, 4, 5, 6, 260, 261, 262, 516, 604, 605, 999):
            assert seqs(await world.store.events(execution_id, after=after)) == list(range(after + 1, 606))

    async def test_types_are_filtered_across_rows_and_the_limit_counts_after_it(self, world: World) -> None:
        execution_id = await world.create()
        head = 1
        for i in range(300):
            names = ["task.started", "task.done"] + (["step.failed"] if i % 100 == 0 else [])
            head = (await world.add(execution_id, head, *[event(name, "a", 1) for name in names])).last_seq
        failed = await world.store.events(execution_id, types=["step.failed"])
        assert len(failed) == 3
        assert {stored.event.type for stored in failed} == {"step.failed"}
        page = await world.store.events(execution_id, types=["step.failed", "task.done"], limit=10, after=2)
        assert len(page) == 10
        assert seqs(page)[0] == 3
        assert await world.store.events(execution_id, types=["step.exploded"]) == []
        assert len(await world.store.events(execution_id, types=["step.failed", "step.exploded"])) == 3

    async def test_a_large_append_is_one_transaction_in_several_rows(self, world: World) -> None:
        execution_id = await world.create()
        big = event("task.done", "a", 1, payload={"x": "y" * 50_000})
        appended = await world.add(execution_id, 1, *[big] * 20, *[event("task.started", "a", 1)] * 1000)
        assert (appended.first_seq, appended.last_seq) == (2, 1021)
        assert seqs(await world.store.events(execution_id, limit=2000)) == list(range(1, 1022))
        batches = [batch for batch in await world.store.tail() if batch.execution_id == execution_id]
        assert len(batches) > 5
        assert [event.seq for batch in batches for event in batch.events] == list(range(1, 1022))
        assert max(len(batch.events) for batch in batches) <= 256
        done = await world.store.events(execution_id, types=["task.done"])
        assert seqs(done) == list(range(2, 22))

    async def test_one_huge_event_is_taken(self, world: World) -> None:
        execution_id = await world.create()
        noise = "".join(chr(32 + i * 7919 % 90) for i in range(2_000_000))
        await world.add(
            execution_id, 1, event("task.started"), event("task.done", payload={"x": noise}), event("step.done")
        )
        stored = await world.store.events(execution_id, after=2, limit=1)
        assert stored[0].event.payload == {"x": noise}
        assert seqs(await world.store.events(execution_id)) == [1, 2, 3, 4]

    async def test_executions_do_not_mix(self, world: World) -> None:
        first, second = await world.create(event("task.started", "a", 1)), await world.create()
        await world.add(first, 1, event("task.done", "a", 1))
        assert [event.execution_id for event in await world.store.events(first)] == [first, first]
        assert [event.execution_id for event in await world.store.events(second)] == [second]

    # -- step runs ----------------------------------------------------------------------------------------------------

    async def test_step_runs_follow_their_events(self, world: World) -> None:
        execution_id = await world.create(event(STEP, "b", 1), event(STEP, "a", 1), event(STEP, "c", 1))
        await world.add(
            execution_id, 3, event("step.done", "a", 1), event("next.evaluated", "a", 1), event(STEP, "a", 2)
        )
        await world.add(execution_id, 6, event("step.failed", "b", 1), event("step.done", "a", 2, status="skipped"))
        await world.add(execution_id, 8, event(STEP, "d", 1), event("step.done", "d", 1))
        assert await world.store.step_runs(execution_id) == [
            StepRunRecord("b", 1, 1, 7, "failed"),
            StepRunRecord("a", 1, 2, 4, "done"),
            StepRunRecord("c", 1, 3, None, "open"),
            StepRunRecord("a", 2, 6, 8, "skipped"),
            StepRunRecord("d", 1, 9, 10, "done"),
        ]

    async def test_informative_events_open_and_close_no_step_run(self, world: World) -> None:
        execution_id = await world.create(event(STEP, "a", 1), event(STEP, "b", 1, informative=True))
        await world.add(execution_id, 2, event("step.done", "a", 1, informative=True))
        assert await world.store.step_runs(execution_id) == [StepRunRecord("a", 1, 1, None, "open")]

    async def test_the_first_end_of_a_step_run_counts(self, world: World) -> None:
        execution_id = await world.create(event(STEP, "a", 1), event("step.failed", "a", 1), event("step.done", "a", 1))
        await world.add(execution_id, 3, event("step.done", "a", 1))
        assert await world.store.step_runs(execution_id) == [StepRunRecord("a", 1, 1, 2, "failed")]

    async def test_step_events_are_all_that_name_the_step_run(self, world: World) -> None:
        execution_id = await world.create(event(STEP, "a", 1), event(STEP, "b", 1))
        await world.add(execution_id, 2, event("task.started", "a", 1), event("task.started", "b", 1))
        await world.add(
            execution_id, 4, event("step.done", "a", 1), event("next.evaluated", "a", 1), event(STEP, "a", 2)
        )
        await world.add(execution_id, 7, event("task.started", "a", 2), event("step.done", "b", 1))
        await world.add(execution_id, 9, event("task.done", "a", 1, informative=True))  # a late result
        await world.add(execution_id, 10, event("task.done", "b", 1, informative=True))
        assert seqs(await world.store.step_events(execution_id, "a", 1)) == [1, 3, 5, 6, 10]
        assert seqs(await world.store.step_events(execution_id, "a", 1, after=1, limit=2)) == [3, 5]
        assert seqs(await world.store.step_events(execution_id, "a", 1, after=6)) == [10]
        assert seqs(await world.store.step_events(execution_id, "b", 1)) == [2, 4, 9, 11]
        assert seqs(await world.store.step_events(execution_id, "a", 2)) == [7, 8]
        assert await world.store.step_events(execution_id, "a", 3) == []
        assert await world.store.step_events(execution_id, "z", 1) == []

    async def test_step_events_page_over_many_rows(self, world: World) -> None:
        execution_id = await world.create(event(STEP, "a", 1), event(STEP, "b", 1))
        head = 2
        for _ in range(20):
            both = [event("task.started", "a", 1), event("task.started", "b", 1)] * 20
            head = (await world.add(execution_id, head, *both)).last_seq
        numbers: list[int] = []
        while page := await world.store.step_events(
            execution_id, "b", 1, after=numbers[-1] if numbers else 0, limit=37
        ):
            numbers += seqs(page)
        assert numbers == [2, *range(4, head + 1, 2)]

    # -- marks --------------------------------------------------------------------------------------------------------

    async def test_marks_are_found_by_type_and_time(self, world: World) -> None:
        times, where = [], []
        for i in range(5):
            world.clock.advance(1)
            execution_id = await world.create(event("playbook.execution.requested"), event("playbook.started"))
            if i % 2:
                await world.add(execution_id, 2, event("task.failed", "a", 1), event("task.failed", "a", 1))
            times.append(world.clock.now())
            where.append(execution_id)
        started = await world.store.marks("playbook.started")
        assert started == [Mark("playbook.started", at, owner, 2) for at, owner in zip(times, where, strict=True)]
        failed = await world.store.marks("task.failed", since=times[2])
        assert [(mark.execution_id, mark.seq) for mark in failed] == [(where[3], 3), (where[3], 4)]
        assert await world.store.marks("task.failed", since=times[3]) == failed
        assert len(await world.store.marks("task.failed", limit=3)) == 3
        assert await world.store.marks("task.failed", since=times[4]) == []
        assert await world.store.marks("step.exploded") == []

    async def test_unmarked_types_and_informative_events_leave_no_mark(self, world: World) -> None:
        await world.create(event("task.done"), event("task.failed", informative=True))
        assert await world.store.marks("task.done") == []
        assert await world.store.marks("task.failed") == []

    # -- tail ---------------------------------------------------------------------------------------------------------

    async def test_tail_gives_every_commit_in_order(self, world: World) -> None:
        first = await world.create()
        second = await world.create()
        await world.add(first, 1, event("playbook.started"), event("workflow.started"))
        await world.add(second, 1, event("playbook.finished"), now=DONE)
        batches = await world.store.tail()
        assert [(batch.execution_id, seqs(batch.events)) for batch in batches] == [
            (first, [1]),
            (second, [1]),
            (first, [2, 3]),
            (second, [2]),
        ]
        positions = [batch.position for batch in batches]
        assert positions == sorted(set(positions))
        assert positions[0] > 0
        assert await world.store.tail(after=positions[1], limit=1) == batches[2:3]
        assert await world.store.tail(after=positions[3]) == []
        stored = [event for batch in batches if batch.execution_id == first for event in batch.events]
        assert stored == await world.store.events(first)
