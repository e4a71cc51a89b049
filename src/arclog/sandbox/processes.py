"""The worker's side of a guarded process tree. `gone` is done if and only if no process of the tree is alive.

(Without pid namespaces user code can kill its guard; `gone` is done then, and the zygote kills the rest.) Killing needs
no cooperation from the tree: it is enough to close our end of the channel.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.outcome import TaskError, error
from arclog.sandbox.launcher import Launcher
from arclog.sandbox.protocol import Report, packed_spec, report_of
from arclog.sandbox.streams import Stream

#: a killed process may be stuck in the kernel; the guard waits for it, but this process does not
_STUCK_S = 10.0


class Tree:
    """A guard and all processes below it."""

    def __init__(self, launcher: Launcher, spec: dict[str, Any], first: int) -> None:
        """Start the tree. `first` becomes the runner's task socket or stdin; the caller closes it."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self.gone: asyncio.Future[Report] = loop.create_future()
        #: done when the guard has ended and its folder is removed
        self.closed: asyncio.Future[None] = loop.create_future()
        self._received = b""
        self._killed = False
        channel, theirs = socket.socketpair()
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            launcher.launch([theirs.fileno(), first, out_write, err_write], isolated="confinement" in spec)
        except BaseException:
            channel.close()
            os.close(out_read)
            os.close(err_read)
            raise
        finally:
            theirs.close()
            os.close(out_write)
            os.close(err_write)
        self._channel = channel
        channel.setblocking(False)
        self._unsent = memoryview(packed_spec(spec))
        self.stdout = Stream(out_read, loop)
        self.stderr = Stream(err_read, loop)
        loop.add_reader(channel.fileno(), self._on_channel)
        self._write()

    def __del__(self) -> None:
        # The event loop may end before the guard, which ends when the channel is closed.
        if hasattr(self, "_channel"):
            self._channel.close()

    def terminate(self) -> None:
        """Ask the runner and its process group to stop."""
        self._letter(b"t")

    def kill(self, *, stack: bool = False) -> None:
        """Kill the tree without waiting. With `stack`, the report has the stack of the python runner."""
        if not self._killed:
            self._killed = True
            self._letter(b"s" if stack else b"k")

    def release(self) -> None:
        """Let the guard remove the folder that it kept (`keeps_folder`). Call it when all processes are dead."""
        self._letter(b"r")

    async def killed(self, *, stack: bool = False) -> Report:
        """Kill the tree and wait until it has ended, even if this task is cancelled meanwhile."""
        self.kill(stack=stack)
        await self._settled(self.gone)
        return self.gone.result()

    async def finished(self) -> Report:
        """Kill the tree, and wait until the guard has ended and its folder is removed."""
        report = await self.killed()
        await self._settled(self.closed)
        return report

    async def _settled(self, future: asyncio.Future[Any]) -> None:
        cancelled = False
        end = self._loop.time() + _STUCK_S
        while not future.done() and self._loop.time() < end:
            try:
                await asyncio.wait({future}, timeout=end - self._loop.time())
            except asyncio.CancelledError:
                cancelled = True
        if not future.done():
            self._close()
        if cancelled:
            raise asyncio.CancelledError

    def _letter(self, letter: bytes) -> None:
        if not self.closed.done():
            self._unsent = memoryview(bytes(self._unsent) + letter)
            self._write()

    def _write(self) -> None:
        while self._unsent:
            try:
                count = self._channel.send(self._unsent)
            except BlockingIOError:
                self._loop.add_writer(self._channel.fileno(), self._write)
                return
            except OSError:
                self._unsent = memoryview(b"")
                break
            self._unsent = self._unsent[count:]
        self._loop.remove_writer(self._channel.fileno())

    def _on_channel(self) -> None:
        try:
            data = self._channel.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close()
            return
        self._received += data
        report = report_of(self._received)
        if report is not None:
            self._end(report)

    def _close(self) -> None:
        """Clean up after the guard has ended."""
        if self.closed.done():
            return
        self._loop.remove_reader(self._channel.fileno())
        self._loop.remove_writer(self._channel.fileno())
        self._channel.close()
        self.closed.set_result(None)
        self._end(report_of(self._received) or Report())

    def _end(self, report: Report) -> None:
        if not self.gone.done():
            # All writers are dead, so the pipes contain the rest of the output.
            self.stdout.drain()
            self.stderr.drain()
            self.stdout.close()
            self.stderr.close()
            self.gone.set_result(report)


def bounds(settings: Settings) -> dict[str, Any]:
    """Return the part of a guard's spec that limits the whole tree."""
    return {"max_memory_together": settings.integer("tasks.max_memory_bytes")}


def not_allowed(report: Report, settings: Settings) -> TaskError | None:
    """Return the error if a limit in the settings or the confinement ended the tree; else None."""
    if report.memory:
        most = settings.integer("tasks.max_memory_bytes")
        message = f"the processes of the task used {report.memory} bytes of memory together; at most {most} are allowed"
        return error("limit", f"{message} (setting tasks.max_memory_bytes)", code="tasks.max_memory_bytes")
    refused = report.failed.removeprefix("confinement ")
    return error("config", refused, code="CONFINEMENT") if refused != report.failed else None


def ended_by(status: int | None) -> tuple[str, str]:
    """Return a wait status in words and as an error code: ('exit code 3', 'EXIT_3') or ('SIGKILL', 'SIGKILL')."""
    if status is None:
        return "killed together with its guard", "SIGKILL"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}", f"EXIT_{code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"SIG{-code}"
    return name, name
