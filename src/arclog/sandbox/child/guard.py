"""A guard owns one runner and its whole family: when the runner ends, or the worker asks or is gone, nobody survives.

As first process of its own pid namespace it kills by kernel decree; elsewhere it is the family's subreaper and kills
until it has no child left. Letters from the worker: `t` asks the runner's group to stop, `k` (or end of file) kills, `s`
kills after the python runner has written where it is.
It answers with one JSON report once all are dead.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH115, TID252

from __future__ import annotations

import _socket
import json
import os
import select
import signal
import struct
import sys
import traceback
from typing import Any, NoReturn

from . import kernel, start, trees

_CENSUS_MS = 250
#: Time that a runner has to begin to write its stack, and how long its silence means that it has ended.
_STACK_MS = 300
_STACK_QUIET_MS = 20
_STACK_MAX = 65536
_SIZE = struct.Struct("<I")


def main(files: list[int], *, parent: int, isolated: bool) -> NoReturn:
    """Read the spec, start the runner, watch it, clean up, exit. Never returns."""
    channel = _socket.socket(fileno=files[0])
    try:
        kernel.set_name("arclog-guard")
        os.setsid()
        wakeup = wake_on(signal.SIGCHLD, signal.SIGTERM)
        kernel.prctl(kernel.PDEATHSIG, signal.SIGTERM)
        kernel.prctl(kernel.SUBREAPER, 1)
        if parent and os.getppid() != parent:
            os._exit(1)
        if isolated:
            kernel.own_proc()
        spec = _spec(channel)
        if spec is not None:
            _Watch(channel, wakeup, spec, isolated=isolated).run(files)
    except BaseException:  # noqa: BLE001 - the last line of defence: the worker must hear of it
        report(channel, failed=traceback.format_exc())
    os._exit(0)


class _Watch:
    """The life of one runner."""

    def __init__(self, channel: _socket.socket, wakeup: int, spec: dict[str, Any], *, isolated: bool) -> None:
        self.channel = channel
        self.wakeup = wakeup
        self.spec = spec
        self.isolated = isolated
        self.runner = 0
        self.status: int | None = None
        self.crowd = 0
        self.asked = False
        self.stack = b""
        self.stack_read, self.stack_write = os.pipe()

    def run(self, files: list[int]) -> None:
        failure_read, failure_write = os.pipe()
        self.runner = os.fork()
        if self.runner == 0:
            signal.set_wakeup_fd(-1)
            start.runner(self.spec, files[1:], failure_write, guard=os.getppid(), stack=self.stack_write)
        os.close(failure_write)
        os.close(self.stack_write)
        for file in files[1:]:
            os.close(file)
        self._watch()
        left = self._end_family()
        failure = os.read(failure_read, 4096).decode()
        report(
            self.channel,
            status=self.status,
            left=left,
            crowd=self.crowd,
            failed=failure,
            isolated=self.isolated,
            stack=self.stack.decode("utf-8", "replace"),
        )
        if self.spec.get("folder"):
            trees.remove_tree(self.spec["folder"])

    def _watch(self) -> None:
        """Return when the family has to end."""
        limit = self.spec.get("max_processes") or 0
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        while True:
            ready = poll.poll(_CENSUS_MS if limit else None)
            for fd, _ in ready:
                if fd == self.wakeup:
                    if signal.SIGTERM in os.read(self.wakeup, 4096) or self._reap():
                        return
                elif (letter := self._letter()) == b"t":
                    self.asked = True
                    trees.send_signal(-self.runner, signal.SIGTERM)
                else:
                    if letter == b"s" and "argv" not in self.spec:
                        self._ask_stack()
                    return
            if limit and not ready:
                count = self._count()
                if count > limit:
                    self.crowd = count
                    return

    def _ask_stack(self) -> None:
        """Have the runner write where it is, for as long as it does."""
        trees.send_signal(self.runner, signal.SIGUSR1)
        poll = select.poll()
        poll.register(self.stack_read, select.POLLIN)
        wait_ms = _STACK_MS
        while len(self.stack) < _STACK_MAX and poll.poll(wait_ms):
            part = os.read(self.stack_read, _STACK_MAX)
            if not part:
                return
            self.stack += part
            wait_ms = _STACK_QUIET_MS

    def _letter(self) -> bytes:
        try:
            return self.channel.recv(1)
        except ConnectionError:
            return b""

    def _reap(self) -> bool:
        """Bury the dead; true when the runner is one of them, or, when asked to stop, once all are."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == self.runner:
                self.status = status
                if not self.asked:
                    return True
            elif not pid:
                return False

    def _count(self) -> int:
        return len(trees.family(int(os.readlink("/proc/self"))))

    def _end_family(self) -> int:
        """Kill until no child is left; answers how many processes beside the runner were still there."""
        left: set[int] = set()
        while True:
            if self.isolated:
                trees.send_signal(-1, signal.SIGKILL)
            else:
                for pid in trees.family(os.getpid()):
                    left.add(pid)
                    trees.send_signal(pid, signal.SIGKILL)
            # Blocking is right: every direct child has been killed, and each death may hand us new ones.
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            left.add(pid)
            if pid == self.runner:
                self.status = status
        return len(left - {self.runner})


def report(channel: _socket.socket, **facts: Any) -> None:
    """The guard's last word; nobody listening is fine."""
    body = json.dumps(facts).encode()
    try:
        channel.sendall(_SIZE.pack(len(body)) + body)
    except OSError:
        return


def wake_on(*signals: signal.Signals) -> int:
    """A file that becomes readable when one of the signals arrives; it then holds their numbers."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return readable


def _spec(channel: _socket.socket) -> dict[str, Any] | None:
    """What to start, as sent by the worker; None when it is gone already."""
    head = channel.recv(_SIZE.size, _socket.MSG_WAITALL)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    parts: list[bytes] = []
    while size:
        part = channel.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    spec: dict[str, Any] = json.loads(b"".join(parts))
    return spec


if sys.platform != "linux":
    raise SystemExit("arclog's sandbox needs Linux")
