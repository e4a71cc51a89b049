"""Four servers with homes of their own on one database, and a run that kills each server that works on it: the second one is the last.

Nobody starts a killed server again, and clients and workers go on to the next one at once, so that no server learns in time from a
home or from a lease what the others died of.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.chaos.test_remote_workers import until
from tests.chaos.test_server_pair import Pair
from tests.servers.commands import run_text
from tests.servers.ports import free_port
from tests.servers.postgres import Database

pytestmark = pytest.mark.slow

SERVERS = 4
DEADLINE_S = 60.0
HEALTHY = "{metadata: {name: healthy}, workflow: [{step: start, tool: {kind: noop, data: well}}]}"
#: A server that is killed at some work on every other run.
PROGRAM = """
import os, sys
from tests.e2e.dying_server import die_at
die_at(os.environ["DIES_AT"])
sys.argv = ["arclog", "server"]
from arclog.cli.main import main
sys.exit(main())
"""
NOOP, TIMER = "{kind: noop}", "{kind: wait, for_s: 0.5}"


class Servers(Pair):
    """They, and a worker that knows all of them."""

    def __init__(self, folder: Path, store: str, dies_at: str) -> None:
        super().__init__(folder, store)
        self.environment |= {
            "DIES_AT": dies_at,
            "STANDS_WHILE": str(folder / "stand"),
            "PYTHONPATH": os.pathsep.join(sys.path),
            # One that stands still for longer looks dead, which a busy machine does to it for a second or two.
            "ARCLOG_ENGINE_DUTY_LEASE_S": "3",
            "ARCLOG_LEASES_SECONDS": "1",
            "ARCLOG_TASKS_CONFINEMENT": "off",
        }
        self.ports = [free_port() for _ in range(SERVERS)]
        self.all = [self._process(index) for index in range(SERVERS)]
        self.urls = ",".join(f"http://127.0.0.1:{port}" for port in self.ports)

    def _process(self, index: int) -> subprocess.Popen[bytes]:
        self.environment["ARCLOG_SERVER_PORT"] = str(self.ports[index])
        self.output = self.folder / f"output-{index}"
        return self._start([sys.executable, "-c", PROGRAM], self.folder / f"home-{index}")

    def wait(self) -> None:
        """Wait until all of them serve."""
        for index in range(SERVERS):
            self._wait_for(index)

    def _wait_for(self, index: int) -> None:
        end = time.monotonic() + DEADLINE_S
        while self._answer(index, "/health") is None:
            assert self.all[index].poll() is None, self._log(index)
            assert time.monotonic() < end, self._log(index)
            time.sleep(0.05)

    def worker_of_all(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "arclog.cli.main", "worker", "--server", self.urls]
        return self._start(command, self.folder / "worker")

    def arclog(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """The command line, as a client of all servers."""
        environment = {**self.environment, "ARCLOG_HOME": str(self.folder / "client")}
        return run_text(*arguments, "--server", self.urls, env=environment)

    def _answer(self, index: int, path: str, body: object = None) -> httpx2.Response | None:
        url = f"http://127.0.0.1:{self.ports[index]}{path}"
        try:
            return httpx2.get(url) if body is None else httpx2.post(url, json=body)
        except httpx2.HTTPError:
            return None

    @property
    def dead(self) -> list[int]:
        return [process.returncode for process in self.all if process.poll() is not None]

    def alive(self) -> int:
        return next(index for index, process in enumerate(self.all) if process.poll() is None)

    def start(self, playbook: str) -> str:
        answer = self._answer(self.alive(), "/api/execute", {"playbook": playbook})
        assert answer is not None
        assert answer.status_code == 201, answer.text
        run: str = answer.json()["execution_id"]
        return run

    def reason(self, run: str) -> str:
        """Why a run is in quarantine, once it is, by the server that put it there. Another one may not know it yet."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for index, process in enumerate(self.all):
                if f"execution {run}: poison" in self._log(index) and process.poll() is None:
                    answer = self._answer(index, f"/api/executions/{run}/why")
                    assert answer is not None, self._log(index)
                    return answer.text
            time.sleep(0.1)
        raise AssertionError(f"not in quarantine; dead: {self.dead}\n{self._log(self.alive())[-3000:]}")

    def _log(self, index: int) -> str:
        return (self.folder / f"output-{index}").read_text()

    def kill_the_next_that_stands(self, stand: Path, then: str = "") -> int:
        """Kill the server that stands still in the middle of its work on a run. `then` is what the next one does. Returns its number."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for index, process in enumerate(self.all):
                if process.poll() is None and stand.with_name(f"{stand.name}-{process.pid}").exists():
                    stand.write_text(then or stand.read_text())
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    return index
            time.sleep(0.02)
        raise AssertionError(f"no server stands still; dead: {self.dead}")

    def start_again(self, index: int) -> None:
        self.all[index] = self._process(index)
        self._wait_for(index)

    def start_dead_again(self) -> None:
        for index, process in enumerate(self.all):
            if process.poll() is not None:
                self.start_again(index)

    def signals(self, run: str) -> list[tuple[str, str, str]]:
        """The signals in a run's log: their names, senders and reasons."""
        events = self.ask_at(self.alive(), f"/api/executions/{run}/events")["events"]
        payloads = [event["payload"] for event in events if event["event_type"] == "signal.received"]
        return [(payload["signal"], payload["by"], payload["reason"]) for payload in payloads]

    def runs_healthy(self) -> None:
        """Every server that is left runs what is healthy."""
        for index, process in enumerate(self.all):
            if process.poll() is None:
                answer = self._answer(index, "/api/execute", {"playbook": HEALTHY})
                assert answer is not None
                assert self.ended_at(index, answer.json()["execution_id"]) == "COMPLETED"


@pytest.fixture
def servers(request: pytest.FixtureRequest, tmp_path: Path, postgres: Database) -> Iterator[Servers]:
    site = Servers(tmp_path, postgres.dsn, request.param)
    try:
        site.wait()
        yield site
    finally:
        site.close()


def doomed(tool: str) -> str:
    return f"{{metadata: {{name: doomed}}, workflow: [{{step: start, tool: {tool}}}]}}"


def assert_confirmed(servers: Servers, postgres: Database, run: str) -> None:
    """The marks of the first server confirm what was presumed, and the run stays in quarantine."""
    with postgres.connect() as connection:
        rows = connection.execute(
            "SELECT count, presumed FROM arclog.crashes WHERE execution_id = %s", [run]
        ).fetchall()
    assert rows == [(2, 0)]
    assert [name for name, _, _ in servers.signals(run)] == ["PAUSE"]


@pytest.mark.parametrize("servers", ["WorkReported"], indirect=True)
def test_a_report_kills_two_servers_of_four(servers: Servers) -> None:
    servers.worker_of_all()
    run = servers.start(doomed(NOOP))
    assert "died 2 times in a row while it took in a worker's report" in servers.reason(run)
    assert servers.dead == [-signal.SIGKILL] * 2
    servers.runs_healthy()
    assert servers.dead == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("servers", ["TimerFired"], indirect=True)
def test_a_timer_kills_two_servers_of_four(servers: Servers) -> None:
    servers.worker_of_all()
    run = servers.start(doomed(TIMER))
    assert "died 2 times in a row while it fired a timer" in servers.reason(run)
    servers.runs_healthy()
    assert servers.dead == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("servers", ["LeaseEnded"], indirect=True)
def test_a_lost_lease_kills_two_servers_of_four(servers: Servers) -> None:
    worker = servers.worker_of_all()
    begun = servers.folder / "begun"
    run = servers.start(doomed(f"{{kind: shell, command: [sh, -c, 'touch {begun}; sleep 60']}}"))
    # Not only claimed: what a worker claims and does not receive goes back to the queue, and its lease is not lost.
    until(begun.exists, servers)
    os.killpg(worker.pid, signal.SIGKILL)
    assert "died 2 times in a row while it ended a lost lease" in servers.reason(run)
    assert servers.dead == [-signal.SIGKILL] * 2
    servers.worker_of_all()
    servers.runs_healthy()
    assert servers.dead == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("servers", ["Signal"], indirect=True)
def test_a_signal_kills_two_servers_of_four(servers: Servers) -> None:
    servers.worker_of_all()
    run = servers.start(doomed("{kind: approval}"))
    paused = servers.arclog("pause", run)
    assert "poison" in paused.stdout + paused.stderr
    assert "died 2 times in a row while it took in a signal" in servers.reason(run)
    servers.runs_healthy()
    assert servers.dead == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("servers", ["reading"], indirect=True)
def test_reading_a_log_kills_two_servers_of_four(servers: Servers) -> None:
    # Without a worker: its first claim would read the log on another server at the same time.
    run = servers.start(doomed("{kind: approval}"))
    servers.arclog("why", run)
    assert "poison" in servers.reason(run)
    servers.worker_of_all()
    servers.runs_healthy()
    assert servers.dead == [-signal.SIGKILL] * 2


@pytest.mark.parametrize("servers", ["standing"], indirect=True)
@pytest.mark.parametrize("second", ["waits", "executes"])
def test_a_run_whose_servers_were_killed_from_outside_is_resumed_once_they_are_back(
    servers: Servers, postgres: Database, second: str
) -> None:
    """The first server waits for the store when it is killed. If the second one does, too, it is enough that this one is back."""
    stand = servers.folder / "stand"
    stand.write_text("waits")
    servers.worker_of_all()
    run = servers.start(doomed(NOOP))
    first = servers.kill_the_next_that_stands(stand, second)
    killed = servers.kill_the_next_that_stands(stand)
    assert "the first time without a record of its work" in servers.reason(run)
    assert servers.dead == [-signal.SIGKILL] * 2
    stand.unlink()
    for index in [killed, first] if second == "executes" else [killed]:
        servers.start_again(index)
    assert servers.ended_at(killed, run) == "COMPLETED"
    paused, resumed = servers.signals(run)
    assert paused[:2] == ("PAUSE", "arclog")
    assert resumed == ("RESUME", "arclog", "released from quarantine: no two servers died while they executed it")
    with postgres.connect() as connection:
        assert connection.execute("SELECT * FROM arclog.crashes WHERE execution_id <> 0").fetchall() == []


@pytest.mark.parametrize("servers", ["standing"], indirect=True)
def test_a_run_that_both_servers_executed_when_they_died_stays_in_quarantine(
    servers: Servers, postgres: Database
) -> None:
    stand = servers.folder / "stand"
    stand.write_text("executes")
    servers.worker_of_all()
    run = servers.start(doomed(NOOP))
    killed = [servers.kill_the_next_that_stands(stand) for _ in range(2)]
    assert "the first time without a record of its work" in servers.reason(run)
    stand.unlink()
    for index in killed:
        servers.start_again(index)
    servers.runs_healthy()
    assert_confirmed(servers, postgres, run)


@pytest.mark.parametrize("servers", ["Request"], indirect=True)
def test_a_first_decision_kills_two_servers_of_four(servers: Servers) -> None:
    playbook = servers.folder / "doomed.yaml"
    playbook.write_text(doomed(NOOP))
    servers.worker_of_all()
    reason = "poison: arclog died 2 times in a row while it decided how it begins"
    for _ in range(2):
        ran = servers.arclog("run", str(playbook))
        assert reason in ran.stdout + ran.stderr
        assert servers.dead == [-signal.SIGKILL] * 2
    servers.runs_healthy()
    servers.start_dead_again()
    ran = servers.arclog("run", str(playbook))
    assert reason in ran.stdout + ran.stderr, "their marks confirm it"
    assert servers.dead == []


@pytest.mark.parametrize("servers", ["encoding"], indirect=True)
def test_a_run_whose_events_kill_while_they_are_encoded_stays_in_quarantine(
    servers: Servers, postgres: Database
) -> None:
    """The first server decides its timer in a group."""
    servers.worker_of_all()
    last = "{step: doomed, tool: {kind: noop}}"
    run = servers.start(
        f"{{metadata: {{name: doomed}}, workflow: [{{step: start, tool: {TIMER}, next: {{arcs: [{{step: doomed}}]}}}}, {last}]}}"
    )
    assert "died 2 times in a row while it fired a timer" in servers.reason(run)
    assert servers.dead == [-signal.SIGKILL] * 2
    servers.start_dead_again()
    servers.runs_healthy()
    assert_confirmed(servers, postgres, run)
