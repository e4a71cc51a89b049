"""A run at a server is watched by what the server sends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from arclog.cli.render import Out
from arclog.cli.runs import watch as watching
from arclog.client import AsyncClient
from arclog.client.connection import Connection
from arclog.ports.views.api import ExecuteRequest, SignalRequest
from tests.servers.arclog import RunningServer

WAITING = """
metadata: {name: waiting}
workflow:
  - step: start
    tool: {kind: shell, command: [echo, before]}
    next: {arcs: [{step: hold}]}
  - step: hold
    tool: {kind: wait, signal: go}
    next: {arcs: [{step: end}]}
  - step: end
    tool: {kind: shell, command: [echo, behind]}
"""


async def test_nothing_is_asked_for_again_and_again(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: list[str] = []
    frames = 0
    enough = asyncio.Event()
    ask, frame = Connection.ask, watching._Lines.frame

    async def counted(self: Connection, method: str, path: str, **more: Any) -> bytes:
        requests.append(path.rpartition("/")[2])
        return await ask(self, method, path, **more)

    def drawn(self: Any, *what: Any) -> None:
        nonlocal frames
        frames += 1
        if frames == 8:
            enough.set()
        frame(self, *what)

    monkeypatch.setattr(Connection, "ask", counted)
    monkeypatch.setattr(watching._Lines, "frame", drawn)
    async with AsyncClient(server.url) as api:
        run = (await api.execute(ExecuteRequest(playbook=WAITING))).execution_id
        while not any(wait.what == "signal" for wait in (await api.why(run)).waits):
            await api.wait(run, after=await api.wait(run, timeout_s=0), timeout_s=20)
        requests.clear()
        shown = asyncio.ensure_future(watching.watch(api, run, Out()))
        await enough.wait()
        assert requests.count("status") == 2, "once for each of the two streams"
        assert requests.count("logs") <= 1, "once when a step has ended"
        assert len(requests) <= 3
        await api.signal(run, SignalRequest("go"))
        await shown
    assert requests.count("status") <= 5
    assert "head" not in requests
    output = capsys.readouterr().out
    assert [line.split()[-1] for line in output.splitlines() if "│" in line] == ["before", "behind"]
    assert output.count("✓") == 3
