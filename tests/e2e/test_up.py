"""`arclog up` as a process: it is killed, comes back, and nobody who follows a run sees a gap or a duplicate."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx2

from tests.integration.server.test_executions import HELD, HELLO, ended, started, waits_for_approval
from tests.integration.server.test_streams import frames
from tests.servers.ports import free_port

ARCLOG = (sys.executable, "-m", "arclog.cli.main")
GATED = """
metadata: {{name: gated}}
workflow:
  - step: start
    tool: {{kind: noop}}
    next: {{arcs: [{{step: gate}}]}}
  - step: gate
    tool: {{kind: shell, command: "while [ ! -e {gate} ]; do sleep 0.05; done; echo through"}}
    next: {{arcs: [{{step: last}}]}}
  - step: last
    tool: {{kind: noop}}
"""


class Up:
    """One process of `arclog up`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self.process = process
        self.url = url

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.url, timeout=60, trust_env=False, verify=False)

    async def stopped(self, how: signal.Signals) -> int:
        if self.process.returncode is None:
            self.process.send_signal(how)
        return await self.process.wait()


async def up(home: Path, port: int = 0) -> Up:
    command = (*ARCLOG, "up", "--port", str(port), "--home", str(home), "--json")
    environment = {**os.environ, "ARCLOG_TASKS_ALLOW_READ": str(home.parent)}
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment)
    assert process.stdout is not None
    line = await process.stdout.readline()
    return Up(process, json.loads(line)["url"])


async def test_killed_and_started_again_it_goes_on_and_streams_resume(tmp_path: Path) -> None:
    home, gate, port = tmp_path / "home", tmp_path / "gate", free_port()
    notices: list[Any] = []
    server = await up(home, port)
    try:
        async with server.client() as client:
            execution_id = await started(client, playbook=GATED.format(gate=gate))
            url = f"/api/executions/{execution_id}/events/stream"
            async with client.stream("GET", url) as answer:
                async for _, data in frames(answer):
                    if data is not None:
                        notices.append(data)
                        if data["event_type"] == "task.started" and data["step"] == "gate":
                            break
                await server.stopped(signal.SIGKILL)
        server = await up(home, port)
        gate.touch()
        async with server.client() as client:
            last = {"Last-Event-ID": str(notices[-1]["seq"])}
            async with client.stream("GET", url, headers=last) as answer:
                notices += [data async for _, data in frames(answer) if data is not None]
            whole = (await client.get(f"/api/executions/{execution_id}/events")).json()["events"]
            assert notices == whole
            assert [event["seq"] for event in notices] == list(range(1, len(notices) + 1))
            assert (await ended(client, execution_id))["state"] == "COMPLETED"
        assert await server.stopped(signal.SIGTERM) == 0
    finally:
        gate.touch()
        await server.stopped(signal.SIGKILL)


async def test_a_signal_stops_it_with_streams_open_and_the_next_one_goes_on(tmp_path: Path) -> None:
    server = await up(tmp_path / "home")
    try:
        async with server.client() as client:
            execution_id = await started(client, playbook=HELD)
            await waits_for_approval(client, execution_id)
            async with client.stream("GET", f"/api/executions/{execution_id}/events/stream") as answer:
                async for _ in frames(answer):
                    break
                assert await server.stopped(signal.SIGTERM) == 0
        server = await up(tmp_path / "home")
        async with server.client() as client:
            assert (await client.post(f"/api/executions/{execution_id}/approve")).status_code == 200
            assert (await ended(client, execution_id))["state"] == "COMPLETED"
    finally:
        await server.stopped(signal.SIGKILL)


async def test_a_taken_port_is_said(tmp_path: Path) -> None:
    server = await up(tmp_path / "home")
    try:
        port = server.url.rpartition(":")[2]
        command = (*ARCLOG, "up", "--port", port, "--home", str(tmp_path / "other"))
        second = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
        _, errors = await second.communicate()
        assert (second.returncode, f"cannot listen on 127.0.0.1:{port}" in errors.decode()) == (2, True)
        async with server.client() as client:
            assert (await ended(client, await started(client, playbook=HELLO)))["state"] == "COMPLETED"
    finally:
        await server.stopped(signal.SIGKILL)
