"""`arclog server --processes N`: several processes behind one address, on PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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

    def execute(self) -> int:
        """Over a connection of its own, so that any process may get it."""
        return httpx2.post(
            f"{self.url}/api/execute", json={"playbook": SHORT}, timeout=30, trust_env=False, verify=False
        ).status_code

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
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
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
        # Both had some, and whoever is asked knows the sum.
        until(lambda: all(group.figure("arclog_executions_started_total") == 20 for _ in range(5)))

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
