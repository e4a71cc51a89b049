"""Runs whose first decision, events or snapshots kill the process. Real processes die in tests/e2e/test_quarantine.py."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from arclog.core.boundary.inputs import Forked, Request, Signal
from arclog.engine.commits.groups import Start
from arclog.engine.commits.marked_work import SNAPSHOT, start_id, work_of
from arclog.engine.commits.quarantine import REPEATED
from arclog.model.errors import Poisoned
from arclog.ports.storage.marks import ATTEMPT
from arclog.ports.storage.store import NewExecution, Scope
from arclog.ports.views.api import ForkRequest
from arclog.stores import rows
from arclog.testing.harness import Life, World
from arclog.testing.virtual import run_virtually
from tests.unit.engine.commits.test_quarantine import WAITING, Book, Slots, serving, watched

NEW = NewExecution("run", "waiting", "waiting", 1, "plan", Scope("tenant", "project", "test"), 1)
STARTING = work_of(Request("", 0, {}))


def test_a_start_is_known_by_what_it_is_to_do() -> None:
    same = start_id(NEW, {"n": 1})
    assert same == start_id(NewExecution("other", "x", "y", 2, "plan", NEW.scope, 9, "key"), {"n": 1})
    others = [
        start_id(NEW, {"n": 2}),
        start_id(
            NewExecution("run", "waiting", "waiting", 1, "plan", Scope("another", "project", "test"), 1), {"n": 1}
        ),
        start_id(NewExecution("run", "waiting", "waiting", 1, "another", NEW.scope, 1), {"n": 1}),
        start_id(NEW, {"n": "\ud800"}),
    ]
    assert len({same, *others}) == 5
    assert all(-(2**63) <= number < 0 for number in (same, *others))


async def start(world: World, life: Life, workload: Mapping[str, Any], content: Mapping[str, Any] | None = None) -> int:
    """Begin a run of the world's playbook, as `World.start` does."""
    plan = world.program.plan
    new = NewExecution("", plan.name, plan.name, 1, world.program.digest, Scope("tenant", "project", "test"), 1)
    request = Request(plan.name, 1, dict(workload), "tenant/project/test")
    return await life.engine.start(world.program, new, request, content)


def mark_of(world: World, content: Mapping[str, Any]) -> int:
    new = NewExecution("", "", "", 1, world.program.digest, Scope("tenant", "project", "test"), 1)
    return start_id(new, content)


async def error_of(life: Life, run: int) -> dict[str, Any]:
    return (await life.api.summary(str(run))).error or {}


async def known_to(life: Life) -> None:
    assert life.engine._quarantine is not None
    await life.engine._quarantine._look()


def test_a_run_whose_start_killed_two_processes_fails_and_a_success_forgets_it() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            await world.start()
            mark = mark_of(world, {"n": 1})
            await book.add_crashes([(mark, STARTING)] * 2, 1, 0)
            await known_to(life)
            for content in (None, {"n": 1}):
                refused = await start(world, life, {"n": 1}, content)
                problem = await error_of(life, refused)
                assert problem["kind"] == "poison"
                assert "died 2 times in a row while it decided how it begins" in problem["message"]
                assert f"`arclog retry {refused}` tries again" in problem["message"]
            assert not await error_of(life, await start(world, life, {"n": 2})), "another workload"
            retried = await start(world, life, {"n": 1}, {"retry": "1"})
            assert not await error_of(life, retried), "an operator may try"
            assert (mark, STARTING) in book.runs
            life.engine.starts.forget(replaced(world), {"n": 1})
            assert not await error_of(life, await start(world, life, {"n": 1}))
            await life.engine.close()
            assert book.runs == {}

    run_virtually(story())


def replaced(world: World) -> NewExecution:
    return NewExecution("", "", "", 1, world.program.digest, Scope("tenant", "project", "test"), 1)


def test_one_crash_at_the_start_is_forgotten_when_it_succeeds() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            await world.start()
            await book.add_crashes([(mark_of(world, {}), STARTING)], 1, 0)
            await known_to(life)
            recorded = watched(life, book)
            assert not await error_of(life, await start(world, life, {}))
            assert recorded == [{STARTING, STARTING | ATTEMPT}], "work that killed before is recorded"
            await life.engine.close()
            assert book.runs == {}

    run_virtually(story())


def test_starts_are_recorded_if_they_are_repeated_or_another_server_may_have_begun_them() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            await world.start()
            recorded = watched(life, book)
            await start(world, life, {})
            await life.engine.take_care()
            await start(world, life, {})
            assert recorded == [set(), set()], "a request that is no repetition"
            await start(world, life, {}, {"of": "a schedule"})
            REPEATED.set(True)
            await start(world, life, {})
            assert recorded[2:] == [{STARTING | ATTEMPT}] * 2
            await life.engine.close()
            assert book.runs == {}

    run_virtually(story())


def test_a_group_of_starts_leaves_out_those_that_killed_a_process() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            await world.start()
            await book.add_crashes([(mark_of(world, {"n": 1}), STARTING)] * 2, 1, 0)
            await known_to(life)
            plan = world.program.plan
            request = Request(plan.name, 1, {}, "tenant/project/test")
            starts = [Start(world.program, replaced(world), request, {"n": number}) for number in range(3)]
            runs = await life.engine.start_all(starts)
            assert [(await error_of(life, run)).get("kind") for run in runs if isinstance(run, int)] == [
                None,
                "poison",
                None,
            ]

    run_virtually(story())


def test_a_fork_that_killed_two_processes_is_refused() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await life.engine.put(run, Signal("CANCEL", "c", "enough", "me"))
            key = f"fork:{uuid.UUID(int=1, version=4)}:key"
            await book.add_crashes([(mark_of(world, {"fork": key}), work_of(Forked()))] * 2, 1, 0)
            await known_to(life)
            with pytest.raises(Poisoned, match="died 2 times in a row while it copied the events of another run"):
                await life.api.fork(str(run), ForkRequest(at=5, idempotency_key="key"))
            await life.api.fork(str(run), ForkRequest(at=5, idempotency_key="another"))

    run_virtually(story())


def test_events_and_snapshots_are_encoded_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            marks = Slots()
            life = await serving(world, Book(), marks)
            seen: list[set[tuple[int, int]]] = []

            def watch(encode: Callable[..., Any]) -> Callable[..., Any]:
                def watched_encode(*given: Any) -> Any:
                    seen.append(marks.begun)
                    return encode(*given)

                return watched_encode

            monkeypatch.setattr(rows.Codec, "_derived", watch(rows.Codec._derived))
            run = await world.start()
            given = Signal("PAUSE", "p", "", "me")
            await life.engine.put(run, given)
            live = await life.engine.live.get(run)
            monkeypatch.setattr(life.engine.snapshots, "taken", watch(life.engine.snapshots.taken))
            life.engine.keep_snapshot(live)
            assert seen == [{(mark_of(world, {}), STARTING)}, {(run, work_of(given))}, {(run, SNAPSHOT)}]
            assert marks.slots == {}
            await life.engine.close()

    run_virtually(story())


def test_a_run_whose_snapshots_killed_two_processes_is_in_quarantine() -> None:
    async def story() -> None:
        async with World(WAITING) as world:
            book = Book()
            life = await serving(world, book)
            run = await world.start()
            await book.add_crashes([(run, SNAPSHOT)], 1, 0)
            await known_to(life)
            life.engine.keep_snapshot(await life.engine.live.get(run))
            assert (run, SNAPSHOT) not in life.engine._quarantine._crashes  # type: ignore[union-attr]  # it is kept
            await life.engine.close()
            await book.add_crashes([(run, SNAPSHOT)] * 2, 1, 0)
            other = await serving(world, book)
            answer = await other.engine.put(run, Signal("RETRY_STEP", "r", "", "me"))
            assert answer.refused is not None
            assert "died 2 times in a row while it encoded a snapshot of its state" in answer.refused.message

    run_virtually(story())
