"""Where python and shell tasks run: the same rules for both kinds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.model.outcome import Outcome
from arclog.sandbox.folders import Folders, fresh_unless_named, workdir_of
from tests.integration.sandbox.tools import Tools

LOOK = {
    "python": "import os\nresult = [os.getcwd(), os.environ['ARCLOG_SCRATCH'], sorted(os.listdir('.'))]",
    "shell": """printf '["%s", "%s", [' "$PWD" "$ARCLOG_SCRATCH"; ls | sed 's/.*/"&"/' | paste -sd,; echo ']]'""",
}
WRITE = {
    "python": "import os\nopen('x.csv', 'w').write('1')\nopen(os.environ['ARCLOG_SCRATCH'] + '/y', 'w')",
    "shell": "printf 1 > x.csv; touch $ARCLOG_SCRATCH/y; echo 0",
}


@pytest.fixture(params=["python", "shell"])
async def tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tools]:
    tools = Tools(request.param, tmp_path / "scratch")
    yield tools
    await tools.close()
    assert list(tools.scratch.iterdir()) == []


def value(outcome: Outcome) -> Any:
    assert outcome.error is None, outcome.error
    return json.loads(outcome.result["stdout"]) if "sh" in outcome.helper else outcome.result


async def test_a_named_folder_keeps_what_tasks_write(tools: Tools, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run = tools.start({"worker.workdir": str(work)})
    value(await run(WRITE[tools.kind]))
    place, scratch, files = value(await run(LOOK[tools.kind]))
    assert place == str(work)
    assert files == ["x.csv"]
    assert (work / "x.csv").read_text() == "1"
    assert Path(scratch).is_relative_to(tools.scratch)
    assert not (Path(scratch) / "y").exists()


async def test_a_fresh_folder_is_empty_and_removed(tools: Tools) -> None:
    run = tools.start({"worker.workdir": "fresh"})
    value(await run(WRITE[tools.kind]))
    place, scratch, files = value(await run(LOOK[tools.kind]))
    assert files == []
    assert Path(place).is_relative_to(tools.scratch)
    assert not Path(place).is_relative_to(scratch)
    assert not Path(scratch).is_relative_to(place)


async def test_by_default_tasks_run_where_arclog_was_started(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tools.start({"worker.workdir": ""})
    assert value(await run(LOOK[tools.kind]))[0] == str(tmp_path)


async def test_a_folder_that_is_gone(tools: Tools, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    run = tools.start({"worker.workdir": str(work)})
    work.rmdir()
    outcome = await run(LOOK[tools.kind])
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert str(work) in outcome.error.message
    work.mkdir()
    assert value(await run(LOOK[tools.kind]))[0] == str(work)


def test_a_folder_that_is_not_there_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"worker\.workdir: there is no folder .*nowhere; create it, or"):
        Folders(Settings({"worker.workdir": str(tmp_path / "nowhere")}), tmp_path)


def test_servers_workers_have_fresh_folders_unless_one_is_named() -> None:
    assert workdir_of(fresh_unless_named(Settings())) is None
    assert workdir_of(fresh_unless_named(Settings({"worker.workdir": "/"}))) == Path("/")
    assert workdir_of(Settings()) == Path.cwd()
