"""Short ways to write to a store, also from other processes."""

import os
import subprocess
import sys
from pathlib import Path

from arclog.model.events import Event
from arclog.ports.storage.store import Append, ExecutionState, NewExecution, Scope

ROOT = Path(__file__).parents[3]
RUNNING = ExecutionState("RUNNING")


def creation(execution_id: int, *events: Event) -> Append:
    new = NewExecution("r", "n", "p", 1, "d", Scope("t", "p", "e"), 1)
    return Append(execution_id, 0, events or (Event("playbook.started", 1),), execution_id * 1000, RUNNING, new)


def change(execution_id: int, expected: int, *events: Event, **more) -> Append:
    base = execution_id * 1000 + expected
    return Append(execution_id, expected, events or (Event("task.started", 1),), base, RUNNING, **more)


def child(script: str, *arguments: object) -> "subprocess.Popen[str]":
    """Another process that runs this script with the package and these helpers at hand."""
    path = os.pathsep.join([str(ROOT / "src"), str(Path(__file__).parent)])
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
