"""Files that tasks name in `outputs`: stored whole or not at all, and read from the task's own folders only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.results.memory import MemoryResults
from arclog.tools.python import PythonConfig, PythonTool
from arclog.tools.shell import ShellConfig, ShellTool
from tests.unit.sandbox.support import context


class Tools:
    """Both kinds over one result store."""

    def __init__(self, folder: Path, workdir: str) -> None:
        work = folder / "work"
        (work / "home").mkdir(parents=True)
        (work / "home/key").write_text("a key of arclog")
        (folder / "outside").write_text("of somebody else")
        self.work = work
        self.settings = Settings(
            {
                "home": str(work / "home"),
                "worker.workdir": "fresh" if workdir == "fresh" else str(work),
                "results.max_bytes": 1000,
            }
        )
        self.results = MemoryResults(settings=self.settings)
        self.shell = ShellTool(self.settings, folder / "scratch/shell")
        self.python = PythonTool(self.settings, folder / "scratch/python")

    async def run(self, command: str, outputs: dict[str, Any], **config: Any) -> Outcome:
        around = context(results=self.results)
        return await self.shell.run(ShellConfig(command=command, outputs=outputs, **config), around)

    async def run_code(self, code: str, outputs: dict[str, Any], **more: Any) -> Outcome:
        around = context(results=self.results, **more)
        return await self.python.run(PythonConfig(code=code, outputs=outputs), around)

    async def texts(self, outcome: Outcome) -> dict[str, str]:
        assert outcome.error is None, outcome.error
        texts = {}
        for name, file in outcome.files.items():
            chunks = [chunk async for chunk in self.results.chunks("default", file.content.sha256)]
            texts[name] = b"".join(chunks).decode()
        return texts

    async def close(self) -> None:
        await self.shell.close()
        await self.python.close()


@pytest.fixture(params=["fresh", "named"])
async def tools(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Tools]:
    tools = Tools(tmp_path, request.param)
    yield tools
    await tools.close()


@pytest.fixture
async def named(tmp_path: Path) -> AsyncIterator[Tools]:
    tools = Tools(tmp_path, "named")
    yield tools
    await tools.close()


async def test_files_of_a_command(tools: Tools) -> None:
    command = "mkdir out; echo a > out/a.csv; ln -s a.csv out/b; echo c > $ARCLOG_SCRATCH/c.json; echo said"
    outcome = await tools.run(command, {"a": "out/a.csv", "b": "out/b", "c": "$ARCLOG_SCRATCH/c.json"})

    assert await tools.texts(outcome) == {"a": "a\n", "b": "a\n", "c": "c\n"}
    assert outcome.result["stdout"] == "said\n"
    described = {name: (file.name, file.content.content_type) for name, file in outcome.files.items()}
    assert described["a"] == ("a.csv", "text/csv")
    assert described["b"] == ("b", "application/octet-stream")
    assert described["c"] == ("c.json", "application/json")


async def test_paths_are_relative_to_where_a_command_runs(named: Tools) -> None:
    (named.work / "below").mkdir()
    outcome = await named.run("echo 1 > x", {"x": "x", "same": str(named.work / "below/x")}, cwd="below")
    assert await named.texts(outcome) == {"x": "1\n", "same": "1\n"}


async def test_files_of_code_are_read_before_its_folders_are_cleared(tools: Tools) -> None:
    code = """
import os
open("x.txt", "w").write(str(len(os.listdir(os.environ["ARCLOG_SCRATCH"]))))
open(os.environ["ARCLOG_SCRATCH"] + "/y", "w").write("y")
result = [1]
"""
    for _ in range(2):  # in the same process
        outcome = await tools.run_code(code, {"x": "x.txt", "y": "${ARCLOG_SCRATCH}/y"})
        assert await tools.texts(outcome) == {"x": "0", "y": "y"}
        assert outcome.result == [1]


async def test_files_beside_items_that_are_streamed(tools: Tools) -> None:
    code = "open('x', 'w').write('x')\nresult = ({'n': n} for n in range(100))"
    around = context(results=tools.results, inline_max_bytes=100)
    outcome = await tools.python.run(PythonConfig(code=code, outputs={"x": "x"}), around)
    assert await tools.texts(outcome) == {"x": "x"}
    assert outcome.stored.rows == 100


WRONG = [
    ("true", {"x": "none.csv"}, "config", "outputs.x: none.csv the task wrote no such file"),
    ("mkdir x", {"x": "x"}, "config", "outputs.x: x is a folder"),
    ("true", {"x": "."}, "config", "outputs.x: . is a folder"),
    ("mkfifo x", {"x": "x"}, "config", "outputs.x: x cannot be read: it is not a plain file"),
    ("true", {"x": "../outside"}, "config", "leads out of the task's folders"),
    ("true", {"x": "/etc/passwd"}, "config", "leads out of the task's folders"),
    ("ln -s /etc/passwd x", {"x": "x"}, "config", "leads out of the task's folders"),
    ("ln -s /etc x", {"x": "x/passwd"}, "config", "leads out of the task's folders"),
    ("head -c 2000 /dev/zero > x", {"x": "x"}, "limit", "outputs.x: x: "),
    ("true", {"x": 5}, "config", "outputs.x must be the path of a file, not 5"),
    ("true", {"a-b": "x"}, "config", "'a-b' is not a valid name"),
]


@pytest.mark.parametrize(("command", "outputs", "kind", "message"), WRONG)
async def test_what_cannot_be_stored(
    named: Tools, command: str, outputs: dict[str, Any], kind: str, message: str
) -> None:
    outcome = await named.run(f"cd {named.work}; {command}", outputs)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == (kind, False)
    assert message in outcome.error.message
    assert outcome.files == {}
    assert outcome.result["exit_code"] == 0


async def test_one_missing_file_leaves_nothing_stored(tools: Tools) -> None:
    assert (await tools.run("echo x > x", {"x": "x", "y": "y"})).error is not None
    code = await tools.run_code("open('x', 'w').write('x')", {"x": "x", "y": "y"})
    assert code.error is not None
    assert code.error.message.startswith("outputs.y: y the task wrote no such file")
    assert [blob async for blob in tools.results.all()] == []


async def test_arclogs_own_folder_stays_closed_inside_a_working_directory(named: Tools) -> None:
    outcome = await named.run("true", {"x": "home/key"})
    assert outcome.error is not None
    assert "lies in a folder that tasks cannot read" in outcome.error.message
    assert [blob async for blob in named.results.all()] == []


async def test_files_of_a_failed_attempt_are_not_stored(tools: Tools) -> None:
    assert (await tools.run("echo x > x; exit 3", {"x": "x"})).files == {}
    failed = await tools.run_code("open('x', 'w').write('x')\n1 / 0", {"x": "x"})
    assert (failed.error is not None, failed.files) == (True, {})
    assert [blob async for blob in tools.results.all()] == []


async def test_the_folders_are_removed_once_the_files_are_stored(tools: Tools, tmp_path: Path) -> None:
    await tools.run("echo x > $ARCLOG_SCRATCH/x", {"x": "$ARCLOG_SCRATCH/x"})
    await tools.run("true", {"x": "none"})
    await tools.close()
    assert list((tmp_path / "scratch/shell").iterdir()) == []


async def test_more_files_or_bytes_than_a_task_may_have_are_refused_by_name(tmp_path: Path) -> None:
    settings = Settings({"home": str(tmp_path / "home"), "outputs.max_files": 2, "outputs.max_bytes": 10})
    shell = ShellTool(settings, tmp_path / "scratch")
    try:

        async def refusal(command: str, names: str) -> str:
            outputs = {name: f"$ARCLOG_SCRATCH/{name}" for name in names}
            around = context(results=MemoryResults(settings=settings))
            outcome = await shell.run(ShellConfig(command=f"cd $ARCLOG_SCRATCH; {command}", outputs=outputs), around)
            if outcome.error is None:
                return ""
            assert outcome.files == {}
            return f"{outcome.error.kind}: {outcome.error.message}"

        assert await refusal("printf 12345 > a; printf 12345 > b", "ab") == ""
        assert "limit: outputs names 3 files, and a task may have 2 (outputs.max_files)" in await refusal(":", "abc")
        refusal_text = await refusal("printf 123456 > a; printf 12345 > b", "ab")
        assert "limit: the files of outputs have 11 bytes together" in refusal_text
        assert "outputs.max_bytes" in refusal_text
    finally:
        await shell.close()
