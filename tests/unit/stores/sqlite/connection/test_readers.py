"""Reads of a SQLite store beside each other, and the write-ahead log beside them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from arclog.model.events import Event
from arclog.ports.storage.store import NewCommand
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection.readers import Readers
from arclog.stores.sqlite.connection.writer import Writer
from arclog.wiring.clocks import SystemClock
from tests.unit.stores.support import change, creation

READERS = 2


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "a.db", clock=SystemClock())
    await store.open()
    await store.append(creation(1))
    yield store
    await store.close()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@contextmanager
def occupied(readers: Readers, count: int) -> Iterator[list[asyncio.Future[bool]]]:
    """So many reads that do not end before the block does."""
    end = threading.Event()
    reads = [readers.do(lambda _: end.wait(60)) for _ in range(count)]
    try:
        yield reads
    finally:
        end.set()


async def test_lists_delay_no_other_read(store: SqliteStore) -> None:
    with occupied(store._lists, READERS) as lists:
        waiting = asyncio.ensure_future(store.executions())
        await store.append(change(1, 1, issue=[NewCommand(5, "s", 1, ("noop",))]))
        assert len(await store.events(1)) == 2
        assert len(await store.tail()) == 2
        assert len(await store.claim("w", limit=1, lease_until=9, kinds=["noop"])) == 1
        assert await store.snapshot(1, "code") is None
        assert not waiting.done()
    assert all(await asyncio.gather(*lists))
    assert len(await waiting) == 1


async def test_reads_run_beside_each_other(store: SqliteStore) -> None:
    with occupied(store._reader, READERS - 1):
        assert len(await store.events(1)) == 1
    with occupied(store._lists, READERS - 1):
        assert len(await store.executions()) == 1


async def test_one_read_at_a_time_needs_one_thread(store: SqliteStore) -> None:
    for _ in range(5):
        await store.events(1)
    assert sum(thread.name == "arclog-reader" for thread in threading.enumerate()) == 1
    assert not any(thread.name == "arclog-lists" for thread in threading.enumerate())


async def test_what_is_read_on_several_threads_is_unpacked_on_each(store: SqliteStore) -> None:
    await store.append(change(1, 1, *[Event("task.done", 1, payload={"x": "y" * 900})] * 20))
    for stored in await asyncio.gather(*(store.events(1) for _ in range(20))):
        assert [entry.seq for entry in stored] == list(range(1, 22))


async def test_closing_waits_for_reads_and_leaves_no_thread(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "b.db", clock=SystemClock())
    await store.open()
    await store.append(creation(1))
    reads = [store._lists.do(lambda execute: execute("SELECT 7").get) for _ in range(10)]
    await store.close()
    assert [await read for read in reads] == [7] * 10
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"arclog-reader", "arclog-lists", "arclog-writer", "arclog-checkpoint"}
    assert names_in(tmp_path) == ["b.db"]


async def test_writes_go_on_while_the_log_is_copied(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 20)
    store._writer._checkpoint_at = 20
    with occupied(store._writer._copier, 1):
        head = 1
        while store._writer._copying is None:
            head = (await store.append(change(1, head))).last_seq
        for _ in range(50):
            head = (await store.append(change(1, head))).last_seq
        copying = store._writer._copying
        assert not copying.done()
        before = store._writer._wal_pages
    await copying
    await store.append(change(1, head))
    assert store._writer._wal_pages < before, "the log begins anew"


async def test_readers_without_a_gap_do_not_let_the_log_grow(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some read is under way at any moment, and none of them for longer than two iterations of the event loop, which
    appends as well: on a busy machine both are slow.
    """
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(Writer, "HOLD_PAGES", 50)
    store._writer._checkpoint_at = 20

    async def read() -> None:
        older, newer = apsw.Connection(store.path), apsw.Connection(store.path)
        try:
            older.execute("BEGIN; SELECT count(*) FROM log").fetchall()
            while True:
                newer.execute("BEGIN; SELECT count(*) FROM log").fetchall()
                older.execute("COMMIT")
                older, newer = newer, older
                await asyncio.sleep(0)
        finally:
            older.close()
            newer.close()

    reading = asyncio.ensure_future(read())
    try:
        head, most = 1, 0
        for _ in range(300):
            head = (await store.append(change(1, head))).last_seq
            most = max(most, store._writer._wal_pages)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert most < 400, "of about 1,500 pages that were written"


async def test_a_log_that_had_to_grow_is_cut_back(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 50)
    store._writer._checkpoint_at = 50
    store._writer._connection.execute("PRAGMA journal_size_limit = 400000").fetchall()
    reader = apsw.Connection(store.path)
    reader.execute("BEGIN; SELECT count(*) FROM log").fetchall()
    head = 1
    for _ in range(400):
        head = (await store.append(change(1, head))).last_seq
    wal = tmp_path / "a.db-wal"
    assert wal.stat().st_size > 1_000_000
    reader.execute("COMMIT")
    reader.close()
    for _ in range(60):
        head = (await store.append(change(1, head))).last_seq
    assert wal.stat().st_size <= 400_000
