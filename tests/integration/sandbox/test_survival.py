"""Nothing outlives a task, an execution, a tool or a worker. Both kinds of guard: pid namespace and subreaper."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.tools.python import PythonConfig, PythonTool
from tests.unit.sandbox.support import (
    PATIENCE_S,
    Log,
    all_processes,
    context,
    marker,
    may_isolate,
    processes_with,
    wait_dead,
)

#: starts many sleepers, each orphaned, in a session of its own and without environment; goes on when all of them run
BOMB = """
import os
def main(mark, count, wait=None):
    running, starting = os.pipe()
    for _ in range(count):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execvpe('sleep', ['sleep', mark], {})
            os._exit(0)
    for _ in range(count):
        os.wait()  # a corpse counts as a process until it is buried
    os.close(starting)
    assert os.read(running, 1) == b''  # the pipe's other ends were closed by exec
    if wait:
        open(wait, 'w').write('ready')
        while True:
            pass
"""


@pytest.fixture(params=["standard", "off"])
async def tool(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PythonTool]:
    settings = Settings(
        {
            "python.max_memory_bytes": 512 * 1024 * 1024,
            "python.max_file_bytes": 1_000_000,
            "python.max_result_bytes": 100_000,
            "python.max_processes": 120,  # a bomb of 50 has 101 for a moment: each sleeper, and its parent until it is waited for
            "python.warm_processes": 2,
            "worker.workdir": "fresh",
            "tasks.confinement": request.param,
        }
    )
    tool = PythonTool(settings, tmp_path / "scratch")
    yield tool
    await tool.close()
    assert not list((tmp_path / "scratch").iterdir())


async def run(tool: PythonTool, code: str, args: dict[str, Any] | None = None, **more: Any) -> Outcome:
    return await tool.run(PythonConfig(code=code, args=args or {}), context(**more))


async def failure(
    tool: PythonTool, code: str, args: dict[str, Any] | None = None, **more: Any
) -> tuple[str, str | None, str]:
    problem = (await run(tool, code, args, **more)).error
    assert problem is not None
    return problem.kind, problem.code, problem.message


async def host_pid(tool: PythonTool, execution_id: str = "11") -> int:
    """The pid that the execution's process has out here."""
    outcome = await run(tool, "import os\nresult = os.environ['ARCLOG_SCRATCH']", execution_id=execution_id)
    for process in all_processes():
        try:
            if str((process / "cwd").readlink()) == outcome.result:
                return int(process.name)
        except OSError:
            continue
    raise AssertionError(outcome)


async def test_processes_left_by_a_task_are_dead_when_it_returns(tool: PythonTool) -> None:
    mark, log = marker(), Log()
    outcome = await run(tool, BOMB, {"mark": mark, "count": 50}, log=log)

    assert outcome.status == "ok"
    assert processes_with(mark) == []
    assert log.of("log") == ["processes that the task left running were killed"]
    assert (await run(tool, "result = 1")).result == 1


async def test_cancelling_kills_a_hung_task_and_its_orphans(tool: PythonTool, tmp_path: Path) -> None:
    mark, fifo = marker(), tmp_path / "fifo"
    os.mkfifo(fifo)
    running = asyncio.create_task(run(tool, BOMB, {"mark": mark, "count": 50, "wait": str(fifo)}))
    assert await asyncio.to_thread(fifo.read_text) == "ready"
    assert len(processes_with(mark)) == 50

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with(mark) == []


async def test_a_task_cancelled_twice_still_leaves_nothing(tool: PythonTool, tmp_path: Path) -> None:
    mark, fifo = marker(), tmp_path / "fifo"
    os.mkfifo(fifo)
    running = asyncio.create_task(run(tool, BOMB, {"mark": mark, "count": 50, "wait": str(fifo)}))
    await asyncio.to_thread(fifo.read_text)

    running.cancel()
    asyncio.get_running_loop().call_soon(running.cancel)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with(mark) == []


async def test_too_many_processes_end_the_task(tool: PythonTool, tmp_path: Path) -> None:
    mark = marker()
    code = BOMB.replace("if wait:", "while True:\n        pass\n    if wait:")
    kind, setting, message = await failure(tool, code, {"mark": mark, "count": 150})

    assert (kind, setting) == ("limit", "python.max_processes")
    assert "at most 120 are allowed" in message
    assert processes_with(mark) == []


@pytest.mark.parametrize(
    ("code", "error_code", "words"),
    [
        ("import os; os._exit(3)", "EXIT_3", "exit code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV", "SIGSEGV"),
        ("import os; os.abort()", "SIGABRT", "SIGABRT"),
        ("import os; os.closerange(3, 1000)\nwhile True: pass", "SIGKILL", "SIGKILL"),
    ],
)
async def test_a_crash_is_an_outcome_and_the_next_task_gets_a_new_process(
    tool: PythonTool, code: str, error_code: str, words: str
) -> None:
    log = Log()
    kind, code_of_failure, message = await failure(tool, f"print('last words')\n{code}", log=log)

    assert (kind, code_of_failure) == ("killed", error_code)
    assert words in message
    assert log.of("stdout") == ["last words"]
    assert (await run(tool, "result = 1")).result == 1


async def test_a_task_that_kills_its_guard_leaves_nothing(tool: PythonTool) -> None:
    mark = marker()
    code = BOMB.replace("if wait:", "os.kill(os.getppid(), 9)\n    while True:\n        pass\n    if wait:")
    if tool._pool._confinement is not None and may_isolate():
        # The guard does not die of it, and where Landlock knows of signals it does not even get it.
        harmless = "try:\n        os.kill(os.getppid(), 9)\n    except PermissionError:\n        pass\n    if wait:"
        code = BOMB.replace("if wait:", harmless)
        assert (await run(tool, code, {"mark": mark, "count": 5})).status == "ok"
    else:
        assert (await failure(tool, code, {"mark": mark, "count": 5}))[0] == "killed"
    assert wait_dead(processes_with(mark)) == []
    assert (await run(tool, "result = 1")).result == 1


async def test_memory_is_limited(tool: PythonTool) -> None:
    kind, code, message = await failure(tool, "x = bytearray(600 * 1024 * 1024)")

    assert (kind, code) == ("limit", "MemoryError")
    assert "536870912 bytes (setting python.max_memory_bytes)" in message
    assert (await run(tool, "result = 1")).result == 1


async def test_files_are_limited(tool: PythonTool) -> None:
    kind, _, message = await failure(tool, "with open('f', 'wb') as f:\n    f.write(bytes(2_000_000))")

    assert kind == "limit"
    assert "python.max_file_bytes" in message


async def test_results_are_limited(tool: PythonTool) -> None:
    kind, code, message = await failure(tool, "result = 'x' * 99_999")

    assert (kind, code) == ("limit", "python.max_result_bytes")
    assert "100001 bytes" in message
    assert "at most 100000" in message
    assert len((await run(tool, "result = 'x' * 99_998")).result) == 99_998


async def test_core_dumps_and_open_files_are_limited(tool: PythonTool) -> None:
    code = "import resource as r\nresult = [r.getrlimit(r.RLIMIT_CORE), r.getrlimit(r.RLIMIT_NOFILE)]"
    assert (await run(tool, code)).result == [[0, 0], [1024, 1024]]
    no_new_privileges = "result = [l for l in open('/proc/self/status') if l.startswith('NoNewPrivs')]"
    assert (await run(tool, no_new_privileges)).result == ["NoNewPrivs:\t1\n"]


async def test_a_forged_gigantic_answer_is_refused(tool: PythonTool) -> None:
    code = (
        "import os, socket, struct\n"
        "for fd in range(3, 64):\n"
        "    try:\n        socket.socket(fileno=fd).send(struct.pack('<QQQ', 2, 1 << 40, 0))\n"
        "    except OSError:\n        pass\n"
        "while True: pass\n"
    )
    kind, setting, message = await failure(tool, code)
    assert (kind, setting) == ("limit", "python.max_result_bytes")
    assert str((1 << 40) + 2) in message


async def test_a_fork_that_comes_back_is_no_second_answer(tool: PythonTool) -> None:
    code = "import os\npid = os.fork()\nresult = 'parent' if pid else 'child'\nif pid: os.waitpid(pid, 0)"
    for _ in range(3):
        assert (await run(tool, code)).result == "parent"


async def test_a_thread_left_behind_retires_the_process(tool: PythonTool) -> None:
    first = await host_pid(tool)
    code = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    assert (await run(tool, code)).status == "ok"

    assert wait_dead([first]) == []
    assert await host_pid(tool) != first


async def test_a_process_serves_one_execution_only(tool: PythonTool) -> None:
    first = await host_pid(tool, "1")
    assert await host_pid(tool, "1") == first
    other = await host_pid(tool, "2")
    assert other != first
    assert await host_pid(tool, "1") == first

    await tool.execution_ended("1")
    assert wait_dead([first]) == []
    assert await host_pid(tool, "1") not in {first, other}


async def test_idle_processes_are_capped_and_running_ones_are_not(tool: PythonTool, tmp_path: Path) -> None:
    fifos = [tmp_path / f"fifo{n}" for n in range(4)]
    for fifo in fifos:
        os.mkfifo(fifo)
    code = "print('here')\nresult = open(path).read()"
    all_here = asyncio.Semaphore(0)
    running = [
        asyncio.create_task(run(tool, code, {"path": str(fifo)}, log=lambda *_: all_here.release())) for fifo in fifos
    ]
    for _ in fifos:
        await asyncio.wait_for(all_here.acquire(), PATIENCE_S)
    for fifo in fifos:
        await asyncio.to_thread(fifo.write_text, fifo.name)

    assert [(await task).result for task in running] == [fifo.name for fifo in fifos]
    assert tool._pool.idle == 2


async def test_two_hundred_megabytes_of_output_leave_memory_flat(tool: PythonTool) -> None:
    log = Log()
    await run(tool, "print('warm')")
    before = _peak_from_now()
    outcome = await run(
        tool, "line = 'x' * 99\nblock = '\\n'.join([line] * 10_000)\nfor _ in range(200): print(block)", log=log
    )

    assert outcome.status == "ok"
    assert sum(len(text) + 1 for text in log.of("stdout")) == pytest.approx(1024 * 1024, abs=100)
    (note,) = log.of("log")
    assert (
        note
        == f"stdout: {200_000_000 - 1024 * 1024} bytes more were printed and not kept (logs.max_task_bytes = 1048576 bytes)"
    )
    assert _kilobytes("VmHWM") - before < 30_000


def _peak_from_now() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _kilobytes("VmHWM")


def _kilobytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise AssertionError(name)


PARENT = """
import asyncio, sys
from pathlib import Path
from arclog.model.config.settings import Settings
from arclog.tools.python import PythonConfig, PythonTool
from arclog.tools.shell import ShellConfig, ShellTool
from tests.unit.sandbox.support import context

async def main(bomb, mark, fifo, scratch, confinement):
    settings = Settings({'tasks.confinement': confinement})
    python = PythonTool(settings, Path(scratch))
    shell = ShellTool(settings, Path(scratch))
    await asyncio.gather(
        python.run(PythonConfig(code=bomb, args={'mark': mark, 'count': 10, 'wait': fifo}), context()),
        shell.run(ShellConfig(command=f'setsid sleep {mark} & echo ready > {fifo}.shell; sleep {mark}'), context()),
    )

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("confinement", ["standard", "off"])
def test_killing_the_worker_leaves_nothing(tmp_path: Path, confinement: str) -> None:
    mark, fifo, scratch = marker(), tmp_path / "fifo", tmp_path / "scratch"
    os.mkfifo(fifo)
    os.mkfifo(f"{fifo}.shell")
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, BOMB, mark, str(fifo), str(scratch), confinement],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        assert fifo.read_text() == "ready"
        assert Path(f"{fifo}.shell").read_text() == "ready\n"
        everybody = [pid for pid in [*processes_with(mark), *_below(parent.pid)] if pid != parent.pid]
        assert len(everybody) > 15
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    assert wait_dead(everybody) == []
    assert processes_with(mark) == []
    assert list(scratch.iterdir()) == []


def _below(pid: int) -> list[int]:
    processes = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for child in (thread / "children").read_text().split():
            processes += [int(child), *_below(int(child))]
    return processes
