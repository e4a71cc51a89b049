"""Several server processes behind one address: `arclog server --processes N`.

All processes are equal; the process that was started supervises them and serves nothing. Each process has its own
listening socket on the common address, which the supervisor keeps open, too, so that connections that arrive while a
process is restarted wait for it. A process whose supervisor is gone drains and ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arclog.model.config.settings import Settings
from arclog.model.errors import SettingsError
from arclog.wiring.backends import keeps_files

# ── listening ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# The socket that a server listens on.

log = logging.getLogger("arclog.server")

#: Number of open files of a server besides its connections: the store, workers' pipes, files of tasks.
OTHER_FILES = 1000
#: Connections that may wait to be accepted.
BACKLOG = 2048


def allow_files(settings: Settings) -> None:
    """Raise the limit of open files to the number that the connections need, as far as this is allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = settings.integer("server.max_connections") + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < needed:
            log.warning(
                "this process may open %d files, and server.max_connections is %d; allow it more (ulimit -n, LimitNOFILE), "
                "or lower the setting",
                most,
                settings.integer("server.max_connections"),
            )


def listen(settings: Settings) -> socket.socket:
    """The listening socket, bound before anything else is opened, so that a port in use is reported at once."""
    return _bound(settings, settings.integer("server.port"), shared=False)


def listen_shared(settings: Settings, count: int) -> list[socket.socket]:
    """Sockets on one address, among which the kernel distributes connections."""
    # With SO_REUSEPORT a port of another such group could be bound, too, so a plain socket tests whether it is free.
    with listen(settings) as probe:
        port = probe.getsockname()[1]
    return [_bound(settings, port, shared=True) for _ in range(count)]


def address_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _bound(settings: Settings, port: int, *, shared: bool) -> socket.socket:
    host = settings.text("server.host")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio disables Nagle's algorithm only if the protocol is named; otherwise a small answer waits 40 ms.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
    except OSError as problem:
        raise SettingsError(
            f"cannot listen on {host}:{port}: {problem.strerror or problem}; stop the process that uses it, or choose "
            "another port (--port, ARCLOG_SERVER_PORT; 0 takes a free one)"
        ) from None
    return listener


# ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

#: The variable by which a process learns that it is one of several: listening socket, pipe to the supervisor, folder of
#: metrics.
VARIABLE = "_ARCLOG_SERVER_MEMBER"
#: A process that ran for at least this long is restarted at once; one that ended sooner, after a pause that doubles.
_STEADY_S = 10.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0
#: Time limit for a process to end after the drain.
_END_S = 10.0
_READY = b"r"
_REPLACED = b"n"


@dataclass(frozen=True)
class Member:
    """The parameters that the supervisor passes to one of its processes."""

    listener: socket.socket
    channel: socket.socket
    #: where each process writes its metrics
    folder: Path
    #: set when another process has taken this one's place, on the same listening socket
    replaced: asyncio.Event = field(default_factory=asyncio.Event)

    def is_ready(self) -> None:
        with suppress(OSError):
            self.channel.send(_READY)

    async def released(self) -> None:
        """Returns when this process has to drain: the supervisor is gone, or another process replaces this one."""
        self.channel.setblocking(False)
        with suppress(OSError):
            if await asyncio.get_running_loop().sock_recv(self.channel, 1) == _REPLACED:
                self.replaced.set()


def member_of(environment: MutableMapping[str, str]) -> Member | None:
    """Returns None if this process was not started by a supervisor. The variable is removed, so that children of
    this process do not inherit it.
    """
    variable = environment.pop(VARIABLE, "")
    if not variable:
        return None
    listener, channel, folder = variable.split(":", 2)
    member = Member(socket.socket(fileno=int(listener)), socket.socket(fileno=int(channel)), Path(folder))
    for sock in (member.listener, member.channel):
        sock.set_inheritable(False)
    return member


def supervise(settings: Settings, announce: Callable[[str], None]) -> int:
    """Keep the processes running until a stop signal; returns the exit code."""
    if keeps_files(settings):
        raise SettingsError(
            "several server processes need PostgreSQL, and the store is a SQLite file of this home: set ARCLOG_STORE_URL, or "
            "leave --processes (server.processes) at 1"
        )
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="arclog-server-"))
        sockets = [stack.enter_context(sock) for sock in listen_shared(settings, settings.integer("server.processes"))]
        return asyncio.run(_Supervisor(settings, sockets, folder, announce).run())


class _Process:
    """One process, from its start to its end."""

    def __init__(self, index: int, process: asyncio.subprocess.Process, channel: socket.socket) -> None:
        self.index = index
        self.process = process
        self.began = time.monotonic()
        #: the pause before the restart, if it ended early
        self.pause = 0.0
        self._channel = channel

    async def ready(self) -> bool:
        """False when it ended before."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.sock_recv(self._channel, 1) == _READY
        except OSError:
            return False

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def release(self) -> None:
        """Let it drain, after another process took its place."""
        with suppress(OSError):
            self._channel.send(_REPLACED)

    async def ended(self) -> int:
        code = await self.process.wait()
        self._channel.close()
        return code


class _Supervisor:
    def __init__(
        self, settings: Settings, sockets: Sequence[socket.socket], folder: str, announce: Callable[[str], None]
    ) -> None:
        self._sockets = sockets
        self._folder = folder
        self._announce = announce
        self._patience_s = settings.number("server.drain_s") + _END_S
        #: the current processes by number; others were replaced and are draining
        self._current: dict[int, _Process] = {}
        self._running: set[_Process] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._is_up = False
        self._code = 0

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self._reload.set)
        try:
            started = [await self._start(index) for index in range(len(self._sockets))]
            up = asyncio.ensure_future(asyncio.gather(*(process.ready() for process in started)))
            if await self._unless_stopped(up) and not all(up.result()):
                await self._stop.wait()  # a process has ended; its exit code becomes that of the server
            if not self._stop.is_set():
                self._is_up = True
                self._announce(address_of(self._sockets[0]))
                while await self._unless_stopped(asyncio.ensure_future(self._reload.wait())):
                    self._reload.clear()
                    await self._replace_all()
        finally:
            await self._end()
        return self._code

    async def _unless_stopped(self, work: asyncio.Future[Any]) -> bool:
        """Return whether the work finished before the stop signal."""
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
            return work.done() and not self._stop.is_set()
        finally:
            for task in (work, stopping):
                task.cancel()
            await asyncio.gather(work, stopping, return_exceptions=True)

    def _on_stop_signal(self) -> None:
        if self._stop.is_set():
            for process in self._running:
                process.signal(signal.SIGTERM)  # a second signal ends the drain
        self._stop.set()

    async def _start(self, index: int) -> _Process:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            descriptors = (self._sockets[index].fileno(), theirs.fileno())
            child = await asyncio.create_subprocess_exec(
                # -P: not with the modules of the working directory, which tasks may be able to write.
                *(sys.executable, "-P", "-m", "arclog", *sys.argv[1:]),
                env={**os.environ, VARIABLE: f"{descriptors[0]}:{descriptors[1]}:{self._folder}"},
                pass_fds=descriptors,
                start_new_session=True,  # only the supervisor handles Ctrl-C, and signals them
            )
        process = self._current[index] = _Process(index, child, ours)
        self._running.add(process)
        task = asyncio.ensure_future(self._watch(process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return process

    async def _watch(self, process: _Process) -> None:
        """Restart the process when it ends unexpectedly."""
        code = await process.ended()
        self._running.discard(process)
        if self._current[process.index] is not process:
            return
        if self._stop.is_set():
            # New connections go to the processes that still drain, which refuse them, instead of waiting here.
            self._sockets[process.index].close()
            return
        if not self._is_up:
            # An error that prevents one process from starting affects all of them.
            self._code = code or 1
            self._stop.set()
            return
        lasted = time.monotonic() - process.began >= _STEADY_S
        process.pause = 0.0 if lasted else min(max(2 * process.pause, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
        log.error("server process %d ended with %d; it is started again", process.process.pid, code)
        with suppress(TimeoutError):
            async with asyncio.timeout(process.pause):
                await self._stop.wait()
        if not self._stop.is_set() and self._current[process.index] is process:
            (await self._start(process.index)).pause = process.pause

    async def _replace_all(self) -> None:
        """One after the other: the next process serves before the last one drains."""
        for index in range(len(self._sockets)):
            old = self._current[index]
            new = await self._start(index)
            if not await new.ready():
                self._current[index] = old
                log.error("reload: a new server process did not start; the old processes continue")
                if old not in self._running and not self._stop.is_set():  # it ended meanwhile
                    await self._start(index)
                return
            old.release()
            if self._stop.is_set():
                return
        log.info("reload: all server processes are new")

    async def _end(self) -> None:
        self._stop.set()
        for process in self._running:
            process.signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                await asyncio.gather(*self._tasks)
        for process in self._running:
            process.signal(signal.SIGKILL)
        await asyncio.gather(*self._tasks)
