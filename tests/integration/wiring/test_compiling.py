"""Large playbooks are compiled in another process: the plan is the same, and what goes wrong there stays there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from arclog.engine.commits.turns import Lanes
from arclog.engine.runs import compile_cache as compiled
from arclog.engine.runs.compile_cache import Compiler
from arclog.model.config.settings import Settings
from arclog.model.errors import PlaybookError
from arclog.plan import draw, net
from arclog.plan.build import build, build_or_raise
from arclog.wiring.compiling.child import packed
from arclog.wiring.compiling.pool import CompilingProcesses
from arclog.wiring.kinds import installed_kinds
from tests.servers.arclog import running


def playbook(steps: int, last: str = "{kind: noop}") -> str:
    """A ring of joins."""
    rows = ["metadata: {name: large}", "workflow:"]
    for number in range(steps):
        arcs = ", ".join(f"{{step: s{(number + ahead) % steps}}}" for ahead in range(1, 5))
        tool = last if number == steps - 1 else "{kind: noop}"
        rows.append(f"  - {{step: s{number}, spec: {{join: all}}, tool: {tool}, next: {{arcs: [{arcs}]}}}}")
    return "\n".join(rows)


LARGE = playbook(100)


@pytest.fixture
async def processes() -> AsyncIterator[CompilingProcesses]:
    compiling = CompilingProcesses(Settings())
    yield compiling
    await compiling.close()


async def test_a_large_playbook_is_not_compiled_by_the_process_that_asks(
    processes: CompilingProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = build_or_raise(LARGE, "large.yaml", installed_kinds())
    monkeypatch.setattr(compiled, "build_or_raise", None)
    compiler = Compiler(installed_kinds(), Settings())
    compiler.elsewhere = processes
    program = await compiler.compile(LARGE, "large.yaml", "acme")
    assert program.body == net.encode(here)
    assert program.plan == here
    assert await compiler.compile(LARGE, "large.yaml", "acme") is program


async def test_a_server_builds_the_program_of_a_large_playbook_in_a_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    async with running(tmp_path / "home", worker=False) as server, server.client() as client:
        answer = await client.post("/api/execute", json={"playbook": playbook(200)})
        assert answer.status_code < 300, answer.text
        names = [thread.name for thread in set(threading.enumerate()) - before]
        assert [name for name in names if name.startswith("arclog-decision")]


async def test_aliases_make_a_short_text_large(processes: CompilingProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "build_or_raise", None)
    compiler = Compiler(installed_kinds(), Settings())
    compiler.elsewhere = processes
    text = "{metadata: {name: p}, workload: {a: &a [1, 2], b: *a}, workflow: [{step: start, tool: {kind: noop}}]}"
    assert (await compiler.compile(text, "p.yaml", "acme")).plan.workload == {"a": [1, 2], "b": [1, 2]}


async def test_findings_come_back_with_their_places(processes: CompilingProcesses) -> None:
    with pytest.raises(PlaybookError) as refused:
        await processes(playbook(100, "{kind: nope}"), "large.yaml", "acme")
    (finding,) = [finding for finding in refused.value.findings if finding.severity == "error"]
    assert (finding.code, finding.at.line) == ("unknown-kind", 102)
    assert refused.value.file == "large.yaml"


async def test_a_check_comes_back_with_the_graph_and_what_is_no_error(processes: CompilingProcesses) -> None:
    graph, findings = await processes.check(LARGE, "large.yaml", "acme")
    built = build(LARGE, "large.yaml", installed_kinds())
    assert built.plan is not None
    assert msgspec.json.decode(graph) == msgspec.json.decode(msgspec.json.encode(draw.as_json(built.plan)))
    assert findings == built.findings
    nothing, findings = await processes.check(playbook(100, "{kind: nope}"), "large.yaml", "acme")
    assert nothing == b""
    assert "unknown-kind" in [finding.code for finding in findings]


@pytest.mark.parametrize(
    ("name", "value"),
    [("compile.max_memory_bytes", 16 * 1024 * 1024), ("compile.timeout_s", 0.1), ("compile.max_elapsed_s", 0.1)],
)
async def test_a_playbook_that_costs_too_much_is_refused(name: str, value: float) -> None:
    compiling = CompilingProcesses(Settings({name: value}))
    try:
        with pytest.raises(PlaybookError, match=name) as refused:
            await compiling(f"workload: {{a: [{'[], ' * 90_000}]}}\n{LARGE}", "large.yaml", "acme")
        assert refused.value.findings[0].code == "playbook-too-costly"
    finally:
        await compiling.close()


async def test_the_time_limit_counts_processor_time() -> None:
    """A process that stands still, as one of idle priority does on a busy machine, uses none of it."""
    compiling = CompilingProcesses(Settings({"compile.timeout_s": 2.0, "compile.max_elapsed_s": 100.0}))
    try:
        await compiling(LARGE, "large.yaml", "acme")
        (process,) = compiling._idle
        os.kill(process.pid, signal.SIGSTOP)
        waiting = asyncio.ensure_future(compiling(LARGE, "large.yaml", "acme"))
        await asyncio.wait({waiting}, timeout=2.5)
        assert not waiting.done(), "it waits longer than the limit"
        os.kill(process.pid, signal.SIGCONT)
        assert (await waiting)[:1] == b"{"
    finally:
        await compiling.close()


async def test_native_code_that_takes_too_long_is_ended_by_the_kernel() -> None:
    """A handler of Python would wait for its end."""
    program = """
import resource, sys
from arclog.wiring.compiling import child
import arclog.plan.build
arclog.plan.build.build = lambda *_: pow(3, 10**8) and None
child.serve()
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(1 << 30), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    request: tuple[object, ...] = ("plan", LARGE, "large.yaml", {"compile.timeout_s": 0.5}, {})
    _, code = await asyncio.gather(process.communicate(packed(request)), process.wait())
    assert code == -signal.SIGXCPU


async def test_tenants_take_turns_and_have_one_lane_each() -> None:
    lanes, order = Lanes(1), list[str]()
    began, gate = asyncio.Event(), asyncio.Event()

    async def use(tenant: str) -> None:
        async with lanes.lane(tenant):
            order.append(tenant)
            began.set()
            await gate.wait()

    tasks = [asyncio.create_task(use(tenant)) for tenant in ("a", "a", "a", "b", "c")]
    await began.wait()
    gate.set()
    await asyncio.gather(*tasks)
    assert order == ["a", "a", "b", "c", "a"]


async def test_a_process_with_a_heavy_playbook_has_what_time_others_leave_and_is_not_kept() -> None:
    """What it gave up of its priority cannot be had back. Other tests leave it little time: hence the long limit."""
    processes = CompilingProcesses(Settings({"compile.max_elapsed_s": 100.0}))
    try:
        await processes(LARGE, "large.yaml", "acme")
        (kept,) = processes._idle
        assert os.getpriority(os.PRIO_PROCESS, kept.pid) == min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
        heavy = asyncio.ensure_future(processes(playbook(4000), "heavy.yaml", "acme"))
        policies = set()
        while not heavy.done():
            with suppress(ProcessLookupError):
                policies.add(os.sched_getscheduler(kept.pid))
            await asyncio.wait({heavy}, timeout=0.01)
        assert os.SCHED_IDLE in policies
        assert (await heavy)[:1] == b"{"
        assert processes._idle == []
        assert kept.returncode is not None
    finally:
        await processes.close()


HOOKED = """
import asyncio, os, uvloop
from arclog.model.config.settings import Settings
from arclog.wiring.compiling.pool import CompilingProcesses

async def main():
    processes = CompilingProcesses(Settings())
    await processes("metadata: {name: small}\\nworkflow: [{step: start, tool: {kind: noop}}]", "small.yaml", "acme")
    await processes.close()

os.register_at_fork(after_in_child=lambda: os.write(2, b"ran in the child"))
uvloop.run(main())
print("compiled")
"""


async def test_no_python_runs_in_the_child_before_its_own_program() -> None:
    """A lock that another thread of the server holds would block the child, and the server with it."""
    command = (sys.executable, "-c", HOOKED)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
    output, errors = await process.communicate()
    assert (output, errors) == (b"compiled\n", b"")
