"""Counts the source files of arclog that a command and three requests pass through, and the switches between files.

    python bench/journeys.py [JOURNEY ...]

Every call of a function counts, in all threads; imports do not, because each journey is made twice and only the second one
is counted. For the requests, a server without a worker runs in this process, and they are plain HTTP: only the server's
side is counted, from the moment the request is sent until its answer has arrived.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any, Self

import msgspec

import arclog
from arclog.cli.main import command as run_command
from arclog.model.commands import Report
from arclog.model.config.settings import Settings
from arclog.model.events import Event
from arclog.wiring.serving.server import serve

ROOT = os.path.dirname(arclog.__file__)
#: Packages between the network and arclog, if they are installed.
FRAMEWORKS = tuple(f"{os.sep}{name}{os.sep}" for name in ("fastapi", "starlette", "pydantic"))
WAITS = "metadata: {name: waits}\nworkflow:\n  - step: start\n    tool: {kind: wait, signal: go}\n"
HELLO = (Path(__file__).parents[1] / "examples/hello.yaml").read_text(encoding="utf-8")
NOOP = "metadata: {name: hello}\nworkflow:\n  - step: start\n    tool: {kind: noop}\n"
WORKER = {"worker_id": "w", "kinds": ["noop"]}
AT = 1_800_000_000_000_000
RUN = "run"
#: The label of the only task of a step.
TASK = "start_task"

Ask = Callable[..., Awaitable[Any]]


class Trace:
    """Files and switches, while it is entered."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.framework: set[str] = set()
        self.switches = 0
        self._last = ""

    def __enter__(self) -> Self:
        threading.setprofile(self._seen)
        sys.setprofile(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _seen(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        if event != "call":
            return
        if not file.startswith(ROOT):
            if any(part in file for part in FRAMEWORKS):
                self.framework.add(file)
            return
        self.files.add(file)
        if file != self._last:
            self.switches += bool(self._last)
            self._last = file


async def _request(port: int, method: str, path: str, body: Any = None, until: bytes = b"") -> Any:
    """One request on a connection of its own; with `until`, the body as far as that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + raw)
    answer = await (reader.readuntil(until) if until else reader.read())
    writer.close()
    status, _, content = answer.partition(b"\r\n\r\n")
    assert status.split()[1][:1] == b"2", answer
    return content if until else json.loads(content)


async def pause(ask: Ask) -> Trace:
    """POST /api/executions/{id}/pause."""
    run = await ask("POST", "/api/executions", {"playbook": WAITS})
    with Trace() as trace:
        await ask("POST", f"/api/executions/{run['execution_id']}/pause", {"reason": "to look"})
    return trace


async def claim_to_report(ask: Ask) -> Trace:
    """A worker claims the command of a run's only step, and reports that it is done."""
    await ask("POST", "/api/worker/register", {"worker": WORKER})
    await ask("POST", "/api/executions", {"playbook": NOOP})
    with Trace() as trace:
        (command,) = (await ask("POST", "/api/worker/claim", {"worker": WORKER, "limit": 1}))["commands"]
        outcome = {"outcome": {"status": "ok", "result": 1}}
        events = [
            Event("step.started", AT, step="start", run=1),
            Event("task.started", AT, step="start", run=1, task=TASK, task_run=1, payload={"kind": "noop"}),
            Event("task.done", AT, step="start", run=1, task=TASK, task_run=1, payload=outcome),
            Event("step.done", AT, step="start", run=1),
        ]
        report = Report("w", command["execution_id"], command["command_id"], command["fence"], 1, events)
        await ask("POST", "/api/worker/report", msgspec.to_builtins(report))
    return trace


async def ingest_to_stream(ask: Ask) -> Trace:
    """POST /api/events, and a new follower of the run sees the event."""
    run = await ask("POST", "/api/executions", {"playbook": WAITS})
    event = {"execution_id": run["execution_id"], "event_id": "42", "event_type": "call.done", "step": "start"}
    with Trace() as trace:
        await ask("POST", "/api/events", event)
        path = f"/api/executions/{run['execution_id']}/events/stream?type=call.done"
        await ask("GET", path, None, b'"event_id":"42"')
    return trace


REQUESTS = {"pause": pause, "claim-to-report": claim_to_report, "ingest-to-stream": ingest_to_stream}


def run_hello(folder: Path) -> Trace:
    """`arclog run hello.yaml`."""
    hello = folder / "hello.yaml"
    hello.write_text(HELLO)
    words = ["run", str(hello), "--home", str(folder / "home")]
    with contextlib.redirect_stdout(io.StringIO()), Trace() as trace:
        assert run_command(words) == 0
    return trace


def show(name: str, trace: Trace) -> None:
    framework = f"; {len(trace.framework)} files of a web framework"
    print(f"{name}: {len(trace.files)} files, {trace.switches} switches{framework}")


async def requests(names: list[str]) -> None:
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings({"home": os.path.join(folder, "home"), "server.port": 0})
            started: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            stop = asyncio.Event()
            server = asyncio.ensure_future(serve(settings, with_worker=False, started=started, stop=stop))
            await asyncio.wait((server, started), return_when=asyncio.FIRST_COMPLETED)
            port = int(started.result().rpartition(":")[2])

            async def ask(*args: Any, port: int = port) -> Any:
                return await _request(port, *args)

            await REQUESTS[name](ask)  # what is imported and compiled once is not counted
            show(name, await REQUESTS[name](ask))
            stop.set()
            await server


def main(names: list[str]) -> None:
    if not names or RUN in names:
        with tempfile.TemporaryDirectory() as folder:
            run_hello(Path(folder))
            show(RUN, run_hello(Path(folder)))
    asyncio.run(requests([name for name in names or REQUESTS if name != RUN]))


if __name__ == "__main__":
    main(sys.argv[1:])
