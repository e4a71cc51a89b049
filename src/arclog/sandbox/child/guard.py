"""A guard owns one runner and its process tree. It kills the whole tree when the runner ends, when the worker asks for
it, or when the worker is gone.

If the guard is the first process of a pid namespace, the kernel kills the others with it. Without a namespace it is
their subreaper and kills until no child is left. Letters from the worker: `t` asks the runner's process group to stop,
`k` (or end of file) kills, `s` kills after the python runner has written its stack. When all are dead, the guard sends
one JSON report and removes their folder; if the spec has `keeps_folder`, it waits for the letter `r` before the
removal.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH115, PTH118, PTH119, PTH120, PTH208, TID252

from __future__ import annotations

import _socket
import faulthandler
import json
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

from . import confine, kernel, trees
from . import runner as python
from .runner import RunnerFolders
from .view import View

# ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Turns a forked guard into a runner: all limits and restrictions are applied here, before user code runs.
#
# A spec with `argv` executes that program, one with `databases` serves DuckDB or SQLite, one with `probe` writes the restrictions
# in force; any other becomes the python runner.

_NOFILE = 1024
_STDERR = 2
#: Services that the zygote has loaded for its runners, by the key of a spec.
services: dict[str, Callable[[_socket.socket], NoReturn]] = {}


def become_runner(
    spec: dict[str, Any], facts: confine.Facts, files: list[int], failure: int, *, guard: int, stack: int
) -> NoReturn:
    """Become the runner. `files` are the task socket or stdin, stdout and stderr; `failure` gets the error if the start
    fails, `stack` the stack of python code when the guard requests it.
    """
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        kernel.prctl(kernel.PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        kernel.prctl(kernel.DUMPABLE, 1)
        if "argv" in spec:
            _program(spec, facts, files)
        elif "probe" in spec:
            _probe(spec, facts, files)
        elif "databases" in spec:
            _databases(spec, facts, files, failure)
        else:
            _python(spec, facts, files, failure, stack)
    except confine.NotConfined as problem:
        os.write(failure, f"confinement {problem}".encode()[:4000])
    except BaseException as problem:  # noqa: BLE001 - the last line of defence: the guard must hear of it
        number = getattr(problem, "errno", None) or 0
        os.write(failure, f"{number} {type(problem).__name__}: {problem}".encode("utf-8", "replace")[:4000])
    os._exit(127)


def _program(spec: dict[str, Any], facts: confine.Facts, files: list[int]) -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for target, file in enumerate(files):
        os.dup2(file, target)
    kernel.close_at_exec(_STDERR + 1)
    os.chdir(spec["cwd"])
    if facts:
        _limit(resource.RLIMIT_CORE, 0)
        confine.drop(spec, facts)
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


def _probe(spec: dict[str, Any], facts: confine.Facts, files: list[int]) -> None:
    """Write the restrictions in force to stdout."""
    confine.drop(spec, facts)
    os.write(files[1], json.dumps(facts).encode())
    os._exit(0)


def _databases(spec: dict[str, Any], facts: confine.Facts, files: list[int], failure: int) -> None:
    control = _alone(f"arclog-{spec['databases']}", spec, files, (failure, *_relayed(facts)))
    try:
        os.chdir(spec["cwd"])
    except OSError:  # the folder is not accessible, so relative paths must not work either
        os.chdir("/")
    _limit(resource.RLIMIT_CORE, 0)
    if facts:
        confine.drop(spec, facts)
    os.close(failure)
    services["databases"](control)


def _python(spec: dict[str, Any], facts: confine.Facts, files: list[int], failure: int, stack: int) -> None:
    # The runner adopts orphans of user code, so it only has to check for children at the end of a task.
    kernel.prctl(kernel.SUBREAPER, 1)
    tasks = _alone("arclog-python", spec, files, (failure, stack, *_relayed(facts)))
    os.chdir(spec["scratch"])
    for kind, value in (
        (resource.RLIMIT_AS, spec["max_memory_bytes"]),
        (resource.RLIMIT_FSIZE, spec["max_file_bytes"]),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, _NOFILE),
    ):
        _limit(kind, value)
    if facts:
        confine.drop(spec, facts)
    if spec.get("site"):
        _enter_environment(spec["site"])
    os.close(failure)
    # The signal handler itself writes the stack, so this works while the task holds the interpreter lock.
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)
    python.serve(tasks, RunnerFolders(spec), int(spec["max_result_bytes"]), spec["limits"])


def _enter_environment(folder: str) -> None:
    """Become the Python of an environment of packages and load them.

    This happens here, confined, and not in the zygote: packages may run code when they are loaded (.pth files), and may
    have replaced the environment's own files (bin/python, pyvenv.cfg).
    """
    import site

    sys.executable = os.path.join(folder, "bin", "python")
    sys.prefix = sys.exec_prefix = folder
    site.main()


def _alone(name: str, spec: dict[str, Any], files: list[int], kept: tuple[int, ...]) -> _socket.socket:
    """Close all files of a forked interpreter except its standard streams, the socket to the worker and those in
    `kept`.
    """
    kernel.set_name(name)
    kernel.prctl(kernel.NO_NEW_PRIVS, 1)
    os.environ.clear()
    os.environ.update(spec["env"])
    sock = _socket.socket(fileno=os.dup(files[0]))
    null = os.open(os.devnull, os.O_RDONLY)
    for target, file in enumerate((null, files[1], files[2])):
        os.dup2(file, target)
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) > _STDERR and int(entry) not in (sock.fileno(), *kept):
            _close(int(entry))
    return sock


def _relayed(facts: confine.Facts) -> list[int]:
    """Return the descriptor that sends the filter's notifications to the relay, if there is a relay."""
    started = facts.get("relay")
    return [] if started is None else [started.channel.fileno()]


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    wanted = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (wanted, wanted))


def _close(file: int) -> None:
    try:
        os.close(file)
    except OSError:  # the listing's own descriptor
        return


# ── guard ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

#: Interval between counts of processes and their memory.
_CENSUS_MS = 250
#: Time limit for a runner to begin writing its stack, and the pause after which the stack counts as complete.
_STACK_MS = 300
_STACK_QUIET_MS = 20
_STACK_MAX = 65536
_SIZE = struct.Struct("<I")


def main(files: list[int], *, parent: int, flags: int = 0, identity: tuple[int, int] = (0, 0)) -> NoReturn:
    """Read the spec, start the runner, watch it, clean up and exit. Never returns. `flags` are the namespaces that the
    guard was forked into, `identity` its user and group outside.
    """
    channel = _socket.socket(fileno=files[0])
    try:
        kernel.set_name("arclog-guard")
        os.setsid()
        wakeup = wake_on(signal.SIGCHLD, signal.SIGTERM)
        kernel.prctl(kernel.PDEATHSIG, signal.SIGTERM)
        kernel.prctl(kernel.SUBREAPER, 1)
        if parent and os.getppid() != parent:
            os._exit(1)
        if flags & kernel.NEWUSER:
            kernel.map_identity(*identity)
        spec = _spec(channel)
        if spec is not None:
            _Watch(channel, wakeup, spec, flags).run(files)
    except BaseException:  # noqa: BLE001 - the last line of defence: the worker must hear of it
        report(channel, failed=traceback.format_exc())
    os._exit(0)


class _Watch:
    """Starts, watches and ends one runner."""

    def __init__(self, channel: _socket.socket, wakeup: int, spec: dict[str, Any], flags: int) -> None:
        self.channel = channel
        self.wakeup = wakeup
        self.spec = spec
        self.flags = flags
        self.isolated = bool(flags & kernel.NEWPID)
        self.runner = 0
        #: the process that connects the sandbox to networks; 0 if there is none
        self.relay = 0
        self.status: int | None = None
        self.crowd = 0
        self.memory = 0
        self.asked = False
        self.stack = b""
        self.stack_read, self.stack_write = os.pipe()

    def run(self, files: list[int]) -> None:
        folder = self.spec.get("folder", "")
        # Kept open, since paths above the folder cannot be reached from inside the view.
        parent = os.open(os.path.dirname(folder), os.O_PATH | os.O_DIRECTORY) if folder else -1
        view = None
        try:
            facts: confine.Facts = {}
            if "confinement" in self.spec:
                facts, view = confine.enter(self.spec, self.flags)
            if not self.spec.get("max_processes") and facts.get("threads") == "counted":
                self.spec["max_processes"] = self.spec["confinement"]["max_threads"]
            self._run(files, facts)
            if self.spec.get("keeps_folder"):
                self._until_released()
        finally:
            if folder:
                _remove(os.path.basename(folder), parent, view)

    def _run(self, files: list[int], facts: confine.Facts) -> None:
        # Other processes of this user must not read the guard's memory; the runner reverts this for itself.
        kernel.prctl(kernel.DUMPABLE, 0)
        failure_read, failure_write = os.pipe()
        self.runner = os.fork()
        if self.runner == 0:
            signal.set_wakeup_fd(-1)
            become_runner(self.spec, facts, files[1:], failure_write, guard=os.getppid(), stack=self.stack_write)
        started = facts.pop("relay", None)
        is_relayed = started is not None
        if started is not None:
            self.relay = started.pid
            started.channel.close()
        os.close(failure_write)
        os.close(self.stack_write)
        for file in files[1:]:
            os.close(file)
        self._watch()
        killed = self._end_family()
        failure = os.read(failure_read, 4096).decode()
        report(
            self.channel,
            status=self.status,
            killed=killed,
            crowd=self.crowd,
            memory=self.memory,
            failed=failure,
            stack=self.stack.decode("utf-8", "replace"),
            relayed=is_relayed,
        )

    def _until_released(self) -> None:
        """Wait until the worker has read the task's files or is gone. All processes are dead by now."""
        while self._letter() not in (b"r", b""):
            pass

    def _watch(self) -> None:
        """Return when the process tree has to end."""
        is_bounded = bool(self.spec.get("max_processes") or self.spec.get("max_memory_together"))
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLIN)
        poll.register(self.wakeup, select.POLLIN)
        census_at = time.monotonic() + _CENSUS_MS / 1000
        while True:
            wait_ms = max(0.0, census_at - time.monotonic()) * 1000 if is_bounded else None
            for fd, _ in poll.poll(wait_ms):
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
            # By the clock: a task whose orphans end all the time would otherwise never be counted.
            if is_bounded and time.monotonic() >= census_at:
                if self._is_over():
                    return
                census_at = time.monotonic() + _CENSUS_MS / 1000

    def _ask_stack(self) -> None:
        """Make the runner write its stack, and read it."""
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
        """Reap dead processes. Return True if the runner is one of them or, after a stop request, once all are dead."""
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

    def _is_over(self) -> bool:
        """Count the processes and their total memory. Return True if a limit is exceeded."""
        members = [pid for pid in trees.family(int(os.readlink("/proc/self"))) if pid != self.relay]
        most, room = self.spec.get("max_processes") or 0, self.spec.get("max_memory_together") or 0
        if most and len(members) > most:
            self.crowd = len(members)
        elif room:
            used = trees.memory_of(members, room)
            self.memory = used if used > room else 0
        return bool(self.crowd or self.memory)

    def _end_family(self) -> int:
        """Kill until no child is left. Return the number of processes besides the runner that were still alive."""
        killed: set[int] = set()
        while True:
            if self.isolated:
                trees.send_signal(-1, signal.SIGKILL)
            else:
                for pid in trees.family(os.getpid()):
                    killed.add(pid)
                    trees.send_signal(pid, signal.SIGKILL)
            # Waiting is safe: every direct child has been killed. Each death may turn orphans into our children.
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                break
            killed.add(pid)
            if pid == self.runner:
                self.status = status
        return len(killed - {self.runner, self.relay})


def _remove(name: str, parent: int, view: View | None) -> None:
    try:
        if view is not None:
            view.leave()
        trees.remove_tree(name, parent)
    except OSError:  # the worker removes the rest
        return


def report(channel: _socket.socket, **facts: Any) -> None:
    """Send the guard's report. Errors are ignored."""
    body = json.dumps(facts).encode()
    try:
        channel.sendall(_SIZE.pack(len(body)) + body)
    except OSError:
        return


def wake_on(*signals: signal.Signals) -> int:
    """Return a descriptor that becomes readable, with the signals' numbers, when one of the signals arrives."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in signals:
        signal.signal(number, lambda *_: None)
    return readable


def _spec(channel: _socket.socket) -> dict[str, Any] | None:
    """Read the spec from the worker; None if the worker is gone."""
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
