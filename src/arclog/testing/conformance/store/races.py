"""Rules under concurrency: many tasks on one store."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial

from arclog.model.errors import Conflict
from arclog.ports.storage.store import Appended, TerminalExists
from arclog.testing.conformance.store.base import DONE, Rules, World, command, event, seqs


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
        counts = Counter((each.event.step, each.event.run) for each in stored[1:])
        assert counts == {(f"w{writer}", n + 1): 1 + n % 3 for writer in range(8) for n in range(10)}
        assert conflicts > 0
        assert len({each.event_id for each in stored}) == len(stored)

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
        assert Counter(type(each) for each in results) == {Appended: 1, TerminalExists: 19}

    async def test_one_of_many_starts_with_a_key_wins(self, world: World) -> None:
        results = await asyncio.gather(*(world.create(new=world.new("k")) for _ in range(20)), return_exceptions=True)
        assert Counter(type(each) for each in results) == {int: 1, Conflict: 19}

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
                read += [(batch.execution_id, each.seq) for each in batch.events]
            if ended and not batches:
                break
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        assert len(read) == len(set(read)) == writers * (1 + 100)
        by_execution: dict[int, list[int]] = {}
        for execution_id, seq in read:
            by_execution.setdefault(execution_id, []).append(seq)
        assert all(found == list(range(1, 102)) for found in by_execution.values())

    async def test_no_two_workers_get_the_same_command(self, world: World) -> None:
        all_work = [world.ids() for _ in range(120)]
        for i in range(0, 120, 10):
            await world.create(issue=[command(each) for each in all_work[i : i + 10]])
        taken: list[int] = []

        async def work(worker: str) -> None:
            while found := await world.store.claim(worker, limit=3, lease_until=99, kinds=["noop"]):
                assert all(each.fence == 1 and each.worker_id == worker for each in found)
                taken.extend(each.command_id for each in found)

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
