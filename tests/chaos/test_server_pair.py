"""Two server processes on one home, or on one database with homes of their own, and a worker that reaches both through a
balancer: one is killed, or stands still past its leases, while a run goes on; the other one goes on with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.wiring.embedded import Embedded, embedded
from tests.chaos.test_remote_workers import DEADLINE_S, Site, until
from tests.servers.balancer import Balancer
from tests.servers.ports import free_port

pytestmark = pytest.mark.slow

CHILD = """\
metadata: {name: child, path: child}
workflow:
  - step: only
    tool: {kind: noop, data: 7}
"""
#: a task, a timer, a call, and a task that writes again
PLAYBOOK = """\
metadata: {name: pair}
workload: {ledger: /dev/null, pause: 0}
workflow:
  - step: first
    tool: &write
      kind: shell
      command: [sh, -c, 'echo "$1" >> "$2"; sleep "$3"; echo "$1 done" >> "$2"', sh, "{{ _task.key }}", "{{ workload.ledger }}", "{{ workload.pause | string }}"]
    next: {arcs: [{step: rest}]}
  - step: rest
    tool: {kind: wait, for_s: 1.5}
    next: {arcs: [{step: call}]}
  - step: call
    tool: {kind: playbook, path: child}
    next: {arcs: [{step: last}]}
  - step: last
    tool: *write
"""


class Pair(Site):
    """Two servers on one store (a home's, or a database for servers with homes of their own), and a balancer before them."""

    def __init__(self, folder: Path, url: str = "") -> None:
        super().__init__(folder)
        self._url = url
        if url:
            self.environment["ARCLOG_STORE_URL"] = url
        self.environment |= {"ARCLOG_ENGINE_DUTY_LEASE_S": "1", "ARCLOG_ENGINE_IDLE_S": "1"}
        self.ports: list[int] = []
        self.ports += [free_port(), free_port()]
        self.balancer = Balancer(self.ports)

    def server_at(self, index: int) -> subprocess.Popen[bytes]:
        self.port = self.ports[index]
        self.environment["ARCLOG_SERVER_PORT"] = str(self.port)
        if self._url:
            self.home = self.folder / f"home-{index}"
        return self.server()

    def ask(self, question: Callable[[Embedded], Any], *, read_only: bool = False) -> Any:
        async def go() -> Any:
            settings = Settings({"home": str(self.home), "store.url": self._url})
            async with embedded(settings, read_only=read_only) as runtime:
                return await question(runtime)

        return asyncio.run(go())

    def worker_of_both(self) -> subprocess.Popen[bytes]:
        self.port = self.balancer.port
        return self.worker("worker")

    def ask_at(self, index: int, path: str, body: Any = None) -> Any:
        url = f"http://127.0.0.1:{self.ports[index]}{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def run_at(self, index: int, **workload: Any) -> str:
        self.ask_at(index, "/api/execute", {"playbook": CHILD})
        body = {"playbook": PLAYBOOK, "workload": {"ledger": str(self.ledger), **workload}}
        execution_id: str = self.ask_at(index, "/api/execute", body)["execution_id"]
        return execution_id

    def ended_at(self, index: int, execution_id: str) -> str:
        end = time.monotonic() + DEADLINE_S
        while (answer_body := self.ask_at(index, f"/api/executions/{execution_id}/status"))["ended_at"] is None:
            assert time.monotonic() < end, self.output.read_text()
            time.sleep(0.05)
        state: str = answer_body["state"]
        return state

    def whole_log(self, execution_id: str) -> list[dict[str, Any]]:
        events = self.events(execution_id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        types = Counter(event["event_type"] for event in events)
        assert (types["playbook.finished"], types["step.done"], types["timer.fired"]) == (1, 4, 1)
        return events

    def close(self) -> None:
        super().close()
        self.balancer.close()


class Follower(threading.Thread):
    """Follows a run's events at one server, to their end."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self.types: list[str] = []
        self.start()

    def run(self) -> None:
        with urllib.request.urlopen(self._url, timeout=DEADLINE_S) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    self.types.append(json.loads(line[6:])["event_type"])


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    url = ""
    if request.param == "postgres":
        pytest.importorskip("arclog.stores.postgres")
        url = request.getfixturevalue("postgres").dsn
    pair = Pair(tmp_path, url)
    try:
        yield pair
    finally:
        pair.close()


@pytest.mark.parametrize(
    ("pair", "when"), [("sqlite", "within a wait"), ("postgres", "within a task")], indirect=["pair"]
)
def test_a_killed_server_is_missed_by_nobody(pair: Pair, when: str) -> None:
    a = pair.server_at(0)
    pair.server_at(1)
    pair.worker_of_both()
    run = pair.run_at(0, pause=1 if when == "within a task" else 0)
    follower = Follower(f"http://127.0.0.1:{pair.ports[1]}/api/executions/{run}/events/stream")
    # A looks after the timers: it was there first.
    until(lambda: pair.has(1) if when == "within a task" else "command.completed" in follower.types, pair)
    a.kill()
    a.wait()
    assert pair.ended_at(1, run) == "COMPLETED"
    follower.join(DEADLINE_S)
    events = pair.whole_log(run)
    assert follower.types == [event["event_type"] for event in events]
    assert len(pair.lines()) == len(set(pair.lines())) == 4, "every task ran once"


@pytest.mark.parametrize("pair", ["sqlite", "postgres"], indirect=True)
def test_a_server_that_stands_still_past_its_leases_and_wakes_does_no_harm(pair: Pair) -> None:
    a, b = pair.server_at(0), pair.server_at(1)
    # Only B is reached: what A does, it does by its duties.
    pair.port = pair.ports[1]
    pair.worker("worker")
    run = pair.run_at(1)
    until(lambda: "command.completed" in [event["event_type"] for event in pair.events(run)], pair)
    os.kill(a.pid, signal.SIGSTOP)
    assert pair.ended_at(1, run) == "COMPLETED", "B has taken the timers over"
    os.kill(a.pid, signal.SIGCONT)
    again = pair.run_at(0)
    assert pair.ended_at(0, again) == "COMPLETED"
    for execution_id in (run, again):
        pair.whole_log(execution_id)
    assert len(pair.lines()) == len(set(pair.lines())) == 8
    for process in (a, b):
        process.terminate()
        assert process.wait(DEADLINE_S) == 0, pair.output.read_text()
