"""`kill -9` within an import, a fork and a retry: all of the new run is there, or nothing of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest, ReplayCheck
from arclog.wiring.embedded import embedded
from tests.servers.postgres import PostgresServer

PLAYBOOK = """
metadata: {name: many}
workflow:
  - step: start
    tool: {kind: noop, data: {rows: [1, 2, 3]}, spec: {result: {store: always}}}
    next: {arcs: [{step: each}]}
  - step: each
    loop: {in: "{{ range(600) }}", iterator: n, spec: {mode: parallel, max_in_flight: 4}}
    spec: {policy: {failure: {mode: best_effort}}}
    tool: {kind: noop, data: "{{ 1 // (iter.n - 7) }}"}
"""


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def runs(self) -> dict[str, ReplayCheck]:
        async def look() -> dict[str, ReplayCheck]:
            async with embedded(Settings({"home": str(self.folder)}), read_only=True) as runtime:
                listed = await runtime.api.list(limit=100)
                return {run.execution_id: await runtime.api.replay(run.execution_id) for run in listed}

        return asyncio.run(look()) if (self.folder / "arclog.db").exists() else {}

    def dies(self, point: str, *words: str) -> None:
        program = [sys.executable, "-m", "tests.chaos.dying_history", str(self.folder), point, *words]
        done = subprocess.run(program, capture_output=True, check=False, timeout=60)
        assert done.returncode == -signal.SIGKILL, done

    def does(self, *words: str) -> None:
        assert command([*words, "--home", str(self.folder), "--quiet"]) == 0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "many.yaml").write_text(PLAYBOOK, encoding="utf-8")
    home = Home(folder / "home")
    home.does("run", str(folder / "many.yaml"))
    home.does("export", "last", "-o", str(folder / "run.arclog"))
    return home


@pytest.mark.parametrize("point", ["result", "append", "4", "commit"])
def test_an_import_that_is_killed_leaves_all_or_nothing(recorded: Home, tmp_path: Path, point: str) -> None:
    file = str(recorded.folder.parent / "run.arclog")
    home = Home(tmp_path / "home")
    home.dies(point, "import", file)
    assert home.runs() == {}
    home.does("import", file)
    assert home.runs() == recorded.runs()


@pytest.mark.parametrize("point", ["6", "commit"])
@pytest.mark.parametrize("words", [("retry", "last", "--failed"), ("fork", "last", "--at", "40")], ids=str)
def test_so_does_a_retry_and_a_fork(recorded: Home, tmp_path: Path, point: str, words: tuple[str, ...]) -> None:
    home = Home(tmp_path / "home")
    shutil.copytree(recorded.folder, home.folder)
    home.dies(point, *words)
    assert home.runs() == recorded.runs()


@pytest.mark.soak
def test_so_do_all_of_them_on_postgresql(recorded: Home, tmp_path: Path, postgres_server: PostgresServer) -> None:
    source, target = postgres_server.create(), postgres_server.create()
    home, file = str(tmp_path / "home"), str(recorded.folder.parent / "run.arclog")

    async def begun() -> str:
        async with embedded(settings(source.dsn)) as place:
            await place.start_worker()
            started = await place.api.execute(ExecuteRequest(PLAYBOOK.replace("range(600)", "range(20)")))
            assert await place.api.ended(started.execution_id, timeout_s=60)
            return started.execution_id

    def settings(url: str) -> Settings:
        return Settings({"home": home, "store.url": url})

    def runs(url: str) -> dict[str, ReplayCheck]:
        async def look() -> dict[str, ReplayCheck]:
            async with embedded(settings(url)) as place:
                listed = await place.api.list(limit=100)
                return {run.execution_id: await place.api.replay(run.execution_id) for run in listed}

        return asyncio.run(look())

    def die(points: dict[str, list[str]]) -> None:
        """At each point of each command."""
        words = {
            "retry": [source.dsn, "retry", run, "--failed"],
            "fork": [source.dsn, "fork", run, "--at", "20"],
            "import": [target.dsn, "import", file],
        }
        commands = [
            [words[name][0], point, *words[name][1:], "--home", home, "--quiet"]
            for name, moments in points.items()
            for point in moments
        ]
        program = [sys.executable, "-m", "tests.chaos.dying_history_postgres"]
        done = subprocess.run(
            program, input=json.dumps(commands), capture_output=True, check=True, text=True, timeout=60
        )
        assert json.loads(done.stdout.splitlines()[-1]) == [-signal.SIGKILL] * len(commands), done.stderr

    run = asyncio.run(begun())
    before = runs(source.dsn)
    assert list(before) == [run]
    die({"retry": ["open"], "fork": ["open"], "import": ["result", "open"]})
    assert runs(source.dsn) == before
    assert runs(target.dsn) == {}
    die({"retry": ["committed"], "fork": ["committed"], "import": ["committed"]})
    after = runs(source.dsn)
    assert len(after) == 3
    assert all(check.ok for check in after.values())
    assert runs(target.dsn) == recorded.runs()
    for database in (source, target):
        postgres_server.drop(database)
