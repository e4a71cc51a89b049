"""A run of which the process dies twice is left alone from then on; whatever else there is goes on."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from arclog.core.boundary.inputs import Continue
from arclog.engine.commits.marked_work import READING, work_of
from arclog.engine.commits.quarantine import MAX_CRASHES
from arclog.model.config.settings import Settings
from arclog.ports.views.api import ExecuteRequest
from arclog.wiring.embedded import embedded
from arclog.wiring.homes.presence import FileMarks
from tests.security.cage import Cage
from tests.servers.postgres import Database

BOMB = """
metadata: {name: bomb}
workflow:
  - step: start
    tool: {kind: wait, for_s: 0.2}
    next:
      arcs:
        - step: last
          args:
            a: "{% set ns = namespace(l=[]) %}{% for i in range(900) %}{% set ns.l = ns.l + [('😀' ~ i) * 1000000] %}{% endfor %}{{ ns.l | length }}"
  - {step: last, tool: {kind: noop}}
"""
PROGRAM = Path(__file__).with_name("dying_server.py")


#: The same without a timer: it kills when the report of its first step comes.
REPORTED = BOMB.replace("{kind: wait, for_s: 0.2}", "{kind: noop}")
LIMIT = 300 << 20
TWO_STEPS = (
    "{step: start, tool: {kind: wait, for_s: 0.2}, next: {arcs: [{step: doomed}]}}, {step: doomed, tool: {kind: noop}}"
)

TWO_TIMERS = """
metadata: {name: doomed}
workflow:
- {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: [{step: first}, {step: second}]}}
- {step: first, tool: {kind: wait, for_s: 0.2}}
- {step: second, tool: {kind: wait, for_s: 0.3}, next: {arcs: [{step: doomed}]}}
- {step: doomed, tool: {kind: noop}}
"""


def process(
    home: Path, what: str, argument: str = "", run: str = "", store: str = "", dies_at: str = ""
) -> subprocess.CompletedProcess[str]:
    """A server under a memory limit, to its end."""
    command = [sys.executable, str(PROGRAM), str(home), what, argument]
    cage = Cage(LIMIT)
    environment = {**os.environ, "RUN": run, "STORE": store, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment["DIES_AT"] = dies_at
    environment["CAGED"] = "1" if cage.is_held_by_the_kernel else ""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=100,
            env=environment,
            check=False,
            preexec_fn=cage.enter(),
        )
    finally:
        cage.close()


@pytest.mark.parametrize(
    "bomb", [pytest.param(BOMB, id="timer"), pytest.param(REPORTED, id="report", marks=pytest.mark.soak)]
)
def test_a_run_that_kills_the_process_twice_is_quarantined(tmp_path: Path, bomb: str) -> None:
    home = tmp_path / "home"
    first = process(home, "start", bomb)
    assert first.returncode == -signal.SIGKILL, first.stderr
    run = first.stdout.strip()
    second = process(home, "serve", "wait", run)
    assert second.returncode == -signal.SIGKILL, second.stderr

    third = process(home, "serve", run=run)
    assert third.returncode == 0, third.stderr
    body = json.loads(third.stdout)
    assert body["healthy"] == "COMPLETED"
    assert "poison: arclog died 2 times in a row while it" in body["why"]
    assert f"arclog resume {run}" in body["why"]
    assert f"execution {run}: poison" in third.stderr
    fourth = process(home, "serve", run=run)
    assert fourth.returncode == 0, fourth.stderr

    # With the bounds of every day the run fails, and nothing dies.
    released = process(home, "release", run=run)
    assert released.returncode == 0, released.stderr
    body = json.loads(released.stdout)
    assert body["state"] == "FAILED"
    assert "decision.max_bytes" in body["error"]


@pytest.mark.soak
@pytest.mark.parametrize(
    ("work", "playbook"),
    [
        pytest.param("LeaseEnded", "{step: start, spec: {pool: apart}, tool: {kind: noop}}", id="lease"),
        pytest.param("Continue", "{step: start, tool: {kind: approval}}", id="recovery"),
        pytest.param("reading", "{step: start, tool: {kind: approval}}", id="reading"),
        pytest.param("encoding", TWO_STEPS, id="encoding"),
        pytest.param("writing", TWO_STEPS, id="writing"),
    ],
)
def test_so_is_one_that_kills_it_while_it_recovers(tmp_path: Path, work: str, playbook: str) -> None:
    """The process is killed in the middle of that work, each time that it begins it."""
    home, text = tmp_path / "home", f"{{metadata: {{name: doomed}}, workflow: [{playbook}]}}"
    first = process(home, "start", text, dies_at=work)
    assert first.returncode == -signal.SIGKILL, first.stderr
    run = first.stdout.strip()
    second = process(home, "serve", "wait", run, dies_at=work)
    assert second.returncode == -signal.SIGKILL, second.stderr
    for _ in range(2):
        later = process(home, "serve", "", run, dies_at=work)
        assert later.returncode == 0, later.stderr
        assert json.loads(later.stdout)["healthy"] == "COMPLETED"
        assert "poison: arclog died 2 times in a row while it" in json.loads(later.stdout)["why"]


@pytest.mark.parametrize(
    ("work", "ways"),
    [
        pytest.param("encoding", ("together", "apart"), id="another input of the run, encoded"),
        pytest.param("writing", ("together", "apart"), id="another input of the run, written", marks=pytest.mark.soak),
        pytest.param("writing", ("group", "apart"), id="other runs"),
    ],
)
def test_so_is_one_that_kills_it_in_a_commit_that_it_shares(tmp_path: Path, work: str, ways: tuple[str, str]) -> None:
    """The first time the run shares a commit. The second time everything has a commit of its own."""
    home, text = (
        tmp_path / "home",
        TWO_TIMERS if ways[0] == "together" else f"{{metadata: {{name: doomed}}, workflow: [{TWO_STEPS}]}}",
    )
    first = process(home, ways[0], text, dies_at=work)
    assert first.returncode == -signal.SIGKILL, first.stderr
    assert ("died in a group" in first.stderr) == (ways[0] == "group")
    run = first.stdout.strip()
    second = process(home, ways[1], dies_at=work)
    assert second.returncode == -signal.SIGKILL, second.stderr
    for _ in range(2):
        later = process(home, "serve", "", run, dies_at=work)
        assert later.returncode == 0, later.stderr
        assert json.loads(later.stdout)["healthy"] == "COMPLETED"
        assert "poison: arclog died 2 times in a row while it fired a timer" in json.loads(later.stdout)["why"]


@pytest.mark.parametrize(
    "source", ["schedule", *(pytest.param(source, marks=pytest.mark.soak) for source in ("request", "child"))]
)
def test_a_run_whose_first_decision_kills_the_process_twice_is_not_begun_again(tmp_path: Path, source: str) -> None:
    """Whoever begins it again finds a run that failed. A retry begins it, once the cause is removed."""
    home = tmp_path / "home"
    for _ in range(2):
        killed = process(home, "begin", source, dies_at="Request")
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    for _ in range(2):
        later = process(home, "begin", source, dies_at="Request")
        assert later.returncode == 0, later.stderr
        begun = json.loads(later.stdout)
        assert begun["state"] == "FAILED"
        assert "poison: arclog died 2 times in a row while it decided how it begins" in begun["error"]
        assert f"`arclog retry {begun['run']}` tries again" in begun["error"]
    served = process(home, "serve", "", begun["run"], dies_at="Request")
    assert served.returncode == 0, served.stderr
    assert json.loads(served.stdout)["healthy"] == "COMPLETED"

    for _ in range(2):
        killed = process(home, "retry", "", begun["run"], dies_at="Request")
        assert killed.returncode == -signal.SIGKILL, "an operator may try"
    retried = process(home, "retry", "", begun["run"])
    assert (retried.returncode, retried.stdout) == (0, "COMPLETED"), retried.stderr
    if source == "request":
        again = process(home, "begin", source)
        assert json.loads(again.stdout)["state"] == "COMPLETED"


@pytest.mark.parametrize("work", [READING, work_of(Continue())], ids=["reading", "recovery"])
def test_resume_continues_a_run_in_quarantine(tmp_path: Path, work: int) -> None:
    """The refusal recommends this command, so it works even where reading the log is what killed the process."""
    playbook = "{metadata: {name: quick}, workflow: [{step: start, tool: {kind: noop}}]}"

    async def interrupted() -> str:
        async with embedded(Settings({"home": str(tmp_path)})) as runtime:
            return (await runtime.api.execute(ExecuteRequest(playbook))).execution_id

    run = asyncio.run(interrupted())
    for number in range(MAX_CRASHES):
        dead = FileMarks(tmp_path, f"dead-{number}")
        dead.begin(0, (int(run), work))
        dead._marks.close()
        os.close(dead._file)

    command = [sys.executable, "-m", "arclog.cli.main", "resume", run]
    environment = {**os.environ, "ARCLOG_HOME": str(tmp_path)}
    resumed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert f"execution {run}: poison: arclog died 2 times in a row" in resumed.stderr


def test_servers_of_one_database_count_together(tmp_path: Path, postgres: Database) -> None:
    """The second death is known to the others before it happens: none of them tries a third time."""
    home, other, store = tmp_path / "one", tmp_path / "other", postgres.dsn
    first = process(home, "start", BOMB, store=store)
    assert first.returncode == -signal.SIGKILL, first.stderr
    run = first.stdout.strip()
    second = process(home, "serve", "wait", run, store)
    assert second.returncode == -signal.SIGKILL, second.stderr
    third = process(other, "serve", "", run, store)
    assert third.returncode == 0, third.stderr
    assert json.loads(third.stdout)["healthy"] == "COMPLETED"
    assert f"execution {run}: poison" in third.stderr
    back = process(home, "serve", "", run, store)
    assert back.returncode == 0, back.stderr
    assert "poison: arclog died" in json.loads(back.stdout)["why"]

    released = process(other, "release", run=run, store=store)
    assert released.returncode == 0, released.stderr
    assert json.loads(released.stdout)["state"] == "FAILED"


def test_a_second_server_that_dies_first_is_the_last_one(tmp_path: Path, postgres: Database) -> None:
    """Each server has a home of its own, and neither comes back: what killed them is known to the third all the same."""
    store = postgres.dsn
    first = process(tmp_path / "one", "start", BOMB, store=store)
    assert first.returncode == -signal.SIGKILL, first.stderr
    run = first.stdout.strip()
    second = process(tmp_path / "two", "serve", "wait", run, store)
    assert second.returncode == -signal.SIGKILL, second.stderr
    for name in ("three", "four"):
        later = process(tmp_path / name, "serve", "held", run, store)
        assert later.returncode == 0, later.stderr
        assert json.loads(later.stdout)["healthy"] == "COMPLETED"
        assert "poison: arclog died 2 times in a row while it fired a timer" in json.loads(later.stdout)["why"]
