"""What the SQLite store does when the disk is full, fails, or the process dies: nothing that was answered is lost."""

import asyncio
import os
import random
import subprocess
import threading
from contextlib import suppress

import apsw
import pytest

from arclog.model.errors import Conflict, StoreUnavailable
from arclog.model.events import Event
from arclog.ports.storage.store import Appended, ExecutionState
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection import connect
from arclog.stores.sqlite.connection.writer import Writer
from arclog.wiring.clocks import SystemClock
from tests.unit.stores.support import change, child, creation

BIG = Event("task.done", 1, payload={"x": os.urandom(30_000).hex()})


@pytest.fixture(params=["loop", "commit on the thread", "thread"])
def way(request, monkeypatch):
    monkeypatch.setattr(Writer, "INLINE_MAX_S", 60.0 if request.param == "loop" else 0.0)
    monkeypatch.setattr(Writer, "STATEMENTS_MAX_S", 0.0 if request.param == "thread" else 60.0)


@pytest.fixture
async def store(tmp_path, way):
    store = SqliteStore(tmp_path / "a.db", clock=SystemClock())
    await store.open()
    yield store
    await store.close()


async def test_a_full_disk_writes_nothing_and_is_not_the_end(store):
    await store.append(creation(1))
    await store.append(creation(2))
    connection = store._writer._connection
    connection.execute("PRAGMA max_page_count = 1").fetchall()  # SQLite clamps it to what the file has
    results = await asyncio.gather(
        store.append(change(1, 1, BIG)), store.append(change(1, 2)), store.append(change(2, 1)), return_exceptions=True
    )
    assert isinstance(results[0], StoreUnavailable)
    assert "disk full" in str(results[0])
    assert "arclog resume" in str(results[0])
    assert type(results[1]) is Conflict  # built on what failed
    assert isinstance(results[2], Appended)  # small enough for what is left
    assert [event.seq for event in await store.events(1)] == [1]
    connection.execute("PRAGMA max_page_count = 1073741823").fetchall()
    assert (await store.append(change(1, 1, BIG))).last_seq == 2


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


async def test_a_really_full_disk(small_disk, way):
    store = SqliteStore(small_disk / "a.db", clock=SystemClock())
    await store.open()
    head = (await store.append(creation(1))).last_seq
    refused = None
    while refused is None:
        try:
            head = (await store.append(change(1, head, BIG))).last_seq
        except StoreUnavailable as error:
            refused = error
    assert "disk full" in str(refused)
    assert [event.seq for event in await store.events(1)] == list(range(1, head + 1))
    with pytest.raises(StoreUnavailable, match="disk full"):
        await store.append(change(1, head, BIG))
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert (await store.append(change(1, head, BIG))).last_seq == head + 1
    await store.close()


class FailingFile(apsw.VFSFile):
    fail_sync = False

    def xSync(self, flags):  # noqa: N802 - apsw's name
        if FailingFile.fail_sync:
            raise apsw.IOError("the disk is gone")
        super().xSync(flags)


class FailingVfs(apsw.VFS):
    def __init__(self):
        super().__init__("failing", "")

    def xOpen(self, name, flags):  # noqa: N802 - apsw's name
        return FailingFile("", name, flags)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_after_a_failed_sync_nothing_more_is_written(tmp_path, way, monkeypatch):
    vfs = FailingVfs()
    real = apsw.Connection
    monkeypatch.setattr(apsw, "Connection", lambda path, flags: real(path, flags=flags, vfs="failing"))
    store = SqliteStore(tmp_path / "a.db", clock=SystemClock())
    await store.open()
    await store.append(creation(1))
    monkeypatch.setattr(FailingFile, "fail_sync", True)
    with pytest.raises(StoreUnavailable, match="the disk failed under"):
        await store.append(change(1, 1))
    monkeypatch.setattr(FailingFile, "fail_sync", False)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="the disk failed under"):  # the handle is never tried again
            await store.append(change(1, 1))
    assert [event.seq for event in await store.events(1)] == [1]
    await store.close()
    vfs.unregister()


async def test_a_damaged_file_is_refused_and_not_written(tmp_path, way):
    path = tmp_path / "a.db"
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    await store.append(creation(1))
    for head in range(1, 40):
        await store.append(change(1, head, BIG))
    roots = [
        store._writer._connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).get
        for name in ("executions", "log_by_seq")
    ]
    await store.close()
    content = bytearray(path.read_bytes())
    for page in roots:
        content[(page - 1) * 4096 : page * 4096] = random.Random(1).randbytes(4096)
    path.write_bytes(content)
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.append(change(1, 40))
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.append(creation(7))
    with pytest.raises(StoreUnavailable, match="damaged"):
        await store.events(1)
    await store.close()
    assert path.read_bytes() == content


@pytest.mark.parametrize("body", [b"[{]", b"[1]", b"\x28\xb5\x2f\xfdnonsense", b"nonsense", b' [{"t": 1}]', b""])
async def test_a_row_that_cannot_be_read_is_named(store, body):
    await store.append(creation(1))
    await store.append(change(1, 1))
    store._writer._connection.execute("UPDATE log SET body = ? WHERE seq0 = 2", (body,))
    with pytest.raises(StoreUnavailable, match="execution 1 is damaged at seq 2"):
        await store.events(1)
    with pytest.raises(StoreUnavailable, match="execution 1 is damaged at seq 2"):
        await store.tail()
    assert [event.seq for event in await store.events(1, limit=1)] == [1]


async def test_the_write_ahead_log_does_not_grow_without_end(store, monkeypatch, tmp_path):
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 100)
    monkeypatch.setattr(Writer, "HOLD_PAGES", 250)
    store._writer._checkpoint_at = 100
    await store.append(creation(1))
    await append_many(store, 400)
    assert (tmp_path / "a.db-wal").stat().st_size < 300 * 4200


async def append_many(store, count):
    for head in range(1, count):
        await store.append(change(1, head, Event("task.done", 1, payload={"x": "y" * 900})))


async def held_writes(store):
    """Start many writes, and wait until a checkpoint holds them."""
    writing = asyncio.create_task(append_many(store, 400))
    while not store._writer._is_held:
        await turns(1)
    return writing


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_writes_wait_for_a_checkpoint_that_falls_behind(store, monkeypatch, tmp_path):
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(Writer, "HOLD_PAGES", 100)
    writer, gate = store._writer, threading.Event()
    writer._checkpoint_at = 50
    blocked = writer._copier.lend(lambda _connection: gate.wait())
    try:
        await store.append(creation(1))
        writing = await held_writes(store)
        await turns(1000)
        assert not writing.done()
        assert writer._wal_pages < 150
    finally:
        gate.set()
    await writing
    await blocked
    assert (tmp_path / "a.db-wal").stat().st_size < 150 * 4200
    assert len(await store.events(1)) == 400


async def test_a_store_closes_while_writes_wait_for_a_checkpoint(store, monkeypatch):
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 50)
    monkeypatch.setattr(Writer, "HOLD_PAGES", 100)
    writer, gate = store._writer, threading.Event()
    writer._checkpoint_at = 50
    writer._copier.lend(lambda _connection: gate.wait())
    await store.append(creation(1))
    writing = await held_writes(store)
    closing = asyncio.create_task(store.close())
    with pytest.raises(StoreUnavailable):
        await writing
    gate.set()
    await closing


async def test_a_long_read_does_not_stop_writing_nor_checkpoints_for_ever(store, monkeypatch, tmp_path):
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 50)
    store._writer._checkpoint_at = 50
    await store.append(creation(1))
    reader = apsw.Connection(str(tmp_path / "a.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM log").fetchall()
    for head in range(1, 200):
        await store.append(change(1, head))
    reader.execute("COMMIT")
    reader.close()
    for head in range(200, 400):
        await store.append(change(1, head))
    assert (tmp_path / "a.db-wal").stat().st_size < 2000 * 4200
    assert len(await store.events(1)) == 400


async def test_an_error_message_with_odd_characters_stops_nothing(store):
    await store.append(creation(1))
    now = ExecutionState("FAILED", error="caf\udce9")
    await store.append(change(1, 1))
    append = change(1, 2)
    await store.append(type(append)(1, 2, append.events, 5, now))
    record = await store.execution(1)
    assert record.now.error == "caf?"


WRITER = """
import asyncio, sys
from arclog.model.errors import Conflict
from arclog.model.events import Event
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection import connect
from arclog.wiring.clocks import SystemClock
from support import change, creation
path, mine, shared, count = sys.argv[1], *map(int, sys.argv[2:])
async def main():
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    await store.append(creation(mine))
    conflicts = 0
    for n in range(count):
        await store.append(change(mine, 1 + n))
        while True:
            head = (await store.execution(shared)).head
            try:
                await store.append(change(shared, head, Event("task.started", mine)))
                break
            except Conflict:
                conflicts += 1
    print(conflicts)
    await store.close()
asyncio.run(main())
"""


async def test_processes_share_one_file(tmp_path):
    path = tmp_path / "a.db"
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    await store.append(creation(9))
    children = [child(WRITER, path, mine, 9, 60) for mine in (1, 2, 3)]
    outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, timeout=100) for child in children))
    assert [child.returncode for child in children] == [0, 0, 0], outputs
    shared = await store.events(9)
    assert [each.seq for each in shared] == list(range(1, 182))
    assert sorted(entry.event.at for entry in shared[1:]) == [1] * 60 + [2] * 60 + [3] * 60
    for mine in (1, 2, 3):
        assert [event.seq for event in await store.events(mine)] == list(range(1, 62))
    positions = [batch.position for batch in await store.tail(limit=1000)]
    assert positions == list(range(1, len(positions) + 1))
    await store.close()


OPENER = """
import asyncio, sys
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection import connect
from arclog.wiring.clocks import SystemClock
from support import creation
async def main():
    store = SqliteStore(sys.argv[1], clock=SystemClock())
    await store.open()
    await store.append(creation(int(sys.argv[2])))
    await store.close()
asyncio.run(main())
"""


async def test_processes_create_one_file_at_the_same_time(tmp_path):
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        children = [child(OPENER, path, n) for n in range(1, 5)]
        for each in children:
            assert await asyncio.to_thread(each.wait, 60) == 0
            assert each.stdout is not None
            each.stdout.close()
        store = SqliteStore(path, clock=SystemClock())
        await store.open()
        assert len(await store.executions()) == 4
        await store.close()


def test_a_store_that_is_being_created_is_not_taken_for_another_programs(tmp_path):
    path = str(tmp_path / "new.db")

    class Interrupted(apsw.Connection):
        """Between two looks at the file, another process tries to create the store."""

        def pragma(self, name, *value, **more):
            pragma_value = super().pragma(name, *value, **more)
            if name == "application_id":
                with suppress(StoreUnavailable):
                    connect.open_writer(path, 0.01).close()
            return pragma_value

    connection = Interrupted(path)
    assert connect._version(connection, path) in (0, connect.SCHEMA)
    connection.close()


KILLED = """
import asyncio, sys
from arclog.model.events import Event
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection import connect
from arclog.wiring.clocks import SystemClock
from support import change, creation
async def write(store, execution_id):
    record = await store.execution(execution_id)
    head = record.head if record else (await store.append(creation(execution_id))).last_seq
    while True:
        appended = await store.append(change(execution_id, head, *[Event("task.started", 1)] * (1 + head % 5)))
        head = appended.last_seq
        print(execution_id, head, flush=True)
async def main():
    store = SqliteStore(sys.argv[1], clock=SystemClock())
    await store.open()
    await asyncio.gather(*(write(store, n) for n in (1, 2, 3)))
asyncio.run(main())
"""


async def test_kill_loses_nothing_that_was_answered(tmp_path):
    path = tmp_path / "a.db"
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    answered = {1: 0, 2: 0, 3: 0}
    for _ in range(6):
        writer = child(KILLED, path)
        assert writer.stdout is not None
        lines = moments.randrange(1, 400)
        for _ in range(lines):
            _note(answered, writer.stdout.readline())
        writer.kill()
        rest, _ = writer.communicate()
        for line in rest.splitlines():
            _note(answered, line)
        store = SqliteStore(path, clock=SystemClock())
        await store.open()
        for execution_id, last in answered.items():
            events = await store.events(execution_id, limit=1_000_000)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert len(events) >= last
            record = await store.execution(execution_id)
            assert record is None or record.head == len(events)
        await store.close()
    assert min(answered.values()) > 0


def _note(answered: dict[int, int], line: str) -> None:
    words = line.split()
    if len(words) == 2:
        answered[int(words[0])] = max(answered[int(words[0])], int(words[1]))


async def test_slow_commits_go_to_the_thread_and_fast_ones_come_back(tmp_path, monkeypatch):
    store = SqliteStore(tmp_path / "a.db", clock=SystemClock())
    await store.open()
    await store.append(creation(1))
    writer = store._writer
    by_thread = []
    patiently = writer._patiently

    def noted(group, **more):
        by_thread.append(len(group))
        return patiently(group, **more)

    monkeypatch.setattr(writer, "_patiently", noted)
    monkeypatch.setattr(writer, "INLINE_MAX_S", 0.5)
    writer._pace = 1.0
    head = 1
    while writer._pace >= writer.INLINE_MAX_S:
        head = (await store.append(change(1, head))).last_seq
    assert len(by_thread) == head - 1 > 3
    await store.append(change(1, head))
    assert len(by_thread) == head - 1
    await store.close()
