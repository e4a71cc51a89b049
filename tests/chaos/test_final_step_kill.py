"""`kill -9` of a worker, of the server and of `arclog run` while the final step runs: the run ends as it was to end, once.

The task of the final step writes to a ledger outside and waits for a file, so that every kill falls into it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arclog.ports.views.api import SignalRequest
from arclog.wiring.embedded import Embedded
from tests.chaos.test_remote_workers import DEADLINE_S, Site, site, until

pytestmark = pytest.mark.slow

__all__ = ["site"]

PLAYBOOK = """\
metadata: {name: last_words}
executor: {spec: {final_step: last, result: "{{ start.data }}"}}
workload: {ledger: /dev/null, go: /nowhere, end: completed}
workflow:
  - step: start
    tool:
      - {name: broken, kind: assert, that: "{{ workload.end != 'failed' }}", message: broken on purpose}
      - name: held
        kind: shell
        command: [sh, -c, 'echo start >> "$1"; if [ "$2" = cancelled ]; then sleep 600; fi', sh, "{{ workload.ledger }}", "{{ workload.end }}"]
      - {name: value, kind: noop, data: 7}
  - step: last
    tool:
      - name: write
        kind: shell
        command: [sh, -c, 'echo "last $3" >> "$1"; while [ ! -e "$2" ]; do sleep 0.05; done', sh, "{{ workload.ledger }}", "{{ workload.go }}", "{{ outcome.state }}"]
      - {name: seen, kind: noop, data: "{{ outcome.state }}", spec: {set_ctx: {seen: "{{ outcome.data }}"}}}
"""

ENDS = ["completed", "failed", "cancelled"]


def begin(site: Site, end: str) -> str:
    """Start a run and wait until its final step is in the middle of its task."""
    run = site.begin(PLAYBOOK, go=str(site.folder / "go"), end=end)
    if end == "cancelled":
        until(lambda: "start" in site.lines(), site)
        cancel(site, run)
    until(lambda: f"last {end}" in site.lines(), site)
    return run


def cancel(site: Site, run: str) -> None:
    async def go(runtime: Embedded) -> None:
        await runtime.api.signal(run, SignalRequest(signal="CANCEL", signal_id="stop", reason="test"))

    site.ask(go)


def let_go(site: Site) -> None:
    (site.folder / "go").touch()


def checked(site: Site, run: str, end: str) -> list[dict[str, Any]]:
    """The events of the run, which ended as it was to end."""

    async def ended(runtime: Embedded) -> Any:
        await runtime.api.ended(run, timeout_s=DEADLINE_S)
        return await runtime.api.summary(run)

    summary = site.ask(ended)
    assert summary.state == end.upper(), site.output.read_text()
    assert summary.ctx == {"seen": end}
    assert summary.result == (7 if end == "completed" else None)
    if end == "failed":
        assert summary.error["message"] == "broken on purpose"
        assert summary.error["step"] == "start"
    events = site.events(run)
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    terminal = [event for event in events if event["event_type"] in {"playbook.finished", "execution.cancelled"}]
    assert len(terminal) == 1
    ends = [event for event in events if event["event_type"] in {"step.done", "step.failed"}]
    assert max(event["seq"] for event in ends) < terminal[0]["seq"]
    assert [event["step"] for event in events if event["event_type"] == "step.scheduled"] == ["start", "last"]
    return events


@pytest.mark.parametrize("end", ENDS)
def test_a_worker_is_killed_in_the_final_step(site: Site, end: str) -> None:
    site.server()
    first = site.worker("first")
    run = begin(site, end)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    site.worker("second")
    until(lambda: site.lines().count(f"last {end}") == 2, site)
    let_go(site)
    events = checked(site, run, end)
    reasons = [event["payload"]["reason"] for event in events if event["event_type"] == "command.issued"]
    assert reasons == ["lease_lost"]
    assert site.lines().count(f"last {end}") == 2, "the task in flight was done again, nothing else"


@pytest.mark.parametrize("end", ENDS)
def test_the_server_is_killed_in_the_final_step(site: Site, end: str) -> None:
    site.environment["ARCLOG_LEASES_SECONDS"] = "30"
    server = site.server()
    site.worker("only")
    run = begin(site, end)
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()
    let_go(site)  # the task ends while nobody listens
    site.server()
    checked(site, run, end)
    assert site.lines().count(f"last {end}") == 1, "within its lease, what was done is delivered"


@pytest.mark.parametrize("end", ENDS)
def test_arclog_run_is_killed_in_the_final_step(tmp_path: Path, end: str) -> None:
    file, ledger, go = tmp_path / "flow.yaml", tmp_path / "ledger", tmp_path / "go"
    file.write_text(PLAYBOOK)
    ledger.touch()
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ARCLOG_")}
    environment = {**clean, "ARCLOG_HOME": str(tmp_path / "home")}
    arclog = [sys.executable, "-m", "arclog.cli.main"]
    output = tmp_path / "output"

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*arclog, *words], env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
        )

    def written(line: str) -> int:
        return ledger.read_text().splitlines().count(line)

    def wait_for(line: str, times: int = 1) -> None:
        watch = Site.__new__(Site)
        watch.output = output
        until(lambda: written(line) >= times, watch)

    sets = ["--set", f"ledger={ledger}", "--set", f"go={go}", "--set", f"end={end}"]
    with output.open("ab") as to:
        process = subprocess.Popen(
            [*arclog, "run", str(file), "--json", *sets], env=environment, stdout=to, stderr=to, start_new_session=True
        )
        try:
            if end == "cancelled":
                wait_for("start")
                assert command("cancel", "last", "--reason", "test").returncode == 0
            wait_for(f"last {end}")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    go.touch()
    resumed = command("resume", "last", "--json")
    assert resumed.returncode == {"completed": 0, "failed": 1, "cancelled": 3}[end], resumed.stderr
    summary = json.loads(resumed.stdout)
    assert summary["state"] == end.upper()
    assert summary["ctx"] == {"seen": end}
    assert written(f"last {end}") == 2
    assert written("start") == (0 if end == "failed" else 1)
