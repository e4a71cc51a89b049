"""The limits of a confined task's whole process tree, and the files that the operator allows it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from arclog.model.outcome import Outcome
from tests.integration.sandbox.tools import Tools
from tests.unit.sandbox.support import marker, processes_with

MIB = 1024 * 1024
CONFINED = {"worker.workdir": "fresh", "tasks.confinement": "standard"}

#: Starts three children that fill 60 MiB each with their own bytes, and waits for them.
FILL = "import os, time; held = os.urandom(1 << 20) * 60; time.sleep(float({mark!r}))"
FAMILY = {
    "python": "import subprocess, sys\n"
    "children = [subprocess.Popen([sys.executable, '-c', {fill!r}]) for _ in range({count})]\n"
    "for child in children:\n    child.wait()\n",
    "shell": "for n in $(seq {count}); do python3 -c '{shell_fill}' & done; wait",
}


@pytest.fixture(params=["python", "shell"])
async def tools(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tools]:
    tools = Tools(request.param, tmp_path / "scratch")
    yield tools
    await tools.close()


async def ended(task: Awaitable[Outcome]) -> Outcome:
    """A task that its limits do not end would sleep for years."""
    async with asyncio.timeout(60):
        return await task


def family(kind: str, count: int, mark: str) -> str:
    fill = FILL.format(mark=mark)
    return FAMILY[kind].format(fill=fill, shell_fill=fill.replace("'", '"'), count=count)


async def test_children_that_use_too_much_memory_together_end_the_task(tools: Tools) -> None:
    """None of them does alone: one with the same bytes ends by itself."""
    run = tools.start({**CONFINED, "tasks.max_memory_bytes": 150 * MIB})
    mark = marker()
    problem = (await ended(run(family(tools.kind, 3, mark)))).error
    assert problem is not None
    assert (problem.kind, problem.code) == ("limit", "tasks.max_memory_bytes")
    assert f"at most {150 * MIB} are allowed (setting tasks.max_memory_bytes)" in problem.message
    assert processes_with(mark) == []

    assert (await run(family(tools.kind, 1, "1"))).error is None


async def test_orphans_that_end_all_the_time_do_not_hide_the_memory(tmp_path: Path) -> None:
    """Each of them wakes the guard when it ends."""
    tools = Tools("shell", tmp_path / "scratch")
    try:
        run = tools.start({**CONFINED, "tasks.max_memory_bytes": 150 * MIB})
        orphans = "timeout 8 sh -c 'while :; do (true &); done' & "
        problem = (await ended(run(orphans + family("shell", 3, "4")))).error
        assert problem is not None
        assert (problem.kind, problem.code) == ("limit", "tasks.max_memory_bytes")
    finally:
        await tools.close()


READ = {"python": "result = open({path!r}).read()", "shell": "cat {path}"}
WRITE = {"python": "open({path!r}, 'w').write('changed')", "shell": "printf changed > {path}"}


@pytest.mark.parametrize(
    ("allowed", "may_read", "may_write"), [("none", False, False), ("read", True, False), ("write", True, True)]
)
async def test_tasks_use_only_the_files_that_the_operator_allows(
    tools: Tools, tmp_path: Path, allowed: str, may_read: bool, may_write: bool
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "file.txt"
    file.write_text("kept")
    lists = {"tasks.allow_read": "none", "tasks.allow_write": "none"}
    run = tools.start({**CONFINED, **lists, **({} if allowed == "none" else {f"tasks.allow_{allowed}": str(folder)})})

    assert ((await run(READ[tools.kind].format(path=str(file)))).error is None) == may_read
    for target in (file, folder / "new.txt"):
        assert ((await run(WRITE[tools.kind].format(path=str(target)))).error is None) == may_write
    assert file.read_text() == ("changed" if may_write else "kept")
    assert (folder / "new.txt").exists() == may_write
