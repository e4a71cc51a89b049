"""A run of which the process dies twice is left alone from then on; whatever else there is goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

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


def process(home: Path, what: str, argument: str = "", run: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), str(home), what, argument]
    environment = {**os.environ, "RUN": run, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment, check=False)


def test_a_run_that_kills_the_process_twice_is_quarantined(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = process(home, "start", BOMB)
    assert first.returncode == -signal.SIGKILL, first.stderr
    run = first.stdout.strip()
    second = process(home, "serve", "wait", run)
    assert second.returncode == -signal.SIGKILL, second.stderr

    third = process(home, "serve", run=run)
    assert third.returncode == 0, third.stderr
    told = json.loads(third.stdout)
    assert told["healthy"] == "COMPLETED"
    assert "poison: arclog died 2 times in a row while it" in told["why"]
    assert f"arclog resume {run}" in told["why"]
    assert f"execution {run}: poison" in third.stderr
    fourth = process(home, "serve", run=run)
    assert fourth.returncode == 0, fourth.stderr

    # With the bounds of every day the run fails, and nothing dies.
    released = process(home, "release", run=run)
    assert released.returncode == 0, released.stderr
    told = json.loads(released.stdout)
    assert told["state"] == "FAILED"
    assert "decision.max_bytes" in told["error"]
