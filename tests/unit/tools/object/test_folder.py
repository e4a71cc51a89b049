"""Files as objects: nothing outside of the root, nothing half-written."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from arclog.model.config.settings import Settings
from arclog.sandbox.confinement_settings import confinement_of, for_server
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


async def assert_closed(run: Runner, key: str) -> None:
    for action, more in (("get", {}), ("head", {}), ("put", {"content": "x"}), ("delete", {})):
        problem = await run.failure(action, key, **more)
        assert problem.kind == "config", (key, action)
        assert "files of other tasks, which playbooks cannot use" in problem.message


@pytest.mark.parametrize("home", [".arclog", "other/.arclog", "/nonexistent/home"])
async def test_the_settings_file_is_neither_read_nor_written(
    root: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.chdir(root)
    settings = for_server(Settings({"home": home, "object.file_root": "."}))
    run = Runner(ObjectTool(settings, NOWHERE))
    places = ["arclog.toml", *(["other/arclog.toml"] if home.startswith("other") else [])]
    for key in places:
        await assert_closed(run, key)
    assert names(root) == []
    (root / "other").mkdir()
    for key in places:
        (root / key).write_text("[smtp]\nuser = 'ada'\n")
        (root / "link").unlink(missing_ok=True)
        (root / "link").symlink_to(root / key)
        for name in (key, f"./{key}", "link"):
            await assert_closed(run, name)
        assert (root / key).read_text() == "[smtp]\nuser = 'ada'\n"
        confinement = confinement_of(settings, NOWHERE)
        assert confinement is not None
        assert str(root / key) in confinement.hidden
    assert await run.data("put", "mine.toml", content="x")


async def test_a_settings_file_that_is_a_link(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    (root / "real.toml").write_text("")
    (root / "arclog.toml").symlink_to("real.toml")
    run = Runner(ObjectTool(for_server(Settings({"object.file_root": "."})), NOWHERE))
    for key in ("arclog.toml", "real.toml"):
        await assert_closed(run, key)
    (root / "arclog.toml").unlink()
    await assert_closed(run, "arclog.toml")


@pytest.mark.parametrize(
    "setting", ["secrets.manager_credentials_file", "smtp.password_file", "bus.cert_file", "bus.nkey_file"]
)
async def test_files_with_secrets_of_arclog(root: Path, setting: str) -> None:
    (root / "secret").write_text("a secret")
    settings = Settings({"object.file_root": str(root), "home": str(root / ".arclog"), setting: str(root / "secret")})
    await assert_closed(Runner(ObjectTool(for_server(settings), NOWHERE)), "secret")


async def test_a_file_of_credentials_that_the_environment_names(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "account.json").write_text("{}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(root / "account.json"))
    values = {"object.file_root": str(root), "home": str(root / ".arclog")}
    assert await Runner(ObjectTool(for_server(Settings(values)), NOWHERE)).data("get", "account.json") == {}
    manager = for_server(Settings({**values, "secrets.manager": "google"}))
    await assert_closed(Runner(ObjectTool(manager, NOWHERE)), "account.json")


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
