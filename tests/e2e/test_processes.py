"""`arclog server --processes N`: several processes behind one address, on PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.servers.postgres import Database

PATIENCE_S = 60
SHORT = "metadata: {name: short}\nworkflow: [{step: start, tool: {kind: noop}}]"


class Group:
    """A supervisor with its processes."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def pids(self) -> list[int]:
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return sorted(map(int, text.split()))

    def execute(self, client: httpx2.Client | None = None) -> int:
        """Over a connection of its own, so that any process may get it, or over one that a client keeps."""
        with ExitStack() as stack:
            if client is None:
                client = stack.enter_context(httpx2.Client(timeout=30, trust_env=False, verify=False))
            return client.post(f"{self.url}/api/execute", json={"playbook": SHORT}).status_code

    def figure(self, name: str) -> float:
        text = httpx2.get(f"{self.url}/metrics", timeout=30, trust_env=False, verify=False).text
        match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(match.group(1)) if match else 0.0


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)  # another process is waited for, which tells nobody


@contextmanager
def serving(home: Path, *more: str, **variables: str) -> Iterator[Group]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
    env |= {"ARCLOG_HOME": str(home), **variables}
    command = [sys.executable, "-m", "arclog", "server", "--port", "0", "--json", *more]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, cwd=home)
    assert process.stdout is not None
    try:
        yield Group(process, json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()


def test_processes_are_equal_and_outlast_each_other(tmp_path: Path, postgres: Database) -> None:
    with serving(tmp_path, "--processes", "2", ARCLOG_STORE_URL=postgres.dsn) as group:
        first = group.pids()
        assert len(first) == 2
        assert [group.execute() for _ in range(20)] == [201] * 20
        # Both had some, and whoever is asked knows the sum. So many are asked that both answer: the figures of a process
        # that is killed are lost unless the other one has seen them.
        until(lambda: all(group.figure("arclog_executions_started_total") == 20 for _ in range(20)))

        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(group.pids()) == 2 and first[0] not in group.pids())
        assert [group.execute() for _ in range(10)] == [201] * 10
        until(lambda: all(group.figure("arclog_executions_started_total") >= 30 - 1 for _ in range(5)))

        second = group.pids()
        group.process.send_signal(signal.SIGHUP)
        until(lambda: len(group.pids()) == 2 and not set(second) & set(group.pids()))
        assert [group.execute() for _ in range(10)] == [201] * 10

        group.process.terminate()
        assert group.process.wait(PATIENCE_S) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in (*first, *second))


class Attempt(NamedTuple):
    """One request of a client."""

    began: float
    #: the status, or the error of the connection
    outcome: int | str


@contextmanager
def clients(group: Group, count: int, *, kept: bool = False) -> Iterator[list[Attempt]]:
    """Clients that keep sending requests, each over a new connection, or over connections that they keep; all attempts are in
    the list at the end.
    """
    attempts: list[Attempt] = []
    enough = threading.Event()

    def send() -> None:
        with httpx2.Client(timeout=30, trust_env=False, verify=False) as client:
            while not enough.is_set():
                began = time.monotonic()
                try:
                    outcome: int | str = group.execute(client if kept else None)
                except httpx2.HTTPError as problem:
                    outcome = f"{type(problem).__name__}: {problem}"
                attempts.append(Attempt(began, outcome))

    threads = [threading.Thread(target=send) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield attempts
    finally:
        enough.set()
        for thread in threads:
            thread.join()


def answered_after(attempts: list[Attempt], count: int) -> None:
    """Wait until so many more requests have ended."""
    goal = len(attempts) + count
    until(lambda: len(attempts) >= goal)


@pytest.mark.parametrize("kept", [False, True], ids=["new connections", "kept connections"])
def test_no_request_fails_while_processes_are_replaced(tmp_path: Path, postgres: Database, kept: bool) -> None:
    with serving(tmp_path, "--processes", "2", ARCLOG_STORE_URL=postgres.dsn) as group:
        with clients(group, 8 if kept else 4, kept=kept) as attempts:
            for _ in range(2):
                answered_after(attempts, 20)
                before = group.pids()
                group.process.send_signal(signal.SIGHUP)
                until(lambda old=before: len(group.pids()) == 2 and not set(old) & set(group.pids()))  # type: ignore[misc]  # bound
                answered_after(attempts, 20)
        assert {attempt.outcome for attempt in attempts} == {201}, Counter(attempt.outcome for attempt in attempts)


def test_a_process_that_ends_during_a_reload_that_fails_is_started_again(tmp_path: Path, postgres: Database) -> None:
    with serving(tmp_path, "--processes", "2", ARCLOG_STORE_URL=postgres.dsn) as group:
        old = group.pids()
        settings = tmp_path / "arclog.toml"
        settings.write_text("[server]\nno_setting = 1\n")
        group.process.send_signal(signal.SIGHUP)
        until(lambda: len(group.pids()) == 3)
        os.kill(old[0], signal.SIGKILL)
        until(lambda: len(group.pids()) == 1 or set(group.pids()) - set(old) == set())
        settings.unlink()
        until(lambda: len(group.pids()) == 2 and old[0] not in group.pids())
        assert [group.execute() for _ in range(10)] == [201] * 10


def test_only_requests_on_its_connections_fail_when_a_process_crashes(tmp_path: Path, postgres: Database) -> None:
    with serving(tmp_path, "--processes", "2", ARCLOG_STORE_URL=postgres.dsn) as group:
        with clients(group, 4) as attempts:
            answered_after(attempts, 20)
            victim, other = group.pids()
            os.kill(victim, signal.SIGKILL)
            until(lambda: victim not in group.pids())
            killed = time.monotonic()
            until(lambda: len(group.pids()) == 2)
            answered_after(attempts, 40)
        failed = [attempt for attempt in attempts if attempt.outcome != 201]
        # Each client has one request at a time, and a connection that was opened later cannot be of the killed process.
        assert len(failed) <= 4, failed
        assert all(attempt.began < killed and isinstance(attempt.outcome, str) for attempt in failed), failed
        assert other in group.pids()


@contextmanager
def half_sent(group: Group, count: int) -> Iterator[Callable[[], list[bytes]]]:
    """Requests in progress, of whose bodies a part was sent. What it yields sends the rest and returns the answers."""
    body = json.dumps({"playbook": SHORT}).encode()
    head = f"POST /api/execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    address = urlsplit(group.url)
    with ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = socket.create_connection((address.hostname or "", address.port or 0), PATIENCE_S)
            connections.append(stack.enter_context(connection))
            connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 100 "), "its handler reads the body"
            connection.sendall(body[:10])

        def finish() -> list[bytes]:
            for connection in connections:
                connection.sendall(body[10:])
            return [connection.recv(1000) for connection in connections]

        yield finish


def refuses(group: Group) -> bool:
    """Whether a new request is refused. One that waits is not: it takes the time of those in progress."""
    try:
        return group.execute() == 503
    except httpx2.TimeoutException:
        return False
    except httpx2.HTTPError:
        return True


def test_a_process_that_is_replaced_ends_its_requests_and_gets_no_others(tmp_path: Path, postgres: Database) -> None:
    with serving(tmp_path, "--processes", "2", ARCLOG_STORE_URL=postgres.dsn) as group, half_sent(group, 16) as finish:
        old = group.pids()
        group.process.send_signal(signal.SIGHUP)
        until(lambda: len(group.pids()) == 4)  # the old ones wait for the requests in progress
        time.sleep(2)  # the new ones become ready, and the old ones drain
        assert [group.execute() for _ in range(40)] == [201] * 40
        assert set(old) < set(group.pids())
        assert all(answer.startswith(b"HTTP/1.1 201 ") for answer in finish())
        until(lambda: len(group.pids()) == 2 and not set(old) & set(group.pids()))


def test_a_stop_answers_the_requests_in_progress(tmp_path: Path, postgres: Database) -> None:
    with serving(tmp_path, "--processes", "2", ARCLOG_STORE_URL=postgres.dsn) as group, half_sent(group, 16) as finish:
        group.process.terminate()
        until(lambda: all(refuses(group) for _ in range(10)))
        assert all(answer.startswith(b"HTTP/1.1 201 ") for answer in finish())
        assert group.process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("processes", [1, 2])
def test_a_second_signal_ends_the_drain(tmp_path: Path, postgres: Database, processes: int) -> None:
    variables = {"ARCLOG_STORE_URL": postgres.dsn, "ARCLOG_SERVER_DRAIN_S": "3600"}
    # One request: of two processes, one has nothing to drain and ends at once.
    with serving(tmp_path, "--processes", str(processes), **variables) as group, half_sent(group, 1):
        group.process.terminate()
        until(lambda: all(refuses(group) for _ in range(10)))
        assert group.process.poll() is None
        group.process.terminate()
        assert group.process.wait(PATIENCE_S) == 0


def test_processes_end_with_their_supervisor(tmp_path: Path, postgres: Database) -> None:
    with serving(tmp_path, "--processes", "2", ARCLOG_STORE_URL=postgres.dsn) as group:
        pids = group.pids()
        group.process.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "several server processes need PostgreSQL"),
        ({"ARCLOG_STORE_URL": "postgresql://nobody@127.0.0.1:1/none", "ARCLOG_STORE_PATIENCE_S": "0.1"}, "127.0.0.1"),
    ],
)
def test_what_cannot_start_says_why(tmp_path: Path, variables: dict[str, str], said: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
    command = [sys.executable, "-m", "arclog", "server", "--port", "0", "--processes", "2"]
    ended = subprocess.run(
        command,
        env={**env, "ARCLOG_HOME": str(tmp_path), **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode not in (0, -signal.SIGKILL)
    assert said in ended.stderr
