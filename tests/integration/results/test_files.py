"""Result files when the disk, a process or somebody else does something to them: the content, or a clear error."""

import asyncio
import fcntl
import hashlib
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultUnavailable, SettingsError
from arclog.results.blobs.files import FileBlobs
from arclog.results.parts import IndexWriter, folder_of, tenant_of
from arclog.results.store import BlobResults
from arclog.testing.conformance.results import TENANT, everything, listed, read, sha256_of, stored

ROOT = Path(__file__).parents[3]
NOISE = random.Random(3).randbytes(3_500_000)
ROWS: list[dict[str, Any]] = [{"id": number, "text": "x" * (number % 90)} for number in range(60_000)]


@pytest.fixture
async def results(tmp_path):
    made = BlobResults(FileBlobs(tmp_path / "results"))
    yield made
    await made.close()


def file_of(tmp_path: Path, sha256: str) -> Path:
    (file,) = (tmp_path / "results").glob(f"*/*/{sha256}.zst")
    return file


def files(tmp_path: Path) -> list[str]:
    root = tmp_path / "results"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and path.name != ".lock")


# -- the form -------------------------------------------------------------------------------------------------------------


async def test_any_zstd_gives_the_content_back(tmp_path, results):
    plain = (await stored(results, NOISE)).sha256
    rows = (await listed(results, ROWS)).sha256
    for sha256, body in ((plain, NOISE), (rows, await read(results, rows))):
        with file_of(tmp_path, sha256).open("rb") as file:
            reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
            assert reader.read() == body


async def test_nothing_is_made_before_something_is_stored(tmp_path, results):
    assert await results.find(TENANT, "0" * 64) is None
    assert not await results.remove(TENANT, "0" * 64)
    assert await everything(results) == []
    assert await results.leftovers(1 << 62) == 0
    await results.writer(TENANT).abandon()
    assert not (tmp_path / "results").exists()


async def test_files_are_for_their_owner_alone(tmp_path, results):
    sha256 = (await stored(results, NOISE)).sha256
    file = file_of(tmp_path, sha256)
    assert file == tmp_path / "results" / TENANT / sha256[:2] / f"{sha256}.zst"
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent, file.parent.parent)] == [0o600, 0o700, 0o700]


@pytest.mark.parametrize("tenant", ["", ".", "..", "a/b", "%41", "A", "é", "x" * 250, "\ud800", "\x00"])
def test_a_tenants_folder_leads_back_to_it_and_nowhere_else(tenant):
    folder = folder_of(tenant)
    assert tenant_of(folder) == tenant
    assert set(folder) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-%")


@pytest.mark.parametrize("folder", [".new", ".lock", "a.b", "%41", "%zz", "%C3", "a%"])
def test_other_folders_are_nobodys(folder):
    assert tenant_of(folder) is None


async def test_a_tenant_with_an_endless_name_is_refused(results):
    with pytest.raises(ResultUnavailable, match="too long"):
        await stored(results, b"x", "é" * 200)
    assert await results.leftovers(1 << 62) == 0


async def test_a_level_that_does_not_exist(tmp_path):
    with pytest.raises(SettingsError, match="ARCLOG_RESULTS_ZSTD_LEVEL"):
        BlobResults(FileBlobs(tmp_path), Settings({"results.zstd_level": 23})).writer(TENANT)


# -- damage -----------------------------------------------------------------------------------------------------------------


def spoil(file: Path, at: int, bit: int = 1) -> None:
    with file.open("r+b") as handle:
        handle.seek(at)
        byte = handle.read(1)[0]
        handle.seek(at)
        handle.write(bytes([byte ^ bit]))


async def test_any_flipped_bit_is_noticed(tmp_path, results):
    sha256 = (await listed(results, ROWS)).sha256
    file = file_of(tmp_path, sha256)
    size = file.stat().st_size
    chance = random.Random(11)
    places = [chance.randrange(size) for _ in range(40)] + list(range(size - 110, size))
    for at in places:
        bit = 1 << chance.randrange(8)
        spoil(file, at, bit)
        with pytest.raises(ResultUnavailable, match="damaged"):
            await read(results, sha256)
        got = None
        try:
            got = await results.items(TENANT, sha256, 0, len(ROWS))
        except ResultUnavailable:
            pass
        assert got is None, at
        spoil(file, at, bit)
    assert await results.items(TENANT, sha256, 0, len(ROWS)) == ROWS


async def test_only_the_damaged_part_of_a_list_is_lost(tmp_path, results):
    sha256 = (await listed(results, ROWS)).sha256
    file = file_of(tmp_path, sha256)
    spoil(file, 100)
    with pytest.raises(ResultUnavailable, match="damaged"):
        await results.items(TENANT, sha256, 0, 1)
    assert await results.items(TENANT, sha256, 59_000, 59_001) == ROWS[59_000:59_001]


async def test_no_other_byte_comes_before_the_damage_is_found(tmp_path, results):
    sha256 = (await stored(results, NOISE)).sha256
    spoil(file_of(tmp_path, sha256), 2_500_000)
    got: list[bytes] = []

    async def collect() -> None:
        async for chunk in results.chunks(TENANT, sha256):
            got.append(chunk)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(ResultUnavailable, match="damaged"):
        await collect()
    assert got
    assert NOISE.startswith(b"".join(got))


@pytest.mark.parametrize("keep", [0, 1, 50, 1_000_000, -1, -90, -200])
async def test_a_cut_file_is_noticed(tmp_path, results, keep):
    sha256 = (await stored(results, NOISE)).sha256
    file = file_of(tmp_path, sha256)
    os.truncate(file, keep if keep >= 0 else file.stat().st_size + keep)
    with pytest.raises(ResultUnavailable, match="damaged"):
        await read(results, sha256)


async def test_what_stands_under_anothers_name_is_noticed(tmp_path, results):
    first, other = (await stored(results, b"one")).sha256, (await stored(results, b"other")).sha256
    file_of(tmp_path, first).write_bytes(file_of(tmp_path, other).read_bytes())
    with pytest.raises(ResultUnavailable, match="another result under this name"):
        await read(results, first)


async def test_storing_the_content_again_heals_it(tmp_path, results):
    kinds: list[tuple[Any, Any]] = [(stored, NOISE), (listed, ROWS)]
    for store, body in kinds:
        sha256 = (await store(results, body)).sha256
        spoil(file_of(tmp_path, sha256), 50)
        await store(results, body)
        await read(results, sha256)
    spoil(file_of(tmp_path, sha256), 50)  # a list that plain bytes may not stand for
    lines = b"".join([b'{"id":%d,"text":"%s"}\n' % (row["id"], row["text"].encode()) for row in ROWS])
    assert (await stored(results, lines)).sha256 == sha256
    assert await read(results, sha256) == lines


async def test_a_frame_that_claims_to_be_huge_is_not_unpacked(tmp_path, results):
    """An index and a frame that agree with each other, made by hand: unpacking stops at what the index says."""
    bomb = zstandard.ZstdCompressor().compress(bytes(200_000_000))
    sha256 = sha256_of(b"small")
    index = IndexWriter()
    index.add(len(bomb), 5, 0, hashlib.sha256(bomb).digest())
    await stored(results, b"small")
    file_of(tmp_path, sha256).write_bytes(bomb + index.frame(bytes.fromhex(sha256), 5, None))
    with pytest.raises(ResultUnavailable, match="another size than in the index"):
        await read(results, sha256)


# -- links and odd things ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["file", "shelf", "tenant"])
async def test_links_are_not_followed(tmp_path, results, level):
    sha256 = (await stored(results, b"mine")).sha256
    file = file_of(tmp_path, sha256)
    place = {"file": file, "shelf": file.parent, "tenant": file.parent.parent}[level]
    outside = tmp_path / "outside"
    place.rename(outside)
    place.symlink_to(outside)
    with pytest.raises(ResultUnavailable):
        await read(results, sha256)
    assert await everything(results) == []
    if level == "file":
        assert await results.remove(TENANT, sha256)
        assert outside.exists()
        assert not place.is_symlink()
    else:
        with pytest.raises(ResultUnavailable):
            await results.remove(TENANT, sha256)
        with pytest.raises(ResultUnavailable, match="could not be stored"):
            await stored(results, b"mine")
    assert await results.leftovers(1 << 62) == 0


async def test_pipes_and_folders_in_a_files_place(tmp_path, results):
    sha256 = (await stored(results, b"mine")).sha256
    file = file_of(tmp_path, sha256)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ResultUnavailable, match="not a plain file"):
        await read(results, sha256)
    file.unlink()
    file.mkdir()
    with pytest.raises(ResultUnavailable, match="not a plain file"):
        await read(results, sha256)
    assert await everything(results) == []


async def test_foreign_files_are_left_alone(tmp_path, results):
    await stored(results, b"mine")
    root = tmp_path / "results"
    odd = [root / "notes.txt", root / TENANT / "notes", root / TENANT / sha256_of(b"mine")[:2] / "x.zst"]
    for path in odd:
        path.write_text("not ours")
    assert len(await everything(results)) == 1
    assert all(path.exists() for path in odd)


# -- leftovers and death ----------------------------------------------------------------------------------------------------

WRITE_FOREVER = """
import asyncio, sys
from arclog.results.blobs.files import FileBlobs
from arclog.results.store import BlobResults
async def main():
    results = BlobResults(FileBlobs(sys.argv[1]))
    writer = results.writer("acme")
    body = bytes(range(256)) * 4096
    for number in range(40):
        await writer.write(body)
    print("under way", flush=True)
    if sys.argv[2] == "wait":
        await asyncio.Event().wait()
    while True:
        await writer.write(body)
asyncio.run(main())
"""


def child(script: str, *args: object) -> "subprocess.Popen[str]":
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-c", script, *map(str, args)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)


async def test_a_writer_that_is_killed_leaves_nothing_to_read(tmp_path, results):
    process = child(WRITE_FOREVER, tmp_path / "results", "go on")
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "under way\n"
    process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(process.communicate)
    assert [name.split("/")[0] for name in files(tmp_path)] == [".new"]
    assert await everything(results) == []
    assert await results.leftovers(1) == 0  # too young
    assert await results.leftovers(1 << 62) == 1
    assert files(tmp_path) == []


COMMIT_FOREVER = """
import asyncio, random, sys
from arclog.results.blobs.files import FileBlobs
from arclog.results.store import BlobResults
async def store(results, seed):
    chance = random.Random(seed)
    while True:
        listed = chance.random() < 0.5
        writer = results.writer("acme", listed=listed)
        if listed:
            await writer.add([chance.random() for _ in range(chance.randrange(60_000))])
        else:
            await writer.write(chance.randbytes(chance.randrange(3_000_000)))
        print((await writer.commit()).sha256, flush=True)
async def main():
    results = BlobResults(FileBlobs(sys.argv[1]))
    await asyncio.gather(*(store(results, int(sys.argv[2]) + each) for each in range(3)))
asyncio.run(main())
"""


async def test_what_was_answered_is_whole_whenever_the_process_is_killed(tmp_path, results):
    answered: set[str] = set()
    for life in range(6):
        process = child(COMMIT_FOREVER, tmp_path / "results", life * 10)
        assert process.stdout is not None
        for _ in range(3 * life + 1):
            answered.add((await asyncio.to_thread(process.stdout.readline)).strip())
        process.kill()
        rest, _ = await asyncio.to_thread(process.communicate)
        answered |= {line for line in rest.split() if len(line) == 64}
    there = {result.sha256 for result in await everything(results)}
    assert answered <= there
    for sha256 in there:
        await read(results, sha256)
    await results.leftovers(1 << 62)
    assert len(files(tmp_path)) == len(there)


async def test_the_file_of_a_living_writer_is_no_leftover(tmp_path, results):
    process = child(WRITE_FOREVER, tmp_path / "results", "wait")
    assert process.stdout is not None
    assert await asyncio.to_thread(process.stdout.readline) == "under way\n"
    assert await results.leftovers(1 << 62) == 0
    assert len(files(tmp_path)) == 1
    process.kill()
    await asyncio.to_thread(process.communicate)
    assert await results.leftovers(1 << 62) == 1


async def test_two_processes_store_the_same_content(tmp_path, results):
    script = """
import asyncio, sys
from arclog.results.blobs.files import FileBlobs
from arclog.results.store import BlobResults
async def main():
    results = BlobResults(FileBlobs(sys.argv[1]))
    sys.stdin.readline()
    for _ in range(20):
        writer = results.writer("acme")
        await writer.write(b"the same" * 300_000)
        print((await writer.commit()).sha256)
    await results.close()
asyncio.run(main())
"""
    both = [child(script, tmp_path / "results") for _ in range(2)]
    outputs = await asyncio.gather(*(asyncio.to_thread(process.communicate, "go\n", 60) for process in both))
    names = {line for output, _ in outputs for line in output.split()}
    assert names == {sha256_of(b"the same" * 300_000)}
    assert await read(results, names.pop()) == b"the same" * 300_000
    assert len(files(tmp_path)) == 1


# -- full disk, failing disk ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


async def test_a_full_disk_keeps_nothing_of_it(small_disk):
    results = BlobResults(FileBlobs(small_disk / "results"))
    kept = (await stored(results, NOISE[:500_000])).sha256
    with pytest.raises(ResultUnavailable, match=r"disk full.*arclog gc"):
        await stored(results, NOISE)
    assert [result.sha256 for result in await everything(results)] == [kept]
    assert await results.leftovers(1 << 62) == 0
    assert await read(results, kept) == NOISE[:500_000]
    await asyncio.to_thread(subprocess.run, ["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert await read(results, (await stored(results, NOISE)).sha256) == NOISE
    await results.close()


async def test_a_sync_that_fails_keeps_nothing_of_it(tmp_path, results, monkeypatch):
    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("arclog.results.blobs.files.os.fsync", fail)
    with pytest.raises(ResultUnavailable, match="Input/output error"):
        await stored(results, NOISE)
    monkeypatch.undo()
    assert await everything(results) == []
    assert files(tmp_path) == []


async def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "results").write_text("a file")
    results = BlobResults(FileBlobs(tmp_path / "results"))
    with pytest.raises(ResultUnavailable, match="could not be stored"):
        await stored(results, b"x")
    await results.close()


async def test_files_are_placed_and_removed_under_locks(tmp_path, results, monkeypatch):
    """What is removed is what was looked at: nobody can put a file into its place in between."""
    seen: list[tuple[str, bool]] = []

    def spy(name: str, how: int) -> None:
        below = getattr(os, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with (tmp_path / "results" / ".lock").open() as lock:
                try:
                    fcntl.flock(lock, how | fcntl.LOCK_NB)
                    seen.append((name, False))
                except BlockingIOError:
                    seen.append((name, True))
            return below(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    await stored(results, b"first")
    spy("rename", fcntl.LOCK_EX)
    spy("unlink", fcntl.LOCK_SH)
    sha256 = (await stored(results, b"mine")).sha256
    assert await results.remove(TENANT, sha256)
    assert seen == [("rename", True), ("unlink", True)]


async def test_nothing_hangs_or_leaks_after_close(tmp_path):
    results = BlobResults(FileBlobs(tmp_path / "results"))
    sha256 = (await stored(results, NOISE)).sha256
    before = descriptors()
    reader: Any = results.chunks(TENANT, sha256)
    await anext(reader)
    writer = results.writer(TENANT)
    await writer.write(NOISE)
    await results.close()
    await reader.aclose()
    await writer.abandon()
    assert descriptors() == before
    assert len(files(tmp_path)) == 1


# -- memory -----------------------------------------------------------------------------------------------------------------

LARGE = """
import asyncio, sys
from arclog.results.blobs.files import FileBlobs
from arclog.results.store import BlobResults
def peak():
    # Not by getrusage: that of a child begins with what its parent had.
    return int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) // 1024
async def main():
    results = BlobResults(FileBlobs(sys.argv[1]))
    async def store(count):
        writer = results.writer("acme", listed=True)
        for at in range(0, count, 1000):
            await writer.add([{"id": number, "text": "some text " * 10 + str(number)} for number in range(at, at + 1000)])
        done = await writer.commit()
        total = 0
        async for chunk in results.chunks("acme", done.sha256):
            total += len(chunk)
        assert total == done.bytes
        for at in range(0, count, 10_000):
            assert (await results.items("acme", done.sha256, at, at + 1))[0]["id"] == at
        return done.bytes
    await store(160_000)
    before = peak()
    size = await store(int(sys.argv[2]))
    print(size, before, peak())
    await results.close()
asyncio.run(main())
"""


async def test_memory_does_not_grow_with_the_content(tmp_path):
    process = child(LARGE, tmp_path / "results", 2_300_000)
    output, _ = await asyncio.to_thread(process.communicate, timeout=110)
    size, before, after = map(int, output.split())
    assert size > 300_000_000
    assert after - before < 24, (before, after)  # MiB


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_descriptors_are_given_back(tmp_path, results):
    sha256 = (await listed(results, ROWS)).sha256
    for _ in range(3):  # whatever is opened once is open now
        await results.items(TENANT, sha256, 0, 1)
    before = descriptors()
    for _ in range(20):
        await results.items(TENANT, sha256, 0, 1)
        async for _chunk in results.chunks(TENANT, sha256):
            break
        await results.find(TENANT, sha256)
        writer = results.writer(TENANT)
        await writer.write(NOISE)
        await writer.abandon()
    await results.close()
    assert descriptors() <= before


async def test_every_folder_on_the_way_is_synced_once_by_every_process(tmp_path, monkeypatch):
    """Also one that already exists: the process that made it may have died before it synced it."""
    body = b"durable"
    sha256 = sha256_of(body)
    shelf = tmp_path / "results" / TENANT / sha256[:2]
    shelf.mkdir(parents=True)
    synced: list[str] = []
    below = os.fsync

    def sync(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        below(file)

    monkeypatch.setattr(os, "fsync", sync)
    results = BlobResults(FileBlobs(tmp_path / "results"))
    await stored(results, body)
    root = str(tmp_path / "results")
    assert {root, str(shelf.parent), str(shelf)} <= set(synced)
    assert any(name.startswith(f"{root}/.new/") for name in synced)
    synced.clear()
    await stored(results, body)
    assert str(shelf) in synced
    assert root not in synced
    await results.close()
