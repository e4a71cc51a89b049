"""A server and its workers as processes of their own: each is killed, or stands still, while a run goes on.

The ledger that the tasks write outside is compared with the log.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import Embedded, embedded
from tests.servers.ports import free_port

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
#: each task writes its key before it sleeps, and again afterwards
PLAYBOOK = """\
metadata: {name: remote}
workload: {ledger: /dev/null, pause: 0}
workflow:
  - step: first
    tool: &write
      kind: shell
      command: [sh, -c, 'echo "$1" >> "$2"; sleep "$3"; echo "$1 done" >> "$2"', sh, "{{ _task.key }}", "{{ workload.ledger }}", "{{ workload.pause | string }}"]
    next: {arcs: [{step: elsewhere}]}
  - step: elsewhere
    spec: {pool: gpu}
    loop: {in: "{{ range(3) }}", iterator: i}
    tool: *write
    next: {arcs: [{step: last}]}
  - step: last
    tool: *write
"""


class Site:
    """A server's home, the processes around it, and the ledger."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.port = free_port()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
        self.environment = {
            **clean,
            "ARCLOG_LEASES_SECONDS": "3",
            "ARCLOG_ENGINE_SWEEP_S": "0.1",
            "ARCLOG_SERVER_PORT": str(self.port),
            "ARCLOG_TASKS_ALLOW_WRITE": str(folder),
        }
        self._processes: list[subprocess.Popen[bytes]] = []
        self.output = folder / "output"

    def server(self) -> subprocess.Popen[bytes]:
        process = self._start([sys.executable, "-m", "arclog.cli.main", "server"], self.home)
        until(lambda: self._listens() or process.poll() is not None, self)
        assert process.poll() is None, self.output.read_text()
        return process

    def worker(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "arclog.cli.main", "worker", "--server", url, *options]
        return self._start(command, self.folder / name)

    def _start(self, command: list[str], home: Path) -> subprocess.Popen[bytes]:
        environment = {**self.environment, "ARCLOG_HOME": str(home)}
        with self.output.open("ab") as output:
            process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        self._processes.append(process)
        return process

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def begin(self, text: str = PLAYBOOK, **workload: Any) -> str:
        """Start a run, as another client of the same store."""

        async def go(embedded_runtime: Embedded) -> str:
            request = ExecuteRequest(playbook=text, workload={"ledger": str(self.ledger), **workload})
            return (await embedded_runtime.api.execute(request)).execution_id

        answer: str = self.ask(go)
        return answer

    def ask(self, question: Callable[[Embedded], Any], *, read_only: bool = False) -> Any:
        async def go() -> Any:
            async with embedded(Settings({"home": str(self.home)}), read_only=read_only) as runtime:
                return await question(runtime)

        return asyncio.run(go())

    def events(self, execution_id: str) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = self.ask(
            lambda embedded_runtime: embedded_runtime.api.events(execution_id, limit=10_000), read_only=True
        )
        return answer

    def completed(self, execution_id: str) -> list[dict[str, Any]]:
        """The events of a run, once it has ended well; its log is whole."""

        async def ended(embedded_runtime: Embedded) -> str:
            await embedded_runtime.api.ended(execution_id, timeout_s=DEADLINE_S)
            return (await embedded_runtime.api.summary(execution_id)).state

        assert self.ask(ended) == "COMPLETED", self.output.read_text()
        events = self.events(execution_id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        types = Counter(event["event_type"] for event in events)
        assert (types["playbook.finished"], types["step.done"], types["task.done"]) == (1, 3, 5)
        return events

    def state(self, execution_id: str) -> str:
        async def summary(embedded_runtime: Embedded) -> str:
            return (await embedded_runtime.api.summary(execution_id)).state

        answer: str = self.ask(summary, read_only=True)
        return answer

    def holders(self, execution_id: str) -> list[str]:
        """The workers that hold commands of a run."""

        async def held(embedded_runtime: Embedded) -> list[str]:
            return [
                command.worker_id
                for command in await embedded_runtime.engine.store.commands(int(execution_id))
                if command.worker_id
            ]

        answer: list[str] = self.ask(held, read_only=True)
        return answer

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    def has(self, count: int) -> bool:
        return len(self.lines()) >= count

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGCONT)
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def until(happened: Callable[[], bool], site: Site) -> None:
    end = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < end, site.output.read_text()
        time.sleep(0.02)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    try:
        yield site
    finally:
        site.close()


def reasons(events: list[dict[str, Any]]) -> list[str]:
    return [event["payload"]["reason"] for event in events if event["event_type"] == "command.issued"]


def workers(events: list[dict[str, Any]], step: str) -> set[str]:
    return {event["worker_id"] for event in events if event.get("worker_id") and event.get("step") == step}


def test_each_pool_runs_its_own_steps_and_all_leave_cleanly(site: Site) -> None:
    server = site.server()
    plain, gpu = site.worker("plain"), site.worker("gpu", "--pool", "gpu")
    events = site.completed(site.begin())
    assert reasons(events) == []
    assert len(site.lines()) == len(set(site.lines())) == 10, "every task ran once"
    ours, theirs = workers(events, "first"), workers(events, "elsewhere")
    assert ours == workers(events, "last")
    assert len(ours) == len(theirs) == 1
    assert ours != theirs
    for process in (plain, gpu, server):
        process.terminate()
        assert process.wait(DEADLINE_S) == 0, site.output.read_text()


def test_a_killed_worker_loses_its_lease_and_another_goes_on(site: Site) -> None:
    site.server()
    site.worker("gpu", "--pool", "gpu")
    first = site.worker("first")
    run = site.begin(pause=2)
    until(lambda: "task.started" in [event["event_type"] for event in site.events(run)], site)
    until(partial(site.has, 1), site)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    site.worker("second")
    events = site.completed(run)
    assert reasons(events) == ["lease_lost"]
    assert len(workers(events, "first")) == 2
    written = Counter(line for line in site.lines() if not line.endswith(" done"))
    assert sorted(written.values()) == [1, 1, 1, 1, 2], "the task in flight was done again, nothing else"


def test_a_killed_server_comes_back_and_the_worker_delivers(site: Site) -> None:
    site.environment["ARCLOG_LEASES_SECONDS"] = "30"
    server = site.server()
    site.worker("all", "--pool", "default", "--pool", "gpu")
    run = site.begin(pause=0.7)
    until(lambda: len(site.lines()) == 1, site)
    for count in (2, 4):  # within a task each time: the worker ends it while nobody listens
        server.kill()
        server.wait()
        until(partial(site.has, count), site)
        server = site.server()
        until(partial(site.has, count + 1), site)
    events = site.completed(run)
    assert reasons(events) == [], "within its lease, what was done is delivered"
    assert len(site.lines()) == len(set(site.lines())) == 10, "nothing was done twice"
    assert "is back" in site.output.read_text()


def test_a_report_past_its_lease_is_dropped_and_said_so(site: Site) -> None:
    server = site.server()
    worker = site.worker("all", "--pool", "default", "--pool", "gpu")
    run = site.begin(pause=0.3)
    until(lambda: len(site.lines()) == 1, site)
    server.kill()
    server.wait()
    until(lambda: "stops command" in site.output.read_text(), site)
    assert worker.poll() is None
    site.server()
    events = site.completed(run)
    assert "lease_lost" in reasons(events)


def test_a_worker_that_stands_still_past_its_lease_is_refused(site: Site) -> None:
    site.server()
    site.worker("gpu", "--pool", "gpu")
    frozen = site.worker("frozen")
    run = site.begin(pause=1)
    until(lambda: len(site.lines()) == 1, site)
    os.killpg(frozen.pid, signal.SIGSTOP)
    site.worker("other")
    until(lambda: "lease_lost" in reasons(site.events(run)), site)
    events = site.completed(run)
    os.killpg(frozen.pid, signal.SIGCONT)
    refusals = ("stops command", "is over", "fence", "is not needed", "is no longer held")
    until(lambda: any(words in site.output.read_text() for words in refusals), site)
    assert site.events(run) == events, "what it said late changed nothing"
    assert frozen.poll() is None
    again = site.begin()
    site.completed(again)


def test_a_worker_told_to_stop_gives_its_command_back_between_two_tasks(site: Site) -> None:
    site.server()
    leaving = site.worker("leaving")
    text = PLAYBOOK.replace("command: [sh", "command: &line [sh").replace(
        "    next: {arcs: [{step: elsewhere}]}", "    next: {arcs: [{step: again}]}"
    )
    text += "  - step: again\n    tool: [{name: a, kind: shell, command: *line }, {name: b, kind: shell, command: *line }]\n"
    run = site.begin(text, pause=1)
    until(lambda: len(site.lines()) == 3, site)
    leaving.terminate()
    assert leaving.wait(DEADLINE_S) == 0, site.output.read_text()
    assert len(site.lines()) == 4, "the task in flight was ended, the next one not begun"
    site.worker("other")
    assert site.ask(lambda embedded_runtime: embedded_runtime.api.ended(run, timeout_s=DEADLINE_S))
    events = site.events(run)
    assert reasons(events) == ["given_back"]
    assert len(site.lines()) == len(set(site.lines())) == 6


ONE_TASK = PLAYBOOK.split("    next:", maxsplit=1)[0]


def frozen_with_a_claim(site: Site) -> tuple[subprocess.Popen[bytes], str]:
    """A worker that stands still, with the answer to its claim in its buffer; and the run that was given to it."""
    worker = site.worker("frozen")
    first = site.begin(ONE_TASK)
    until(lambda: site.state(first) == "COMPLETED", site)
    os.killpg(worker.pid, signal.SIGSTOP)
    run = site.begin(ONE_TASK)
    until(lambda: bool(site.holders(run)), site)
    return worker, run


def test_a_worker_begins_nothing_whose_lease_ended_while_it_stood_still(site: Site) -> None:
    site.server()
    worker, run = frozen_with_a_claim(site)
    lines = len(site.lines())
    until(lambda: "lease_lost" in reasons(site.events(run)), site)
    site.worker("other")
    until(lambda: site.state(run) == "COMPLETED", site)
    assert len(site.lines()) == lines + 2
    os.killpg(worker.pid, signal.SIGCONT)
    until(lambda: "is not started" in site.output.read_text(), site)
    assert len(site.lines()) == lines + 2, "done once, by the other one"


def test_a_worker_begins_nothing_after_a_cancel_that_was_answered(site: Site) -> None:
    site.environment |= {"ARCLOG_LEASES_SECONDS": "30", "ARCLOG_LEASES_PROOF_S": "0"}
    site.server()
    worker, run = frozen_with_a_claim(site)
    lines = len(site.lines())
    site.ask(lambda embedded_runtime: embedded_runtime.api.cancel(run, "enough"))
    assert site.state(run) == "CANCELLED"
    os.killpg(worker.pid, signal.SIGCONT)
    again = site.begin(ONE_TASK)
    until(lambda: site.state(again) == "COMPLETED", site)
    assert len(site.lines()) == lines + 2, "the second run's two lines, and none of the cancelled one's"
