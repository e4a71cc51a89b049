"""A cell is one warm python process. It runs one task at a time and serves one execution only.

Messages of the process are read only as fast as they are handled: a task that yields items waits until they are stored.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from arclog.sandbox.confinement_settings import Confinement, confined
from arclog.sandbox.folders import TaskFolders
from arclog.sandbox.launcher import Launcher, clean_environment
from arclog.sandbox.processes import Tree
from arclog.sandbox.protocol import Frame, FrameReader, OversizedFrameError, Report, packed
from arclog.sandbox.streams import Lines

if TYPE_CHECKING:
    from arclog.sandbox.environments import Environment

_READ = 256 * 1024
#: maximum size of a reply's header; the runner truncates message and traceback to less than this
_HEADER_MAX = 1024 * 1024
#: maximum number of unhandled frames; more are left unread, so that the process waits
_INBOX = 4


class Limits(Struct, frozen=True):
    """The limits of one python process."""

    max_memory_bytes: int
    max_processes: int
    max_file_bytes: int
    max_result_bytes: int
    max_log_bytes: int
    #: for all processes of a task together
    max_memory_together: int


class Task(Struct, frozen=True):
    """One task for a cell; the byte strings are JSON."""

    header: bytes
    ctx: bytes
    workload: bytes


class Listener(Protocol):
    """Receives the messages of a task while it runs."""

    log: Callable[[str, str], None]
    #: (done, total, unit), unchecked
    progress: Callable[[Any, Any, Any], None]

    async def items(self, body: bytes) -> None:
        """Store some items of the result, given as a JSON array."""

    async def outputs(self, folders: TaskFolders) -> None:
        """Store the task's outputs. It is called after the task has succeeded, while its files still exist."""

    def stopped(self, stack: str) -> None:
        """Take the stack of a task that was stopped from outside, as `faulthandler` writes it; '' if it is unknown."""


class Reply(Struct, frozen=True, omit_defaults=True):
    """A runner's message about a task."""

    ok: bool
    #: '' for the final answer; 'progress', 'items' and 'outputs' messages may come before it
    say: str = ""
    progress: tuple[int | float | str, int | float | str | None, str] | None = None
    #: number of items sent in earlier messages; 0 if the result is in this message
    items: int = 0
    kind: str = ""
    message: str = ""
    code: str | None = None
    py: dict[str, Any] = {}
    #: the system error behind the failure: errno, class of the exception, file
    refused: tuple[int, str, str] | None = None
    #: the reason why the process cannot serve another task
    retire: str = ""
    result: bytes = b""


class Cell:
    """A python process with its sockets and pipes."""

    def __init__(
        self,
        launcher: Launcher,
        folders: TaskFolders,
        limits: Limits,
        confinement: Confinement | None,
        environment: Environment | None = None,
        files: Path | None = None,
    ) -> None:
        """`files` is an additional folder that it may read."""
        folders.make()
        self.folder = folders.folder
        self._folders = folders
        self._place = folders.identity()
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        #: '' until it is used
        self.execution_id = ""
        #: may serve another task
        self.fit = True
        #: the size of a reply over the limit; 0 if there was none
        self.oversized = 0
        self._workload_sent = False
        #: digest of its environment of packages; '' for the worker's own packages
        self.environment = environment.digest if environment else ""
        self._frames = FrameReader(limits.max_result_bytes + _HEADER_MAX)
        #: received frames that are not yet handled; None marks the end
        self._inbox: deque[Frame | None] = deque()
        self._awaited: asyncio.Future[None] | None = None
        self._reading = True
        self._unsent = memoryview(b"")
        spec = {
            **msgspec.structs.asdict(limits),
            "folder": str(folders.folder),
            "scratch": str(folders.scratch),
            "workdir": str(folders.workdir),
            "fresh": folders.fresh,
            "env": {
                **clean_environment(str(folders.scratch), environment.folder if environment else None),
                "ARCLOG_SCRATCH": str(folders.scratch),
            },
            "site": str(environment.folder) if environment else "",
            **confined(confinement, folders, read=_more_to_read(environment, files)),
            "limits": {
                "memory": f"{limits.max_memory_bytes} bytes (setting python.max_memory_bytes)",
                "file": f"{limits.max_file_bytes} bytes (setting python.max_file_bytes)",
            },
        }
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.tree = Tree(launcher, spec, theirs.fileno())
            except BaseException:
                from shutil import rmtree

                ours.close()
                rmtree(self.folder, ignore_errors=True)
                raise
        ours.setblocking(False)
        self._socket = ours
        self._loop.add_reader(ours.fileno(), self._on_readable)
        self.tree.gone.add_done_callback(self._on_gone)

    @property
    def alive(self) -> bool:
        return not self.tree.gone.done()

    def is_in_place(self) -> bool:
        """Return whether the working directory is still the one that the process started with, not another of the same
        name.
        """
        return self._place == self._folders.identity()

    async def run(self, task: Task, listener: Listener) -> Reply | Report:
        """Run a task. Return the runner's reply, or the guard's report if the runner died. When cancelled, all
        processes are dead before this returns.
        """
        log = listener.log
        out, err = self._listen(log, "stdout"), self._listen(log, "stderr")
        tree = self.tree
        tree.stdout.listener, tree.stderr.listener = out.feed, err.feed
        try:
            self._send(task)
            reply = await self._await_reply(listener)
            tree.stdout.drain()
            tree.stderr.drain()
            if reply is None or reply.retire:
                report = await tree.killed()
                if reply is None:
                    return report
                if report.killed or "processes" in reply.retire:
                    log("log", "processes that the task left running were killed")
        except asyncio.CancelledError:
            listener.stopped((await tree.killed(stack=True)).stack)
            raise
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

    async def _await_reply(self, listener: Listener) -> Reply | None:
        """Return the final answer after handling all messages before it; None if there is none."""
        while True:
            frame = await self._next()
            reply = None if frame is None else _reply_of(frame)
            if frame is None or reply is None or not reply.say:
                return reply
            if reply.say == "items":
                await listener.items(frame[1])
            elif reply.say == "outputs":
                await listener.outputs(self._folders)
                self._put(packed(b"{}"))
            elif reply.progress is not None:
                listener.progress(*reply.progress)

    async def _next(self) -> Frame | None:
        while not self._inbox:
            if not self._reading and self.alive:
                self._reading = True
                self._loop.add_reader(self._socket.fileno(), self._on_readable)
            self._awaited = self._loop.create_future()
            try:
                await self._awaited
            finally:
                self._awaited = None
        return self._inbox.popleft()

    def _listen(self, log: Callable[[str, str], None], stream: str) -> Lines:
        return Lines(stream, log, self._limits.max_log_bytes, "logs.max_task_bytes")

    def _send(self, task: Task) -> None:
        workload = b"" if self._workload_sent else task.workload
        self._workload_sent = True
        self._put(packed(task.header, task.ctx, workload))

    def _put(self, data: bytes) -> None:
        try:
            count = self._socket.send(data)
        except BlockingIOError:
            count = 0
        except OSError:
            return  # the process is ending; its report follows
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
        more = self._read()
        if not more:
            # The runner is gone or has closed its socket. In both cases it has to end, and its report is the answer.
            self.tree.kill()
        if not more or len(self._inbox) >= _INBOX:
            self._loop.remove_reader(self._socket.fileno())
            self._reading = not more  # at the end of the stream, reading is not resumed

    def _on_gone(self, _: asyncio.Future[Report]) -> None:
        """Handle the messages that were sent before the end, then close."""
        self.fit = False
        while self._read(waiting=False):
            pass
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._arrived([None])

    def _read(self, *, waiting: bool = True) -> bool:
        """Read the available data. Return False at the end of the stream."""
        try:
            data = self._socket.recv(_READ)
            self._arrived(self._frames.feed(data))
        except BlockingIOError:
            return waiting
        except OversizedFrameError as problem:
            self.oversized = problem.size
            return False
        except OSError:
            return False
        return bool(data)

    def _arrived(self, frames: Sequence[Frame | None]) -> None:
        self._inbox.extend(frames)
        if self._inbox and self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)


def _more_to_read(environment: Environment | None, files: Path | None) -> list[str]:
    return [str(path) for path in (environment and environment.folder, files) if path is not None]


def _reply_of(frame: Frame) -> Reply | None:
    """Return the reply in a frame, or None if user code tampered with the socket."""
    try:
        reply = msgspec.json.decode(frame[0], type=Reply)
    except msgspec.DecodeError:
        return None
    return msgspec.structs.replace(reply, result=frame[1])
