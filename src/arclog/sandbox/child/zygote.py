"""The zygote: an interpreter that runs no user code and forks guards on request.

    worker ── zygote (one per tool) ── guard (one per sandbox) ── runner (user code) ── its child processes

Every level ends when the one above it is gone, and ends all levels below: a guard adopts the orphans of its runner and
kills them; the zygote does the same for a guard that died. A request is one letter with the guard's files attached.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import _socket
import array
import gc
import os
import select
import signal
import sys

from . import guard, kernel, trees

#: the letter that requests a process in new namespaces; `p` requests a plain one
ISOLATED = b"i"

#: channel to the worker, task socket or stdin, stdout, stderr
_FILES = 4
_PARENT_CHECK_MS = 5_000


def main(control_fd: int, paths: list[str], library: str) -> None:
    """Serve until the worker is gone. With a `library`, runners serve its databases; it is loaded here once for all of
    them.
    """
    sys.path.extend(path for path in paths if path not in sys.path)
    sys.dont_write_bytecode = True
    if library == "duckdb":
        from .sql import duckdb_database

        guard.services["databases"] = duckdb_database.serve
    elif library == "sqlite":
        from .sql import sqlite_service

        guard.services["databases"] = sqlite_service.serve
    kernel.set_name("arclog-zygote")
    kernel.prctl(kernel.SUBREAPER, 1)
    for name in [name for name in sys.modules if name == "child" or name.startswith("child.")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()
    _serve(_socket.socket(fileno=control_fd))


def _serve(control: _socket.socket) -> None:
    parent = os.getppid()
    wakeup = guard.wake_on(signal.SIGCHLD)
    guards: set[int] = set()
    poll = select.poll()
    poll.register(control.fileno(), select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    while os.getppid() == parent:
        for fd, _ in poll.poll(_PARENT_CHECK_MS):
            if fd == wakeup:
                os.read(wakeup, 4096)
                _reap(guards)
                continue
            letter, files = _request(control)
            if not letter:
                os._exit(0)
            if len(files) == _FILES:
                guards.add(_launch(control, wakeup, files, isolated=letter == ISOLATED))
            for file in files:
                os.close(file)
    os._exit(0)


def _request(control: _socket.socket) -> tuple[bytes, list[int]]:
    """Receive one letter and its files; the letter is b"" if the worker is gone."""
    try:
        letter, ancillary, _, _ = control.recvmsg(1, _socket.CMSG_SPACE(_FILES * 4), _socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return b"", []
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return letter, list(files)


def _launch(control: _socket.socket, wakeup: int, files: list[int], *, isolated: bool) -> int:
    zygote, identity = os.getpid(), (os.getuid(), os.getgid())
    try:
        pid, flags = kernel.fork_isolated() if isolated else (os.fork(), 0)
    except OSError as problem:
        guard.report(_socket.socket(fileno=os.dup(files[0])), failed=f"fork: {problem}")
        return 0
    if pid == 0:
        signal.set_wakeup_fd(-1)
        control.close()
        os.close(wakeup)
        # In a new pid namespace, the parent has no pid.
        parent = 0 if flags & kernel.NEWPID else zygote
        guard.main(files, parent=parent, flags=flags, identity=identity)
    return pid


def _reap(guards: set[int]) -> None:
    """Reap dead guards, and kill the processes that a dead guard left, which are now children of the zygote."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            break
        guards.discard(pid)
    for pid in trees.children(os.getpid()):
        if pid not in guards:
            trees.kill(pid)
