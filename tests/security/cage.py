"""A bound on the memory of a process and of all that it starts, as a container has it.

The kernel holds it where this user may make a memory cgroup (version 1 or 2). Elsewhere the memory of the tree is looked at many
times a second, and its largest process is killed when it is too much, as the kernel would do it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


class Cage:
    """Processes that enter it, and their children, share so many bytes."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._folder, self._is_v2 = _made(most)
        self._roots: list[int] = []
        self._peak = self._kills = 0
        self._done = threading.Event()
        self._watch: threading.Thread | None = None
        if self._folder is None:
            self._watch = threading.Thread(target=self._watched, daemon=True)
            self._watch.start()

    @property
    def is_held_by_the_kernel(self) -> bool:
        return self._folder is not None

    @property
    def how(self) -> str:
        """What holds the bound."""
        return "a cgroup" if self.is_held_by_the_kernel else "a watch over the processes"

    def enter(self) -> Callable[[], None] | None:
        """What a child calls between fork and exec (`preexec_fn`)."""
        if self._folder is None:
            return None
        procs = str(self._folder / "cgroup.procs")

        def entering() -> None:
            with open(procs, "w") as file:  # noqa: PTH123 - between fork and exec as little as possible is done
                file.write(str(os.getpid()))

        return entering

    def holds(self, pid: int) -> None:
        """A process that is in it now."""
        self._roots.append(pid)

    @property
    def peak(self) -> int:
        """Most bytes that were taken at once."""
        if self._folder is not None:
            name = "memory.peak" if self._is_v2 else "memory.max_usage_in_bytes"
            with suppress(OSError, ValueError):
                return int((self._folder / name).read_text())
        return self._peak

    @property
    def kills(self) -> int:
        """Processes that were killed because of it."""
        if self._folder is not None:
            name = "memory.events" if self._is_v2 else "memory.oom_control"
            rows = dict(line.split() for line in (self._folder / name).read_text().splitlines())
            return int(rows.get("oom_kill", 0))
        return self._kills

    def close(self) -> None:
        self._done.set()
        if self._watch is not None:
            self._watch.join(5)
        if self._folder is not None:
            for _ in range(50):
                with suppress(OSError):
                    self._folder.rmdir()
                    return
                time.sleep(0.1)

    def _watched(self) -> None:
        while not self._done.wait(0.02):
            sizes = {pid: _size(pid) for root in self._roots for pid in _tree(root)}
            total = sum(sizes.values())
            self._peak = max(self._peak, total)
            if total > self.most:
                self._kills += 1
                with suppress(ProcessLookupError):
                    os.kill(max(sizes, key=lambda pid: sizes[pid]), signal.SIGKILL)


def _made(most: int) -> tuple[Path | None, bool]:
    name = f"arclog-cage-{os.getpid()}-{time.monotonic_ns()}"
    for top, limit, is_v2 in ((_V1, "memory.limit_in_bytes", False), (_V2, "memory.max", True)):
        folder = top / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(most))
            with suppress(OSError):
                (folder / ("memory.swap.max" if is_v2 else "memory.memsw.limit_in_bytes")).write_text(
                    "0" if is_v2 else str(most)
                )
        except OSError:
            folder.rmdir()
            continue
        return folder, is_v2
    return None, False


def _tree(root: int) -> Iterator[int]:
    yield root
    with suppress(OSError):
        for task in Path(f"/proc/{root}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _size(pid: int) -> int:
    """Its own memory, and its part of what it shares."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
