"""A run that has nothing to do but to wait is listed with what it waits for, by its live state and by its log alike."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from arclog.cli.main import command
from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest, RegisterRequest, SignalRequest
from arclog.ports.views.overview import ListedRun, RunQuery, Waiting
from arclog.wiring.embedded import Embedded, embedded

WAITS = {
    "signal": "{kind: wait, signal: go}",
    "timer": '{kind: wait, until: "2100-01-01T00:00:00Z"}',
    "approval": "{kind: approval, prompt: Ship?}",
    "child": "{kind: playbook, path: waits/signal}",
    "retry": "{kind: assert, that: false, spec: {policy: {rules: [{else: {then: {do: retry, attempts: 3, delay: 900}}}]}}}",
}


def playbook(name: str, tool: str, executor: str = "{}") -> str:
    return f"""
metadata: {{name: {name}, path: waits/{name}}}
executor: {executor}
workflow:
  - {{step: hold, tool: {tool}}}
"""


async def started(embedded_runtime: Embedded, text: str) -> str:
    return (await embedded_runtime.api.execute(ExecuteRequest(playbook=text))).execution_id


async def until_it_waits(embedded_runtime: Embedded, execution_id: str) -> ListedRun:
    """The run in the list, once its open work is done."""
    head = 0
    while True:
        run = next(run for run in await embedded_runtime.api.list() if run.execution_id == execution_id)
        if run.waiting is not None:
            return run
        head = await embedded_runtime.api.wait(execution_id, after=head, timeout_s=0.2)


async def test_what_each_kind_of_wait_waits_for(tmp_path: Path) -> None:
    settings = Settings({"home": str(tmp_path)})
    async with embedded(settings) as runtime:
        await runtime.start_worker()
        await runtime.api.register(RegisterRequest(playbook("signal", WAITS["signal"])))
        shown = {}
        for kind, tool in WAITS.items():
            shown[kind] = await until_it_waits(runtime, await started(runtime, playbook(kind, tool)))
        waits = {kind: run.waiting for kind, run in shown.items() if run.waiting is not None}
        assert {kind: wait.what for kind, wait in waits.items()} == {wait: wait for wait in WAITS}
        assert waits["signal"] == Waiting("signal", "hold", "go")
        assert waits["timer"] == Waiting("timer", "hold", until="2100-01-01T00:00:00.000000Z")
        assert waits["retry"].until is not None
        (child,) = [run for run in await runtime.api.list() if run.parent]
        assert waits["child"].name == child.execution_id
    # Another process has no live state, and folds the logs.
    async with embedded(settings, read_only=True) as runtime:
        page = await runtime.api.find(RunQuery(states=("RUNNING",), limit=50))
        there = {run.execution_id: run.waiting for run in page.runs}
    for run in shown.values():
        assert there[run.execution_id] == run.waiting


async def test_a_run_that_is_paused_queued_or_over_does_not_wait(tmp_path: Path) -> None:
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        queued = await started(runtime, playbook("queued", "{kind: noop}"))  # no worker is there
        assert [run.waiting for run in await runtime.api.list()] == [None]
        await runtime.start_worker()
        await runtime.api.ended(queued)
        held = await started(runtime, playbook("signal", WAITS["signal"]))
        await until_it_waits(runtime, held)
        await runtime.api.signal(held, SignalRequest("PAUSE", reason="for a moment"))
        paused = next(run for run in await runtime.api.list() if run.execution_id == held)
        assert (paused.paused, paused.waiting) == (True, None)
        await runtime.api.signal(held, SignalRequest("RESUME"))
        await until_it_waits(runtime, held)
        await runtime.api.signal(held, SignalRequest("CANCEL", reason="enough"))
        assert [run.waiting for run in await runtime.api.list()] == [None, None]


async def test_a_run_without_a_slot_waits_for_one(tmp_path: Path) -> None:
    text = playbook("slots", WAITS["signal"], "{spec: {concurrency: {max: 1}}}")
    async with embedded(Settings({"home": str(tmp_path)})) as runtime:
        await runtime.start_worker()
        await until_it_waits(runtime, await started(runtime, text))
        second = await until_it_waits(runtime, await started(runtime, text))
        assert second.waiting == Waiting("slot")


def test_the_command_line_says_what_a_run_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def waiting() -> None:
        async with embedded(Settings({"home": str(tmp_path)})) as runtime:
            await runtime.start_worker()
            await until_it_waits(runtime, await started(runtime, playbook("signal", WAITS["signal"])))

    asyncio.run(waiting())
    assert command(["list", "--home", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "‖ waiting" in output
    assert "step hold: waiting for signal go" in output
    assert command(["list", "--where", "run.waiting.name == 'go'", "--json", "--home", str(tmp_path)]) == 0
    assert '"what":"signal"' in capsys.readouterr().out
