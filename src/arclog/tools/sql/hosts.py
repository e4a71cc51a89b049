"""Runs databases (DuckDB, SQLite) in separate processes that are confined like tasks, since SQL can read and write files
and use any amount of memory.

The tasks of one scope share a process for each library, and with it their open files, as DuckDB allows within one
process. A connection is used by one thread at a time; `interrupt` may be called from any. What a process sends back is
bounded. The process's side is `child.sql.databases`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.sandbox.child import cells, wire
from arclog.sandbox.confinement_settings import Confinement, confined, confinement_of, data_root, is_limited
from arclog.sandbox.folders import Folders
from arclog.sandbox.launcher import Launcher, clean_environment
from arclog.sandbox.processes import Tree, bounds, ended_by, not_allowed
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.run import BATCH_BYTES

_MESSAGE = struct.Struct("<cI")
#: Maximum number of idle processes that wait for the next task of their scope.
_IDLE_HOSTS = 4
#: A process is killed if a connection ignores an interrupt for this long.
_PATIENCE_S = 10.0
#: Time limit for learning why a process ended.
_REPORT_S = 15.0
#: Room for an error in a response.
_ERROR_BYTES = 1024 * 1024


class Library(Struct, frozen=True):
    """A library of databases."""

    #: the kind of its tasks
    kind: str
    #: its name in messages
    label: str
    #: raises nothing; makes the exception of an error response
    error: Callable[[dict[str, Any]], Exception]
    #: additional folders that its processes may read
    read: Callable[[Settings], list[str]] = lambda _: []


class Connection:
    """A connection in a host, without a database at first."""

    def __init__(self, host: Host, number: int, sock: socket.socket) -> None:
        self._host = host
        self._number = number
        self._socket = sock
        self._interrupted_at = 0.0
        self._lock = threading.Lock()
        self._closed = False

    @property
    def host(self) -> Host:
        return self._host

    @property
    def folder(self) -> Path:
        """A folder for files that the worker and the process share. It is removed with the process."""
        return self._host.folder

    def write_file(self, name: str, content: bytes) -> Path:
        """Write a new file for the process to read. Links that its process may have put there are not followed."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, 0o600, dir_fd=self._host.place), "wb") as file:
            file.write(content)
        return self.folder / name

    def remove_file(self, name: str) -> None:
        with suppress(OSError):
            os.unlink(name, dir_fd=self._host.place)

    def interrupt(self) -> None:
        """Interrupt the current statement, from any thread. If it does not stop, the process is killed."""
        now = time.monotonic()
        if not self._interrupted_at:
            self._interrupted_at = now
        elif now - self._interrupted_at > _PATIENCE_S:
            self._host.kill()
        self._host.interrupt(self._number)

    def fetch(self, most: int) -> list[tuple[Any, ...]]:
        """Return the next rows: at most so many, and fewer if they are large; an empty list at the end."""
        limits = {"batch_bytes": BATCH_BYTES, "row_bytes": self._host.row_bytes}
        _, body = self.do("fetch", {"most": most, **limits})
        try:
            return cells.unpacked_batch(body, most)
        except (ValueError, TypeError, ArithmeticError, struct.error, RecursionError) as problem:
            self._host.kill()
            raise SqlFailure("killed", f"{self._host.label}'s process returned invalid rows: {problem}") from None

    def close(self) -> None:
        """Close the connection and roll back uncommitted changes. May be called again. On the event loop it does not
        wait.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not _is_on_loop():
                with suppress(Exception):  # it is closed already, or its process is gone
                    self.do("close")
        finally:
            self._socket.close()
            self._host.closed(self._number)

    def do(self, operation: str, arguments: dict[str, Any] | None = None) -> tuple[dict[str, Any], bytes]:
        """Carry out an operation in the process. Raises SqlFailure and the exceptions of the library."""
        body = cells.packed(arguments) if arguments else b""
        request = {"do": operation, "most_bytes": self._host.most_bytes}
        with self._lock:
            try:
                wire.send(self._socket, json.dumps(request).encode(), body)
                frame = wire.receive(self._socket, self._host.most_bytes + _ERROR_BYTES)
            except (OSError, ValueError):
                frame = None
        if frame is None:
            raise self._host.failure()
        header = _header(frame[0])
        if "error" in header:
            raise self._host.error_of(header)
        return header, frame[1]


class Host:
    """One process."""

    def __init__(
        self,
        library: Library,
        launcher: Launcher,
        folders: Folders,
        confinement: Confinement | None,
        settings: Settings,
        scope: str,
        files: Path | None = None,
    ) -> None:
        """`files` is an additional folder that it may read."""
        self.scope = scope
        self.label = library.label
        self.row_bytes = settings.integer("sql.max_row_bytes")
        #: maximum size of a response
        self.most_bytes = BATCH_BYTES + self.row_bytes
        self._library = library
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        own = folders.of_next(library.kind)
        own.make()
        #: for files that the worker and the process share
        self.folder = own.scratch
        self._whole = own.folder
        self._numbers = count(1)
        self._open: set[int] = set()
        self._gone = threading.Event()
        root = data_root(settings)
        home = str(Path.home()) if confinement is None or "/" in confinement.read else str(own.scratch)
        spec = {
            "databases": library.kind,
            "cwd": root if root is not None and is_limited(settings, confinement) else str(Path.cwd()),
            "folder": str(own.folder),
            "env": {**clean_environment(str(own.scratch)), "HOME": home},
            **bounds(settings),
            **confined(
                confinement,
                own,
                read=[*library.read(settings), *([] if files is None else [str(files)])],
                write=[] if root is None else [root],
            ),
        }
        self.place = os.open(own.scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.tree = Tree(launcher, spec, theirs.fileno())
            except BaseException:
                os.close(self.place)
                self._control.close()
                shutil.rmtree(own.folder, ignore_errors=True)
                raise
        self._stderr = bytearray()
        self.tree.stderr.listener = self._on_stderr
        self.tree.gone.add_done_callback(lambda _: self._gone.set())

    @property
    def alive(self) -> bool:
        return not self.tree.gone.done()

    @property
    def in_use(self) -> bool:
        return bool(self._open)

    def connection(self) -> Connection:
        """Return a new connection without a database."""
        ours, theirs = socket.socketpair()
        number = next(self._numbers)
        with theirs:
            try:
                socket.send_fds(self._control, [_MESSAGE.pack(b"c", number)], [theirs.fileno()])
            except OSError as problem:
                ours.close()
                raise SqlFailure(
                    "killed", f"{self.label}'s process does not accept a connection: {problem}", "START"
                ) from None
        self._open.add(number)
        return Connection(self, number, ours)

    def error_of(self, header: dict[str, Any]) -> Exception:
        """Return the exception of an error response."""
        if "refused" in header:
            kind, code, retryable = header["refused"]
            return SqlFailure(str(kind), str(header["text"]), code, retryable=retryable)
        if header["error"] == cells.RowTooLarge.__name__:
            message = f"a row is larger than {self.row_bytes} bytes (setting sql.max_row_bytes)"
            return SqlFailure("limit", message, "sql.max_row_bytes")
        return self._library.error(header)

    def closed(self, number: int) -> None:
        self._open.discard(number)

    def interrupt(self, number: int) -> None:
        try:
            self._control.send(_MESSAGE.pack(b"i", number), socket.MSG_DONTWAIT)
        except OSError:
            return  # it is busy or gone; the waiting caller repeats the interrupt

    def kill(self) -> None:
        """Kill the process, from any thread."""
        self._loop.call_soon_threadsafe(self.tree.kill)

    def failure(self) -> SqlFailure:
        """Return the error for a process that does not respond. Must not be called on the event loop."""
        self.kill()
        self._gone.wait(_REPORT_S)
        if not self.tree.gone.done():
            return SqlFailure("killed", f"{self.label}'s process no longer responds", "SIGKILL")
        report = self.tree.gone.result()
        refused = not_allowed(report, self._settings)
        if refused is not None:
            return SqlFailure(refused.kind, refused.message, refused.code, retryable=refused.retryable)
        if report.failed:
            return SqlFailure("killed", f"{self.label}'s process could not be started: {report.failed}", "START")
        how, code = ended_by(report.status)
        stderr = self._stderr.decode("utf-8", "replace").strip()[-500:]
        return SqlFailure("killed", f"{self.label}'s process ended: {how}{': ' + stderr if stderr else ''}", code)

    async def close(self) -> None:
        """End the process and remove its folder."""
        self._control.close()
        os.close(self.place)
        await self.tree.finished()
        if self._whole.exists():  # its guard was killed before it could remove the folder
            await asyncio.to_thread(shutil.rmtree, self._whole, ignore_errors=True)

    def _on_stderr(self, data: bytes) -> None:
        self._stderr += data
        del self._stderr[:-2000]


class Hosts:
    """The processes of a worker for one library, one per scope."""

    def __init__(self, library: Library, settings: Settings, scratch: Path) -> None:
        self._library = library
        self._scratch = scratch
        self._users = 0
        self._settings = settings
        self._folders = Folders(settings, scratch)
        # Without a replacement for the home: a file written there by mistake would be lost without notice. Where tasks
        # read everything, databases in temporary folders are no exception.
        confinement = confinement_of(settings, scratch)
        home = str(Path(settings.text("home")).absolute())
        self._confinement = confinement and msgspec.structs.replace(
            confinement,
            replaced={
                path: name
                for path, name in confinement.replaced.items()
                if path != home and "/" not in confinement.read
            },
        )
        self._launcher = Launcher(library=library.kind)
        self._hosts: dict[str, Host] = {}
        #: processes that serve a single task, because it reads files
        self._of_one_task: set[Host] = set()
        self._ending: set[asyncio.Task[None]] = set()

    @staticmethod
    def shared(library: Library, settings: Settings, scratch: Path) -> Hosts:
        """Return the processes of a worker. Its kinds share them, and with them their open files. Each kind calls
        `close`.
        """
        hosts = _SHARED.get((library.kind, scratch))
        if hosts is None:
            hosts = _SHARED[library.kind, scratch] = Hosts(library, settings, scratch)
        hosts._users += 1
        return hosts

    def start(self) -> None:
        """Start the zygote early. Needs no event loop."""
        self._launcher.start()

    def connection(self, scope: str, files: Path | None = None) -> Connection:
        """Return a connection in the process of a scope, which is started if necessary. A task that reads `files` gets
        its own process until `release`, since a process's permissions are fixed when it starts.
        """
        if files is None:
            return self._of(scope).connection()
        host = Host(self._library, self._launcher, self._folders, self._confinement, self._settings, scope, files)
        try:
            connection = host.connection()
        except BaseException:
            self._end(host)
            raise
        self._of_one_task.add(host)
        return connection

    def release(self, connection: Connection) -> None:
        """End the process of a finished task, if the task had its own."""
        host = connection.host
        if host in self._of_one_task:
            self._of_one_task.discard(host)
            self._end(host)

    def _of(self, scope: str) -> Host:
        host = self._hosts.pop(scope, None)
        if host is not None and not host.alive:
            self._end(host)
            host = None
        if host is None:
            host = Host(self._library, self._launcher, self._folders, self._confinement, self._settings, scope)
        self._hosts[scope] = host  # the most recently used one is last
        idle = [other for other in self._hosts.values() if not other.in_use and other is not host]
        for other in idle[: max(0, len(idle) - _IDLE_HOSTS)]:
            del self._hosts[other.scope]
            self._end(other)
        return host

    def _end(self, host: Host) -> None:
        ending = asyncio.get_running_loop().create_task(host.close())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Release the processes. The last user ends them."""
        self._users -= 1
        if self._users > 0:
            return
        _SHARED.pop((self._library.kind, self._scratch), None)
        for host in (*self._hosts.values(), *self._of_one_task):
            self._end(host)
        self._hosts.clear()
        self._of_one_task.clear()
        if self._ending:
            await asyncio.wait(set(self._ending))
        await self._launcher.close()


#: by library and the worker's scratch folder
_SHARED: dict[tuple[str, Path], Hosts] = {}


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _header(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"error": "InternalException", "text": "its process returned an invalid response"}
