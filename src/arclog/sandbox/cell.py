"""A cell is one warm python process. It runs one task at a time and belongs to one execution for all its life."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from arclog.sandbox.launcher import Launcher, clean_environment
from arclog.sandbox.processes import Tree
from arclog.sandbox.protocol import Frame, FrameReader, OversizedFrameError, Report, packed
from arclog.sandbox.streams import Lines

_READ = 256 * 1024
#: a reply's header: message and traceback are cut to less than this
_HEADER_MAX = 1024 * 1024


class Limits(Struct, frozen=True):
    """What one python process may use."""

    max_memory_bytes: int
    max_processes: int
    max_file_bytes: int
    max_result_bytes: int
    max_log_bytes: int


class Task(Struct, frozen=True):
    """One task for a cell; the byte strings are JSON."""

    header: bytes
    ctx: bytes
    workload: bytes


class Reply(Struct, frozen=True, omit_defaults=True):
    """What a runner says of a task."""

    ok: bool
    kind: str = ""
    message: str = ""
    code: str | None = None
    py: dict[str, Any] = {}
    #: why the process cannot serve another task
    retire: str = ""
    result: bytes = b""


class Cell:
    """A python process with its sockets and pipes."""

    def __init__(self, launcher: Launcher, folder: Path, limits: Limits, *, isolated: bool) -> None:
        folder.mkdir(mode=0o700)
        self.folder = folder
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        #: '' while nobody has used it
        self.execution_id = ""
        #: may be kept for another task
        self.fit = True
        #: size of a reply that no honest runner sends
        self.oversized = 0
        self._workload_sent = False
        self._frames = FrameReader(limits.max_result_bytes + _HEADER_MAX)
        self._reply: asyncio.Future[Frame | None] | None = None
        self._unsent = memoryview(b"")
        ours, theirs = socket.socketpair()
        with theirs:
            spec = {
                **msgspec.structs.asdict(limits),
                "scratch": str(folder),
                "env": clean_environment(str(folder)),
                "limits": {
                    "memory": f"{limits.max_memory_bytes} bytes (setting python.max_memory_bytes)",
                    "file": f"{limits.max_file_bytes} bytes (setting python.max_file_bytes)",
                },
            }
            try:
                self.tree = Tree(launcher, spec, theirs.fileno(), isolated=isolated)
            except BaseException:
                ours.close()
                folder.rmdir()
                raise
        ours.setblocking(False)
        self._socket = ours
        self._loop.add_reader(ours.fileno(), self._on_readable)
        self.tree.gone.add_done_callback(self._on_gone)

    @property
    def alive(self) -> bool:
        return not self.tree.gone.done()

    async def run(self, task: Task, log: Callable[[str, str], None]) -> Reply | Report:
        """The runner's reply, or the report of its death. When cancelled, everything is dead before this returns."""
        out, err = self._listen(log, "stdout"), self._listen(log, "stderr")
        tree = self.tree
        tree.stdout.listener, tree.stderr.listener = out.feed, err.feed
        self._reply = self._loop.create_future()
        try:
            self._send(task)
            frame = await self._reply
            tree.stdout.drain()
            tree.stderr.drain()
            reply = None if frame is None else _reply_of(frame)
            if reply is None or reply.retire:
                report = await tree.killed()
                if reply is None:
                    return report
                if report.left or "processes" in reply.retire:
                    log("log", "processes that the task left running were killed")
        except BaseException:
            await tree.killed()
            raise
        else:
            return reply
        finally:
            self.fit = self.fit and self.alive
            tree.stdout.listener = tree.stderr.listener = None
            out.end()
            err.end()
            self._reply = None

    def _listen(self, log: Callable[[str, str], None], stream: str) -> Lines:
        return Lines(stream, log, self._limits.max_log_bytes, "logs.max_task_bytes")

    def _send(self, task: Task) -> None:
        workload = b"" if self._workload_sent else task.workload
        self._workload_sent = True
        data = packed(task.header, task.ctx, workload)
        try:
            count = self._socket.send(data)
        except BlockingIOError:
            count = 0
        except OSError:
            return  # it is dying: its report will answer
        if count < len(data):
            self._unsent = memoryview(data)[count:]
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())

    def _on_readable(self) -> None:
        if not self._read():
            # The runner is gone or has closed its socket; either way it has to end, and the report will answer.
            self._loop.remove_reader(self._socket.fileno())
            self.tree.kill()

    def _on_gone(self, _: asyncio.Future[Report]) -> None:
        """Take a reply that was sent before the end, then close."""
        self.fit = False
        while self._reply is not None and not self._reply.done() and self._read(waiting=False):
            pass
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._answer(None)

    def _read(self, *, waiting: bool = True) -> bool:
        """Take what has come; false when nothing more can come."""
        try:
            data = self._socket.recv(_READ)
            frame = self._frames.feed(data)
        except BlockingIOError:
            return waiting
        except OversizedFrameError as problem:
            self.oversized = problem.size
            return False
        except OSError:
            return False
        if frame is not None:
            self._answer(frame)
        return bool(data)

    def _answer(self, frame: Frame | None) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_result(frame)


def _reply_of(frame: Frame) -> Reply | None:
    """The reply in a frame; None when user code tampered with the wire."""
    try:
        reply = msgspec.json.decode(frame[0], type=Reply)
    except msgspec.DecodeError:
        return None
    return msgspec.structs.replace(reply, result=frame[1])
