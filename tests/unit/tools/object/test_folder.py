"""Files as objects: nothing outside of the root, nothing half-written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.tools.object import folder
from arclog.tools.object.kind import ObjectTool
from tests.unit.tools.object.support import NOWHERE, Runner


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    return root


@pytest.fixture
def run(root: Path) -> Runner:
    return Runner(ObjectTool(Settings({"object.file_root": str(root), "home": str(root / ".arclog")}), NOWHERE))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_ways_out_of_the_root(run: Runner, root: Path, tmp_path: Path) -> None:
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    (root / "dangling").symlink_to(tmp_path / "new.txt")
    ways = [
        "link",
        "up/secret.txt",
        "dangling",
        "/etc/passwd",
        str(tmp_path / "secret.txt"),
        f"file://{tmp_path}/secret.txt",
    ]
    ways += [f"file://{tmp_path}/secret%2etxt", "file:///etc/%2e%2e/etc/passwd"]
    for url in ways:
        for action, more in (("get", {}), ("head", {}), ("put", {"content": "x"}), ("delete", {})):
            problem = await run.failure(action, url, **more)
            assert problem.kind == "config", (url, action)
    assert (tmp_path / "secret.txt").read_text() == "outside"
    assert not (tmp_path / "new.txt").exists()
    assert await run.data("list", ".") == []
    assert (await run.failure("list", "up")).kind == "config"


async def test_a_message_that_names_the_setting(run: Runner) -> None:
    problem = await run.failure("get", "/etc/passwd")
    assert "setting object.file_root" in problem.message


async def test_arclogs_own_folder_is_out_of_bounds(run: Runner, root: Path) -> None:
    (root / ".arclog").mkdir()
    (root / ".arclog" / "arclog.db").write_text("log")
    assert "own folder" in (await run.failure("get", ".arclog/arclog.db")).message
    assert (await run.failure("put", ".arclog/x", content="x")).kind == "config"
    assert await run.data("list", ".") == []


async def test_links_and_absolute_paths_inside_the_root(run: Runner, root: Path) -> None:
    (root / "a.txt").write_text("inside")
    (root / "b.txt").symlink_to("a.txt")
    for url in ("b.txt", str(root / "a.txt"), f"file://{root}/a.txt", f"file://localhost{root}/a.txt", "./a.txt"):
        assert await run.data("get", url) == "inside"
    assert [row["path"] for row in await run.data("list", str(root))] == [str(root / "a.txt"), str(root / "b.txt")]


async def test_odd_files(run: Runner, root: Path) -> None:
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for name in ("pipe", "folder"):
        assert (await run.failure("get", name)).kind == "config"
    assert (await run.failure("head", "folder")).kind == "config"
    assert (await run.failure("put", "folder", content="x")).kind == "config"
    (root / "file").write_text("x")
    assert (await run.failure("put", "file/below", content="x")).kind == "config"
    assert (await run.failure("put", "n" * 300, content="x")).kind == "config"
    assert [row["path"] for row in await run.data("list", ".")] == ["file"]


async def test_urls_that_name_no_place(run: Runner) -> None:
    for url in (
        "ftp://host/x",
        "file://host/x",
        "file:x/y://",
        "http://host/x",
        "s3://",
        "s3:///key",
        "s3://u:p@bucket/x",
    ):
        problem = await run.failure("get", url)
        assert problem.kind in ("config", "not_found"), url


async def test_a_cancelled_put_leaves_nothing(run: Runner, root: Path) -> None:
    (root / "a.txt").write_text("before")
    ref = await run.ref(b"x" * 50_000)
    begun = asyncio.Event()

    async def stalling(*_: object) -> object:
        yield b"x" * 1000
        begun.set()
        await asyncio.Event().wait()

    run.results.chunks = stalling  # type: ignore[method-assign,assignment]  # a fault
    task = asyncio.create_task(run("put", "a.txt", content=ref))
    await begun.wait()
    assert len(names(root)) == 2
    assert len(await run.data("list", ".")) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert names(root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "before"


async def test_a_full_disk_leaves_nothing(run: Runner, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # /dev/full answers every write as a full disk does.
    monkeypatch.setattr(folder, "_begin", lambda path: (os.open("/dev/full", os.O_WRONLY), str(root / ".arclog-put-x")))
    problem = await run.failure("put", "a.txt", content="x")
    assert (problem.kind, problem.code) == ("limit", "ENOSPC")
    assert "Make room" in problem.message
    assert names(root) == []


async def test_a_file_cut_while_it_is_read(run: Runner, root: Path) -> None:
    (root / "a.txt").write_bytes(b"x" * 3_000_000)
    reads = os.pread

    def cut(descriptor: int, length: int, at: int) -> bytes:
        if at:
            os.truncate(root / "a.txt", 10)
        return reads(descriptor, length, at)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", cut)
        problem = await run.failure("get", "a.txt")
    assert (problem.kind, problem.code) == ("conflict", "CUT")
    assert run.results.kept == {}


async def test_no_descriptor_stays_open(run: Runner, root: Path) -> None:
    (root / "a.json").write_text("{bad")
    before = len(names(Path("/proc/self/fd")))
    for _ in range(20):
        await run.failure("get", "a.json")
        await run.data("put", "b", content="x")
        await run.failure("put", "b", content="x", if_absent=True)
        await run.data("get", "b", range={"start": 9})
    assert len(names(Path("/proc/self/fd"))) == before
