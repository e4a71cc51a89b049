"""The same playbook at every size: each example leaves the same log on SQLite in one process and on PostgreSQL + NATS with a
server and a worker of their own, but for ids, times, and the order in which things beside each other happened.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster.local import Cluster
from tests.e2e.test_cli import EXAMPLES, ROOT, TOLD

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
#: What differs from run to run wherever it happens.
PASSING = {
    *("event_id", "timestamp", "persisted_at", "execution_id", "seq", "cause_id", "command_id", "worker_id", "fence"),
    *("duration_ms", "due", "until", "run_id", "plan", "lease_until", "child", "signal_id", "by", "report"),
}
#: Ids, hashes, folders and ports that programs made up.
MADE_UP = re.compile(r"\b\d{17,19}\b|\b[0-9a-f]{64}\b|(/tmp/|\./|transfer-|tmp\.)[\w./-]+|\"port\":\s*\d+")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    one = Cluster(tmp_path_factory.mktemp("cluster"), servers=1, pools=[["default"]])
    try:
        one.start()
        yield one
    finally:
        one.close()


def arclog(*words: str, **where: str) -> list[Any]:
    """What a command says: its JSON values, one a line."""
    done = subprocess.run(
        [sys.executable, "-m", "arclog.cli.main", *words, "--json"],
        env={**os.environ, **where},
        cwd=where.get("FOLDER"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return [json.loads(line) for line in done.stdout.splitlines()]


def finished(name: str, **where: str) -> dict[str, Any]:
    """The summary of an example's run."""
    file = str(ROOT / f"examples/{name}.yaml")
    summary: dict[str, Any]
    if name not in TOLD:
        summary = arclog("run", file, **where)[-1]
        return summary
    started = subprocess.Popen(
        [sys.executable, "-m", "arclog.cli.main", "run", file, "--json"],
        env={**os.environ, **where},
        cwd=where.get("FOLDER"),
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (waiting := [one for one in arclog("list", **where)[-1] if one["path"] == name]):
        assert time.monotonic() < deadline, f"{name} never began"
    arclog(TOLD[name][0], waiting[0]["execution_id"], **where)
    out, _ = started.communicate(timeout=PATIENCE_S)
    summary = json.loads(out.splitlines()[-1])
    return summary


def logs_of(execution_id: str, **where: str) -> dict[str, Any]:
    """The events of a run, and of those that it called: in order for each thing that does one thing after the other."""
    found: dict[str, Any] = {}
    for event in arclog("events", execution_id, **where):
        place = event.get("iteration_id") or event.get("step_run_id") or event["entity_type"]
        found.setdefault(place, []).append(tidied(event))
    return found


def tidied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: tidied(each) for key, each in value.items() if key not in PASSING}
    if isinstance(value, list):
        return [tidied(each) for each in value]
    return MADE_UP.sub("*", value) if isinstance(value, str) else value


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_an_example_leaves_the_same_log_at_every_size(name: str, tmp_path: Path, cluster: Cluster) -> None:
    alone = {"ARCLOG_HOME": str(tmp_path / "home"), "FOLDER": str(tmp_path)}
    together = {"ARCLOG_SERVER": cluster.url, "FOLDER": str(tmp_path)}
    here, there = finished(name, **alone), finished(name, **together)
    assert here["result"] == there["result"] == EXAMPLES[name]
    assert logs_of(here["execution_id"], **alone) == logs_of(there["execution_id"], **together)
