"""A store that lost its write-ahead log is not taken for a whole one."""

import stat

import apsw
import pytest

from arclog.model.errors import StoreUnavailable
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection.writer import Writer
from arclog.wiring.clocks import SystemClock
from tests.unit.stores.support import change, child, creation

#: writes to a store and is killed, without a close
KILLED = """
import asyncio, os, signal, sys
from support import change, creation
from arclog.stores.sqlite import SqliteStore
from arclog.wiring.clocks import SystemClock

async def main():
    store = SqliteStore(sys.argv[1], clock=SystemClock())
    await store.open()
    await store.append(creation(int(sys.argv[2])))
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def opened(path) -> SqliteStore:
    return SqliteStore(path, clock=SystemClock())


async def used(path, *appends) -> None:
    store = opened(path)
    await store.open()
    for append in appends:
        await store.append(append)
    await store.close()


def kill_a_writer(path, execution_id: int) -> None:
    with child(KILLED, path, execution_id) as process:
        assert process.wait() != 0


async def test_commits_of_a_removed_write_ahead_log_are_missed(tmp_path):
    path = tmp_path / "a.db"
    await used(path, creation(1))
    kill_a_writer(path, 2)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    (tmp_path / "a.db-wal").unlink()
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as refusal:
            await opened(path).open()
        assert "lacks commits that were answered" in str(refusal.value)
        assert f"remove {path}-mark" in str(refusal.value)
    # The log comes back: nothing is lost.
    for name, body in whole.items():
        (tmp_path / name).write_bytes(body)
    store = opened(path)
    await store.open()
    assert await store.execution(2) is not None
    await store.close()


async def test_whoever_removes_the_mark_goes_on_without_what_is_lost(tmp_path):
    path = tmp_path / "a.db"
    await used(path, creation(1))
    kill_a_writer(path, 2)
    (tmp_path / "a.db-wal").unlink()
    (tmp_path / "a.db-mark").unlink()
    store = opened(path)
    await store.open()
    assert await store.execution(1) is not None
    assert await store.execution(2) is None
    await store.close()


async def test_a_log_that_is_lost_after_a_checkpoint_is_missed(tmp_path, monkeypatch):
    monkeypatch.setattr(Writer, "CHECKPOINT_PAGES", 1)  # with every commit
    path = tmp_path / "a.db"
    store = opened(path)
    await store.open()
    await store.append(creation(1))
    for seq in range(1, 5):
        await store.append(change(1, seq))
    monkeypatch.undo()
    store._writer._checkpoint_at = 1_000_000
    await store._writer.checkpoint()  # one that is under way ends before the commit that is lost
    await store.append(change(1, 5))
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("a.db", "a.db-mark"):  # as a careless backup has it
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    await store.close()
    with pytest.raises(StoreUnavailable, match="lacks commits"):
        await opened(copy / "a.db").open()


async def test_a_killed_process_and_a_closed_store_are_no_loss(tmp_path):
    path = tmp_path / "a.db"
    kill_a_writer(path, 1)
    kill_a_writer(path, 2)
    await used(path, creation(3))
    assert [path.name for path in tmp_path.iterdir()] == ["a.db"]
    await used(path, creation(4))


async def test_nobody_writes_for_reading(tmp_path):
    path = tmp_path / "a.db"
    await used(path, creation(1))
    before = path.read_bytes()
    store = opened(path)
    await store.open()
    assert await store.execution(1) is not None
    await store.close()
    assert path.read_bytes() == before


async def test_a_store_begun_anew_has_no_mark_of_the_old_one(tmp_path):
    path = tmp_path / "a.db"
    for execution_id in (1, 2, 3):
        kill_a_writer(path, execution_id)
    path.unlink()
    await used(path, creation(4))


async def test_others_cannot_read_a_new_store(tmp_path):
    path = tmp_path / "a.db"
    store = opened(path)
    await store.open()
    await store.append(creation(1))
    rights = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    await store.close()
    assert rights == dict.fromkeys(("a.db", "a.db-wal", "a.db-shm", "a.db-mark"), 0o600)


async def test_the_counters_of_sqlite_are_there_in_every_store(tmp_path):
    path = tmp_path / "a.db"
    await used(path, creation(1))
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'arclog_generation'").get == 1
    connection.close()
