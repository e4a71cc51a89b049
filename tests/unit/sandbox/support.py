"""Shared parts of the sandbox's and tools' tests: contexts that remember their log, and a census of real processes."""

from __future__ import annotations

import os
import select
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arclog.ports.tool import TaskContext
from arclog.testing.tools import task_context

#: far above what a healthy machine needs; reached only when something is broken
PATIENCE_S = 30


@dataclass
class Log:
    """Takes live log lines."""

    lines: list[tuple[str, str]] = field(default_factory=list)

    def __call__(self, stream: str, text: str) -> None:
        self.lines.append((stream, text))

    def of(self, stream: str) -> list[str]:
        return [text for name, text in self.lines if name == stream]


def context(log: Any = None, **changes: Any) -> TaskContext:
    values: dict[str, Any] = {
        "execution_id": "11",
        "step": "fetch",
        "task": "parse",
        "run": 1,
        "attempt": 2,
        "key": "key-1",
        "workload": {"region": "eu", "nested": {"a": [1]}},
        "ctx": {"total": 7},
        "timeout_s": 60.0,
        "log": log or Log(),
    }
    return task_context(**{**values, **changes})


def marker() -> str:
    """An argument for `sleep` that no other process has: about ten years."""
    return f"3{uuid.uuid4().int % 10**8:08d}.{uuid.uuid4().int % 10**8:08d}"


def may_isolate() -> bool:
    """Whether we may make namespaces: CAP_SYS_ADMIN is bit 21."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> 21 & 1)
    return False


def all_processes() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdigit()]


def processes_with(text: str) -> list[int]:
    """Living processes whose command line holds the text, ourselves excepted."""
    pids = []
    for process in all_processes():
        try:
            line = (process / "cmdline").read_bytes()
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if text.encode() in line and state != "Z" and int(process.name) != os.getpid():
            pids.append(int(process.name))
    return pids


#: Servers that a test process keeps for all its tests; what stands below them is theirs.
_KEEPERS = (
    "postgres_keeper",
    "nats-server",
    "moto",
    "multiprocessing.forkserver",
    "multiprocessing.resource_tracker",
    "tests.servers.command_parent",
)


def offspring() -> list[int]:
    """All living descendants of this process but the servers that it keeps for tests."""
    parents: dict[int, int] = {}
    for process in all_processes():
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z" and not _is_kept(process):
            parents[int(process.name)] = int(fields[1])
    pids = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in pids} - pids
        if not more:
            return sorted(pids - {os.getpid()})
        pids |= more


def _is_kept(process: Path) -> bool:
    try:
        command = (process / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return any(word in command for word in _KEEPERS)


def wait_dead(pids: list[int]) -> list[int]:
    """Wait until the processes are dead; answers those that are not after a long time."""
    alive = []
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(PATIENCE_S * 1000):
            alive.append(pid)
        os.close(handle)
    return alive
