"""A process that stops for longer than its lease (a laptop that slept, a frozen container), then goes on: another one may
take its run over meanwhile, and what the first one still reports changes nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

PLAYBOOK = """\
metadata: {name: zombie}
workflow:
  - step: one
    tool: {kind: shell, command: "echo one >> ledger"}
    next: {arcs: [{step: two}]}
  - step: two
    tool: {kind: shell, command: "echo two >> ledger; sleep 1"}
    next: {arcs: [{step: three}]}
  - step: three
    tool: {kind: shell, command: "echo three >> ledger"}
"""
DEADLINE_S = 60.0


def arclog(folder: Path, *args: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "ARCLOG_HOME": str(folder / "home"), "ARCLOG_LEASES_SECONDS": "1"}
    command = [sys.executable, "-m", "arclog.cli.main", *args]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_a_run_is_taken_over_from_a_process_that_stands_still(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PLAYBOOK)
    ledger = tmp_path / "ledger"
    end = time.monotonic() + DEADLINE_S
    first = arclog(tmp_path, "run", "p.yaml", "--json")
    try:
        while not ledger.exists() or "two" not in ledger.read_text():
            assert time.monotonic() < end
            assert first.poll() is None
            time.sleep(0.01)
        first.send_signal(signal.SIGSTOP)
        while True:  # refused for as long as the lease lasts
            second = arclog(tmp_path, "resume", "last", "--json")
            out, err = second.communicate(timeout=DEADLINE_S)
            if second.returncode != 2:
                break
            assert "is being run by worker" in err
            assert time.monotonic() < end, err
        assert second.returncode == 0, err
        assert msgspec.json.decode(out)["state"] == "COMPLETED"
    finally:
        first.send_signal(signal.SIGCONT)
    late, _ = first.communicate(timeout=DEADLINE_S)
    assert first.returncode == 0
    assert msgspec.json.decode(late)["state"] == "COMPLETED"
    assert sorted(ledger.read_text().split()) == ["one", "three", "two", "two"]
    output, _ = arclog(tmp_path, "events", "last", "--json").communicate(timeout=DEADLINE_S)
    events = [msgspec.json.decode(line) for line in output.split("\n") if line]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    types = [event["event_type"] for event in events]
    assert [types.count(kind) for kind in ("step.done", "task.done", "playbook.finished")] == [3, 3, 1]
