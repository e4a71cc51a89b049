"""Retention on SQLite: in short pieces, as a whole, and the file shrinks; also when the process dies or the disk is full."""

from __future__ import annotations

import asyncio
import random
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import StoreUnavailable
from arclog.ports.storage.task_logs import LogLine
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.checks import checks
from arclog.stores.sqlite.connection import connect
from arclog.stores.sqlite.executions import Pace
from arclog.wiring.clocks import SystemClock
from tests.unit.stores.filling import FIRST, STEP, copies, minted_us, whole_run
from tests.unit.stores.support import child

LATE = minted_us(FIRST + (1 << 50))
TABLES = [
    "log",
    "mark",
    "step_runs",
    "ingested",
    "snapshots",
    "task_logs",
    "task_log_sizes",
    "outbox",
    "results",
    "executions",
    "retiring",
]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path / "a.db", clock=SystemClock(), settings=Settings({"store.busy_timeout_s": 5.0}))
    await store.open()
    await whole_run(store)
    yield store
    await store.close()


def fill(store: SqliteStore, count: int) -> list[int]:
    return copies(store._writer._connection, count)


def rows(store: SqliteStore) -> dict[str, int]:
    execute = store._writer._connection.execute
    return {table: execute(f"SELECT count(*) FROM {table}").get for table in TABLES}


async def retire_all(store: SqliteStore, before: int = LATE) -> int:
    total = 0
    while count := await store.retire(before):
        total += count
    return total


async def reclaim_all(store: SqliteStore) -> int:
    total = 0
    while size := await store.reclaim():
        total += size
    return total


def noted_pieces(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each piece of upkeep changes."""
    connection, changes = store._writer._connection, list[int]()
    plain = store._writer._carry_out_unsynced

    def noted(group: Any) -> Any:
        before = connection.total_changes()
        answers = plain(group)
        changes.append(connection.total_changes() - before)
        return answers

    monkeypatch.setattr(store._writer, "_carry_out_unsynced", noted)
    return changes


async def test_what_goes_leaves_nothing_and_what_stays_is_whole(store: SqliteStore) -> None:
    ids = [FIRST, *fill(store, 60)]
    for event_id in ids:
        await store.append_logs([LogLine(event_id, 1, "a", 1, "t", 1, 1, "stdout", "hello")])
        await store.put_snapshot(event_id, 2, "v", b"state")
    before = minted_us(ids[30])
    assert await store.retire(before, dry_run=True) == 30
    assert await retire_all(store, before) == 30
    left = rows(store)
    assert left["executions"] == 31
    assert left["retiring"] == 0
    for table in TABLES:
        remaining = store._writer._connection.execute(f"SELECT DISTINCT execution_id FROM {table}").fetchall()
        assert {execution_id for (execution_id,) in remaining} <= set(ids[30:]), table
    assert left["log"] == 31 * 7
    assert left["mark"] == 31 * 3
    for event_id in ids[30:]:
        assert [event.seq for event in await store.events(event_id)] == list(range(1, 37))


async def test_a_piece_is_as_large_as_it_may_be_and_no_larger(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "note", lambda *_: None)
    fill(store, 300)
    pieces = noted_pieces(store, monkeypatch)
    assert await retire_all(store) == 300
    weight, of_each_run = 200, 7 + 3 + 5 + 1 + 2
    assert max(pieces) <= weight * of_each_run / 11
    assert len(pieces) < 40


def test_the_size_of_pieces_follows_their_time() -> None:
    pace = Pace(100)
    pace.note(100, 1.0)
    assert pace.size == 50
    for _ in range(20):
        pace.note(pace.size, pace.size * 0.0001)
    assert 25 <= pace.size <= 35


async def test_a_large_run_goes_in_pieces_its_record_first(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "note", lambda *_: None)
    large = FIRST + STEP
    await whole_run(store, large, steps=400)
    await whole_run(store, large + STEP, steps=1)
    await store.append_logs([LogLine(large, 1, "a", 1, "t", 1, 1, "stdout", f"line {n}") for n in range(1000)])
    pieces = noted_pieces(store, monkeypatch)
    seen = []
    plain = store._writer.keep_up

    def keep_up(work: Callable[..., Any]) -> Any:
        seen.append(
            (
                store._writer._connection.execute(
                    "SELECT count(*) FROM executions WHERE execution_id = ?", (large,)
                ).get,
                store._writer._connection.execute("SELECT count(*) FROM log WHERE execution_id = ?", (large,)).get,
            )
        )
        return plain(work)

    monkeypatch.setattr(store._writer, "keep_up", keep_up)
    assert await retire_all(store) == 2
    halves = [log for record, log in seen if 0 < log < 402]
    assert len(halves) > 3
    assert all(not record for record, log in seen if log < 402)
    assert max(pieces) <= 450
    assert {name: count for name, count in rows(store).items() if count} == {
        "executions": 1, "log": 3, "mark": 3, "step_runs": 1,
    }  # fmt: skip


async def test_runs_that_must_stay_are_looked_at_once_in_a_pass(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = fill(store, 40)
    execute = store._writer._connection.execute
    execute("UPDATE executions SET over = 0 WHERE execution_id <= ?", (ids[19],))
    afters = []
    plain = store._lists.do

    def do(work: Callable[..., Any]) -> Any:
        def noted(run: Callable[..., Any]) -> Any:
            def each(text: str, given: tuple[Any, ...] = ()) -> Any:
                if "ORDER BY execution_id LIMIT ?4" in text:
                    afters.append(given[0])
                return run(text, given)

            return work(each)

        return plain(noted)

    monkeypatch.setattr(store._lists, "do", do)
    monkeypatch.setattr("arclog.stores.sqlite.executions._PAGE", 5)
    assert await retire_all(store) == 19, "the newest has the newest position"
    assert afters == sorted(set(afters))
    execute("UPDATE executions SET over = 1")
    assert await retire_all(store) == 21, "the next pass begins anew"


async def test_what_was_begun_is_finished_by_the_next(store: SqliteStore) -> None:
    ids = fill(store, 5)
    execute = store._writer._connection.execute
    execute("INSERT INTO retiring SELECT ?", (ids[0],))
    execute("DELETE FROM executions WHERE execution_id = ?", (ids[0],))
    assert await retire_all(store, 0) == 1
    assert rows(store)["log"] == 5 * 7


async def test_what_got_a_result_after_it_was_found_stays(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(store, 3)
    plain = store._writer.keep_up

    def keep_up(work: Callable[..., Any]) -> Any:
        store._writer._connection.execute(
            "INSERT OR IGNORE INTO results VALUES (?, 'n', 'h', 1, 1, 't', 'default', 1, 1, NULL, 's', 1, 't', 1, NULL)",
            (FIRST,),
        )
        return plain(work)

    monkeypatch.setattr(store._writer, "keep_up", keep_up)
    assert await retire_all(store) == 2
    assert await store.execution(FIRST) is not None


async def test_upkeep_waits_for_a_process_that_writes(store: SqliteStore) -> None:
    fill(store, 3)
    other = apsw.Connection(store.path)
    other.execute("BEGIN IMMEDIATE")
    retiring = asyncio.ensure_future(store.retire(LATE))
    while not store._writer._upkeep_since:  # noqa: ASYNC110 - it is refused once, and tried again
        await asyncio.sleep(0.01)
    assert not retiring.done()
    other.execute("COMMIT")
    other.close()
    assert await retiring == 3


async def test_appends_go_between_the_pieces(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "note", lambda *_: None)
    fill(store, 200)
    retiring = asyncio.ensure_future(retire_all(store))
    live = FIRST + 1000 * STEP
    await whole_run(store, live, steps=1)
    others = 0
    while not retiring.done():
        await whole_run(store, live + others + 1, steps=1)
        others += 1
    assert await retiring >= 200
    assert others >= 2
    assert store._writer._connection.pragma("synchronous") == 2


# -- space -------------------------------------------------------------------------------------------------------------


def size_of(store: SqliteStore) -> int:
    return Path(store.path).stat().st_size


async def test_the_file_shrinks_to_what_it_needs(store: SqliteStore) -> None:
    ids = fill(store, 1500)
    await store._writer.checkpoint()
    full = size_of(store)
    assert await retire_all(store, minted_us(ids[999])) == 1000
    reclaimed = await reclaim_all(store)
    pages, free = (store._writer._connection.pragma(name) for name in ("page_count", "freelist_count"))
    assert size_of(store) == pages * 4096, "without closing it"
    assert reclaimed > full // 2
    assert pages <= 1.2 * (pages - free)
    assert store._writer._connection.execute("PRAGMA integrity_check").get == "ok"
    assert await reclaim_all(store) == 0


async def test_little_free_space_is_kept_for_what_comes(store: SqliteStore) -> None:
    fill(store, 30)
    await retire_all(store)
    assert await store.reclaim() == 0


async def old_file(path: Path, runs: int) -> int:
    """As releases before made it; its size."""
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    await whole_run(store)
    await store.close()
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA auto_vacuum = NONE; VACUUM").fetchall()
    copies(connection, runs)
    connection.close()
    return size_of(store)


async def test_a_small_file_of_an_older_release_learns_to_shrink(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    await old_file(path, 5)
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    assert store._writer._connection.pragma("auto_vacuum") == 2
    assert len(await store.executions()) == 6
    await store.close()


async def test_a_large_one_does_when_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "old.db"
    full = await old_file(path, 300)
    monkeypatch.setattr(connect, "_REWRITTEN_BYTES", 100_000)
    monkeypatch.setattr("arclog.stores.sqlite.checks._LARGE_FREE", 100_000)
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    await retire_all(store)
    assert await store.reclaim() == 0
    (check, *_) = checks(str(path), 1, 0, 1)
    assert "arclog gc --compact" in check.remedy
    with pytest.raises(StoreUnavailable, match="is in use; stop servers"):
        connect.rewrite(str(path), 0.1)
    assert len(await store.executions()) == 1
    await store.close()
    connect.rewrite(str(path), 1)
    assert path.stat().st_size < full / 2
    (check, *_) = checks(str(path), 1, 0, 1)
    assert check.status == "ok"
    await store.open()
    assert store._writer._connection.pragma("auto_vacuum") == 2
    assert store._writer._connection.pragma("journal_mode") == "wal"
    await store.close()


async def test_a_file_that_is_busy_is_rewritten_another_time(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    await old_file(path, 5)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    connection = connect._open(str(path), apsw.SQLITE_OPEN_READWRITE, 5)
    connect._make_shrinkable(connection)
    assert connection.pragma("auto_vacuum") == 0
    connection.close()
    other.execute("ROLLBACK")
    other.close()


# -- faults ------------------------------------------------------------------------------------------------------------

COLLECTOR = """
import asyncio, sys
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection import connect
from arclog.wiring.clocks import SystemClock
async def main():
    store = SqliteStore(sys.argv[1], clock=SystemClock())
    await store.open()
    while count := await store.retire(int(sys.argv[2])):
        print("retired", count, flush=True)
    while size := await store.reclaim():
        print("reclaimed", size, flush=True)
    print("done", flush=True)
    await store.close()
asyncio.run(main())
"""


async def test_killed_at_any_moment_the_next_does_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    await whole_run(store, steps=300)  # a large one among them
    fill(store, 10)
    small = FIRST + 100 * STEP
    await whole_run(store, small)
    copies(store._writer._connection, 800, small)
    await store.close()
    seed = random.randrange(1 << 32)
    print("seed", seed)
    moments = random.Random(seed)
    for _ in range(8):
        collector = child(COLLECTOR, path, LATE)
        assert collector.stdout is not None
        for _ in range(moments.randrange(1, 12)):
            collector.stdout.readline()
        collector.kill()
        collector.communicate()
        store = SqliteStore(path, clock=SystemClock())
        await store.open()
        execute = store._writer._connection.execute
        assert execute("PRAGMA integrity_check").get == "ok"
        halves = "SELECT count(*) FROM executions e WHERE head <> (SELECT max(seq1) FROM log WHERE execution_id = e.execution_id)"
        assert execute(halves).get == 0, "whoever finds a run finds all of it"
        await store.close()
    await asyncio.to_thread(child(COLLECTOR, path, LATE).communicate)
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    assert {name: count for name, count in rows(store).items() if count} == {
        "executions": 1, "log": 7, "mark": 3, "step_runs": 5,
    }  # fmt: skip
    assert size_of(store) < 1_000_000
    await store.close()


@pytest.mark.parametrize("pieces", [1, 2, 5])
async def test_killed_while_space_is_given_back_the_store_is_whole_and_shrinks_further(
    tmp_path: Path, pieces: int
) -> None:
    path = tmp_path / "a.db"
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    await whole_run(store)
    fill(store, 2000)
    await retire_all(store)
    before, kept = store._writer._connection.pragma("page_count"), rows(store)
    await store.close()
    collector = child(COLLECTOR, path, LATE)
    assert collector.stdout is not None
    for _ in range(pieces):
        line = collector.stdout.readline()
        assert line.startswith("reclaimed"), line
    collector.kill()
    rest, _ = collector.communicate()
    assert "done" not in rest, "it was killed before the end"
    store = SqliteStore(path, clock=SystemClock())
    await store.open()
    execute = store._writer._connection.execute
    assert execute("PRAGMA integrity_check").get == "ok"
    assert rows(store) == kept
    killed = execute("PRAGMA page_count").get
    assert 0 < killed < before
    assert await reclaim_all(store) > 0
    assert execute("PRAGMA page_count").get < killed
    assert execute("PRAGMA integrity_check").get == "ok"
    assert rows(store) == kept
    assert size_of(store) < 1_000_000
    await store.close()


REWRITER = """
import sys
from arclog.stores.sqlite import SqliteStore
from arclog.stores.sqlite.connection.connect import rewrite
print("begins", flush=True)
rewrite(sys.argv[1], 5)
"""


async def test_killed_while_it_is_rewritten_the_file_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    await old_file(path, 3000)
    for _ in range(3):
        rewriter = child(REWRITER, path)
        assert rewriter.stdout is not None
        rewriter.stdout.readline()
        while rewriter.poll() is None and not path.with_name("old.db-journal").exists():
            pass
        rewriter.kill()
        rewriter.communicate()
        store = SqliteStore(path, clock=SystemClock())
        await store.open()
        assert store._writer._connection.execute("PRAGMA integrity_check").get == "ok"
        assert rows(store)["executions"] == 3001
        await store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


async def until_it_refuses(call: Callable[[], Any]) -> tuple[int, StoreUnavailable | None]:
    total = 0
    try:
        while done := await call():
            total += done
    except StoreUnavailable as problem:
        return total, problem
    return total, None


async def test_a_full_disk_stops_collecting_and_nothing_else(small_disk: Path) -> None:
    store = SqliteStore(small_disk / "a.db", clock=SystemClock())
    await store.open()
    try:
        await _fill_and_collect(store, small_disk)
    finally:
        await store.close()


async def _fill_and_collect(store: SqliteStore, small_disk: Path) -> None:
    await whole_run(store)
    fill(store, 1500)
    await store._writer.checkpoint()
    ballast = small_disk / "ballast"
    for label, call in (("retire", lambda: store.retire(LATE)), ("reclaim", store.reclaim)):
        store._writer._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        try:
            with ballast.open("wb") as file:
                while True:
                    file.write(bytes(4096))
        except OSError:
            pass
        _, problem = await until_it_refuses(call)
        assert problem is not None, label
        assert "disk full" in str(problem)
        assert store._writer._connection.execute("PRAGMA integrity_check").get == "ok"
        ballast.unlink()
        total, problem = await until_it_refuses(call)
        assert problem is None
        assert total > 0
    assert rows(store)["executions"] == 1
    later = FIRST + (1 << 51)
    await whole_run(store, later)
    assert (await store.execution(later)) is not None
