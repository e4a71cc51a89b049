"""Kind python: values that come item by item, and what a task says of its progress while it runs. Real processes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.errors import ResultUnavailable
from arclog.model.outcome import Outcome
from arclog.results.memory import MemoryResults, MemoryWriter
from arclog.testing.tools import Recorder
from arclog.tools.python import PythonConfig, PythonTool
from tests.unit.sandbox.support import context, offspring

COUNTING = """
def main(n, size=1):
    for i in range(n):
        yield {"i": i, "text": "x" * size}
"""
ASYNC = """
import asyncio
async def main(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i
"""


class Tool:
    """A tool, where its results go, and what it said."""

    def __init__(self, scratch: Path, **settings: Any) -> None:
        self.tool = PythonTool(Settings(settings), scratch)
        self.results = MemoryResults()
        self.said = Recorder()

    async def __call__(self, code: str, args: dict[str, Any] | None = None, **more: Any) -> Outcome:
        around = {"results": self.results, "progress": self.said.advance, **more}
        return await self.tool.run(PythonConfig(code=code, args=args or {}), context(self.said.log, **around))

    async def stored(self, outcome: Outcome) -> list[Any]:
        assert outcome.stored is not None, outcome.error
        return await self.results.items("default", outcome.stored.sha256, 0, outcome.stored.rows)


@pytest.fixture
async def tool(tmp_path: Path) -> AsyncIterator[Tool]:
    tool = Tool(tmp_path / "scratch")
    yield tool
    await tool.tool.close()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (COUNTING, [{"i": 0, "text": "x"}, {"i": 1, "text": "x"}, {"i": 2, "text": "x"}]),
        (ASYNC, [0, 1, 2]),
        ("result = (i for i in range(n))", [0, 1, 2]),
        ("result = map(str, range(n))", ["0", "1", "2"]),
        ("def main():\n    return zip('ab', range(n))", [["a", 0], ["b", 1]]),
        ("result = iter([])", []),
    ],
)
async def test_a_few_items_are_a_plain_list(tool: Tool, code: str, expected: list[Any]) -> None:
    outcome = await tool(code, {"n": 3})

    assert (outcome.result, outcome.stored, outcome.error) == (expected, None, None)
    assert tool.results.kept == {}


@pytest.mark.parametrize("code", [COUNTING, ASYNC])
async def test_many_items_go_to_the_result_store(tool: Tool, code: str) -> None:
    outcome = await tool(code, {"n": 30_000})

    assert outcome.result is None
    assert outcome.stored.rows == 30_000
    items = await tool.stored(outcome)
    assert [item if isinstance(item, int) else item["i"] for item in items] == list(range(30_000))


async def test_one_byte_over_the_limit_is_stored(tool: Tool) -> None:
    # [1,1,…]: two bytes an item, and one more for the bracket
    assert (await tool("result = (1 for _ in range(50))", inline_max_bytes=100)).stored is None
    assert (await tool("result = (1 for _ in range(51))", inline_max_bytes=100)).stored.rows == 51


async def test_a_generator_that_fails_midway_leaves_nothing_behind(tool: Tool) -> None:
    outcome = await tool("def main():\n    yield from ['x' * 1000] * 500\n    raise KeyError('late')")

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("exception", "KeyError")
    assert "line 3" in outcome.helper["py"]["traceback"]
    assert (outcome.stored, tool.results.kept) == (None, {})
    assert (await tool("result = 1")).result == 1  # the process lives on


async def test_an_item_that_is_not_json_is_named_by_its_number(tool: Tool) -> None:
    outcome = await tool("def main():\n    yield from range(100_000)\n    yield {'a': b''}")

    assert outcome.error is not None
    assert outcome.error.message.startswith("result[100000].a: bytes is not JSON")


async def test_an_item_over_the_result_limit(tmp_path: Path) -> None:
    tool = Tool(tmp_path / "scratch", **{"python.max_result_bytes": 200_000})
    try:
        fine = await tool(COUNTING, {"n": 30, "size": 100_000})
        assert fine.stored.rows == 30  # three megabytes in all: each item counts for itself
        outcome = await tool(COUNTING, {"n": 30, "size": 200_000})
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.code) == ("limit", "python.max_result_bytes")
        assert "result[0] has 200" in outcome.error.message
    finally:
        await tool.tool.close()


class Held(MemoryResults):
    """A store that takes nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()

    def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> MemoryWriter:
        return HeldWriter(self, tenant, content_type, [] if listed else None)


class HeldWriter(MemoryWriter):
    async def add(self, items: Sequence[Any]) -> None:
        assert isinstance(self._results, Held)
        self._results.begun.set()
        await self._results.go_on.wait()
        await super().add(items)


async def test_a_task_waits_for_whoever_stores_its_items(tool: Tool, tmp_path: Path) -> None:
    count = tmp_path / "count"
    code = (
        "import os\ndef main(n, path):\n    file = open(path, 'w')\n    for i in range(n):\n"
        "        file.seek(0); file.write(str(i)); file.flush()\n        yield 'x' * 1000"
    )
    results = Held()
    running = asyncio.ensure_future(tool(code, {"n": 50_000, "path": str(count)}, results=results))
    await results.begun.wait()
    before, same = -1, 0
    while same < 100:  # it stands still, however often the event loop turns
        await asyncio.sleep(0.001)
        now = int(count.read_text() or 0)
        same = same + 1 if now == before else 0
        before = now
    assert before < 5_000
    results.go_on.set()
    assert (await running).stored.rows == 50_000


async def test_memory_stays_flat_on_both_sides(tool: Tool) -> None:
    class Counting(MemoryResults):
        def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> MemoryWriter:
            return Forgetful(self, tenant, content_type, [] if listed else None)

    class Forgetful(MemoryWriter):
        largest = 0

        async def add(self, items: Sequence[Any]) -> None:
            Forgetful.largest = max(Forgetful.largest, len(items))

    code = (
        "import resource\ndef main(n):\n    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "    for i in range(n):\n        yield {'i': i}\n"
        "    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before\n    print('grown', grown)"
    )
    outcome = await tool(code, {"n": 300_000}, results=Counting())

    assert outcome.error is None
    assert Forgetful.largest < 20_000
    [grown] = [int(text.split()[1]) for stream, text in tool.said.lines if stream == "stdout"]
    assert grown < 8_000  # KiB; the items take 4 MB as text and 70 MB as objects


async def test_a_store_that_fails_ends_the_task(tool: Tool) -> None:
    class Full(MemoryResults):
        def writer(self, tenant: str, *, listed: bool = False, content_type: str = "application/json") -> MemoryWriter:
            return FullWriter(self, tenant, content_type, [] if listed else None)

    class FullWriter(MemoryWriter):
        async def add(self, items: Sequence[Any]) -> None:
            raise ResultUnavailable("the disk is full")

    outcome = await tool("import itertools\nresult = itertools.count()", results=Full())

    assert outcome.error is not None
    assert outcome.error.kind == "result"
    assert "the disk is full" in outcome.error.message
    assert (await tool("result = 2")).result == 2


async def test_a_cancelled_stream_is_dead_and_not_stored(tool: Tool) -> None:
    results = Held()
    task = asyncio.ensure_future(tool("import itertools\nresult = itertools.count()", results=results))
    await results.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert results.kept == {}
    await tool.tool.close()
    assert offspring() == []


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_progress_reaches_the_task_context(tool: Tool) -> None:
    await tool("context.progress(3, 10, 'rows')")
    await tool("context.progress(0.5)")

    assert tool.said.progress == [(3, 10, "rows"), (0.5, None, "")]


async def test_a_flood_of_progress_is_thinned_and_its_last_is_kept(tool: Tool) -> None:
    outcome = await tool("for i in range(200_001):\n    context.progress(i, 200_000)\nresult = 'done'")

    assert outcome.result == "done"
    done = [report[0] for report in tool.said.progress]
    assert (done[0], done[-1]) == (0, 200_000)
    assert len(done) < 1_000
    assert done == sorted(done)


async def test_progress_of_a_generator_and_of_threads(tool: Tool) -> None:
    code = (
        "import threading\ndef tell():\n    for i in range(1000): context.progress(1, 2, 'ü\\ud800')\n"
        "def main():\n    threads = [threading.Thread(target=tell) for _ in range(4)]\n"
        "    for t in threads: t.start()\n    for i in range(30_000):\n        yield i\n        context.progress(i)\n"
        "    for t in threads: t.join()"
    )
    outcome = await tool(code)

    assert outcome.error is None
    assert outcome.stored.rows == 30_000
    assert {report[2] for report in tool.said.progress} <= {"", "ü\\ud800"}


@pytest.mark.parametrize(
    "said", ["float('nan')", "float('inf'), 5", "10**400", "'many'", "None", "object()", "b'x'", "1, 2, None", "-1"]
)
async def test_progress_that_is_no_number_never_breaks_the_task(tool: Tool, said: str) -> None:
    outcome = await tool(f"context.progress({said})\nresult = 1")

    assert outcome.result == 1
    assert len(tool.said.progress) == 1
    json.dumps(tool.said.progress, allow_nan=False)


async def test_a_forked_process_is_told_that_nobody_hears_it(tool: Tool) -> None:
    code = (
        "import os\npid = os.fork()\nif not pid:\n    context.progress(1)\n    context.progress(2)\n    os._exit(0)\n"
        "os.waitpid(pid, 0)\ncontext.progress(7)"
    )
    await tool(code)

    assert tool.said.progress == [(7, None, "")]
    assert [text for stream, text in tool.said.lines if stream == "stderr"] == [
        "context.progress speaks for the task's own process only; other processes are not heard"
    ]
