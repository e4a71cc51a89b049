"""A home is backed up while runs go on in it, and what is restored replays and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path

import apsw
import httpx2
import msgspec
import pytest

from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.ports.storage.store import StoredEvent
from arclog.testing.laws import check_log
from arclog.wiring.embedded import Embedded, embedded
from arclog.wiring.homes.backup import MANIFEST, back_up, restore
from tests.servers.arclog import running

RUNS = 12
#: Stores a result outside the log, then takes many steps.
CHAIN = """\
metadata: {name: chain}
workflow:
  - step: start
    tool: {kind: noop, data: "{{ 'x' * 200000 }}"}
    next: {arcs: [{step: count}]}
  - step: count
    loop: {in: "{{ range(40) | list }}", iterator: n}
    tool: {kind: python, code: "result = 1"}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: noop, data: done}
"""


def ran(*words: str) -> tuple[int, str]:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        code = command(list(words))
    return code, stream.getvalue()


def home_of(folder: Path) -> Settings:
    return Settings({"home": str(folder)})


async def start(client: httpx2.AsyncClient) -> str:
    answer = await client.post("/api/execute", json={"playbook": CHAIN})
    assert answer.status_code == 201, answer.text
    execution_id: str = answer.json()["execution_id"]
    return execution_id


async def followed(client: httpx2.AsyncClient, execution_id: str, until: str = "") -> None:
    """Wait until an event of that type (or the end) is told."""
    async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as stream:
        async for line in stream.aiter_lines():
            if until and until in line:
                return


async def logged(embedded_runtime: Embedded, execution_id: str) -> list[StoredEvent]:
    return await embedded_runtime.engine.store.events(int(execution_id), limit=10_000)


async def test_a_backup_under_load_is_restored_replays_and_goes_on(tmp_path: Path):
    home, copy, again = tmp_path / "home", tmp_path / "copy", tmp_path / "again"
    async with running(home) as server, server.client() as client:
        ids = [await start(client) for _ in range(RUNS)]
        await followed(client, ids[0], until="step.done")  # its result is stored
        await asyncio.to_thread(back_up, server.settings, copy)
        later = await start(client)
    async with embedded(home_of(home), read_only=True) as runtime:
        original = {execution_id: await logged(runtime, execution_id) for execution_id in ids}
    restore(home_of(again), copy)
    async with embedded(home_of(again), read_only=True) as runtime:
        listed = {run.execution_id: run.state for run in await runtime.api.list(limit=100)}
        assert set(listed) == set(ids)
        assert later not in listed
        assert "RUNNING" in listed.values(), "nothing was under way: this shows nothing about a backup under load"
        for execution_id in ids:
            events = await logged(runtime, execution_id)
            assert events == original[execution_id][: len(events)], "a backup is a beginning of what came to be"
            assert (await runtime.engine.live.folded(int(execution_id))).state.head == len(events)
    # The runs go on to their ends, on a server of their own.
    async with running(again, worker=True, **{"leases.seconds": 1}) as server, server.client() as client:
        for execution_id in ids:
            await followed(client, execution_id)
            status = (await client.get(f"/api/executions/{execution_id}/status")).json()
            assert status["state"] == "COMPLETED", status
            (stored,) = (await client.get(f"/api/executions/{execution_id}/results")).json()["results"]
            content = await client.get("/api/result/resolve", params={"ref": stored["ref"]})
            assert content.is_success, content.text
            assert "x" * 200_000 in content.text
    async with embedded(home_of(again), read_only=True) as runtime:
        for execution_id in ids:
            # Tasks that were under way at the backup are run again: not one process wrote this log.
            check_log(await logged(runtime, execution_id), "chain", one_process=False)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text("metadata: {name: p}\nworkflow: [{step: start, tool: {kind: noop, data: 1}}]\n")
    code, output = ran("run", str(tmp_path / "p.yaml"), "--home", str(tmp_path / "home"))
    assert code == 0, output
    return tmp_path / "home"


def test_backup_and_restore_by_command(home: Path, tmp_path: Path):
    code, output = ran("backup", "--home", str(home), str(tmp_path / "copy"))
    assert (code, output.startswith("backed up to")) == (0, True), output
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {"arclog.db", MANIFEST}
    assert (tmp_path / "copy").stat().st_mode & 0o077 == 0
    code, output = ran("restore", "--json", "--home", str(tmp_path / "again"), str(tmp_path / "copy"))
    assert code == 0, output
    assert json.loads(output)["results"] == 0
    assert ran("show", "last", "--home", str(tmp_path / "again"))[0] == 0


def test_secrets_come_along_sealed_and_without_their_key(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"correct horse")))
    code, output = ran("secret", "set", "token", "--home", str(home))
    assert code == 0, output
    back_up(home_of(home), tmp_path / "copy")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()}
    assert "secrets.json" in kept
    assert not any("key" in name for name in kept)
    assert not any(b"correct horse" in body for body in kept.values())


def _cut(copy: Path) -> None:
    raw = (copy / "arclog.db").read_bytes()
    (copy / "arclog.db").write_bytes(raw[: len(raw) // 2])


def _newer(copy: Path) -> None:
    from arclog.wiring.homes.backup import Manifest, _digest

    connection = apsw.Connection(str(copy / "arclog.db"))
    connection.execute("PRAGMA user_version = 999").fetchall()
    connection.close()
    manifest = msgspec.json.decode((copy / MANIFEST).read_bytes(), type=Manifest)
    manifest = msgspec.structs.replace(manifest, sha256=_digest(copy / "arclog.db"))
    (copy / MANIFEST).write_bytes(msgspec.json.encode(manifest))


def _no_manifest(copy: Path) -> None:
    (copy / MANIFEST).unlink()


def _odd_manifest(copy: Path) -> None:
    (copy / MANIFEST).write_text("{}")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_cut, "its hash differs"),
        (_newer, "newer arclog"),
        (_no_manifest, "is not a backup"),
        (_odd_manifest, "is not a manifest"),
    ],
)
def test_what_is_not_a_whole_backup_is_refused(home: Path, tmp_path: Path, spoil: Callable[[Path], None], said: str):
    back_up(home_of(home), tmp_path / "copy")
    spoil(tmp_path / "copy")
    code, text = ran("restore", "--home", str(tmp_path / "again"), str(tmp_path / "copy"))
    assert code != 0
    assert said in text
    assert not (tmp_path / "again" / "arclog.db").exists()


def test_nothing_is_overwritten(home: Path, tmp_path: Path):
    back_up(home_of(home), tmp_path / "copy")
    code, output = ran("backup", "--home", str(home), str(tmp_path / "copy"))
    assert (code, "already exists" in output) == (2, True)
    code, output = ran("restore", "--home", str(home), str(tmp_path / "copy"))
    assert (code, "has runs already" in output) == (2, True)


def test_a_backup_that_fails_leaves_nothing(home: Path, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    code, output = ran("backup", "--home", str(home), str(tmp_path / "file" / "copy"))
    assert (code, "the backup failed" in output) == (1, True), output
    assert ran("backup", "--home", str(tmp_path / "none"), str(tmp_path / "copy"))[0] == 2
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_log_in_postgresql_is_backed_up_by_its_own_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ARCLOG_STORE_URL", "postgresql://user:s3cret@host/db")
    for words in (("backup", str(tmp_path / "x")), ("restore", str(tmp_path / "x"))):
        code, output = ran(*words)
        assert (code, "docs/backup.md" in output, "s3cret" in output) == (2, True, False)
