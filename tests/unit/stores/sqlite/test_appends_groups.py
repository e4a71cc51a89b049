"""Groups of appends on SQLite: one piece of work for the writer's thread, between which other writes pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.store import Appended
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection.writer import Tx
from arclog.testing.conformance.store.base import World, event
from arclog.testing.virtual import FakeClock


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    clock = FakeClock()
    store = SqliteStore(tmp_path / "a.db", clock=clock)
    await store.open()
    yield World(store, clock)
    await store.close()


def writer_of(world: World) -> Any:
    assert isinstance(world.store, SqliteStore)
    return world.store._writer


async def runs(world: World, count: int) -> list[int]:
    return [await world.create(event("playbook.started")) for _ in range(count)]


async def test_a_group_is_one_piece_of_work_aside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[bool] = []
    writer = writer_of(world)
    do = writer.do

    def counted(work: Callable[[Tx], Any], *, aside: bool = False) -> asyncio.Future[Any]:
        pieces.append(aside)
        future: asyncio.Future[Any] = do(work, aside=aside)
        return future

    created = await runs(world, 20)
    monkeypatch.setattr(writer, "do", counted)
    answers = await world.store.append_all([world.change(run, 1, event("task.started", "a", 1)) for run in created])
    assert all(isinstance(answer, Appended) for answer in answers)
    assert pieces == [True]
    await world.store.append_all([world.change(run, 2, event("task.done", "a", 1)) for run in created[:2]])
    assert pieces == [True, False, False]  # so few are written like any other


async def test_other_writes_pass_between_two_groups(world: World) -> None:
    order: list[str] = []
    writer = writer_of(world)
    pieces = [
        *(writer.do(lambda _, name=f"group {number}": order.append(name), aside=True) for number in range(3)),
        *(writer.do(lambda _, name=f"write {number}": order.append(name)) for number in range(2)),
    ]
    pieces[0].add_done_callback(lambda _: writer.do(lambda _: order.append("write 2")))
    await asyncio.gather(*pieces)
    assert order.index("write 0") < order.index("group 1")
    assert order.index("write 2") < order.index("group 2")


async def test_what_was_handed_in_is_written_before_the_store_closes(tmp_path: Path) -> None:
    clock = FakeClock()
    world = World(store := SqliteStore(tmp_path / "b.db", clock=clock), clock)
    await store.open()
    created = await runs(world, 30)
    changes = [world.change(run, 1, event("task.started", "a", 1)) for run in created]
    groups = [asyncio.ensure_future(store.append_all(part)) for part in (changes[:10], changes[10:20], changes[20:])]
    await asyncio.sleep(0)
    await store.close()
    answers = [answer for group in await asyncio.gather(*groups) for answer in group]
    assert [type(answer) for answer in answers] == [Appended] * 30


async def test_a_store_that_cannot_be_written_answers_each_of_a_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await runs(world, 12)
    writer = writer_of(world)

    def full(tx: Tx, *_: object) -> None:
        raise apsw.FullError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("arclog.stores.sqlite.log.write_group", full)
        answers = await world.store.append_all([world.change(run, 1, event("task.started")) for run in created])
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)
    assert len({id(answer) for answer in answers}) == 12
    assert [await world.head(run) for run in created] == [1] * 12
    assert writer._damage is None
    again = await world.store.append_all([world.change(run, 1, event("task.started")) for run in created])
    assert all(isinstance(answer, Appended) for answer in again)
