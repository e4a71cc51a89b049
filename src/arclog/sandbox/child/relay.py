"""Connects a sandbox without a network to the networks that the settings allow.

The sandbox is in an empty network namespace. The relay is a process of the guard outside of that namespace. A filter
stops each connect(2) of the sandbox and asks the relay (a seccomp user notification). The relay reads the address once,
checks it, connects to it, and then connects the task's socket to its own listener inside the namespace. From there it
forwards the bytes.

Invariant: the sandbox never has a socket that reaches beyond the namespace. A task that deceives or bypasses the relay
is in an empty network: the protection comes from the namespace, not from the answers to the filter.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH123, PTH208, TID252

from __future__ import annotations

import _socket
import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import struct
from collections.abc import Callable
from typing import Any, NoReturn

from . import kernel
from .networks import Names, Networks, is_own_loopback

NAME_SERVER = "127.0.0.1"
_NAME_PORT = 53
_BACKLOG = 128
_CHUNK = 65536
_ACCEPT_MS = 1000

_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
#: Let the system call continue unchanged.
_CONTINUE = 1
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438
_PIDFD_THREAD = os.O_EXCL
_MOST_ADDRESS = 128
_SO_PROTOCOL, _SO_DOMAIN = 38, 39
_INET, _INET6 = int(_socket.AF_INET), int(_socket.AF_INET6)
_LEAST = {_INET: 8, _INET6: 24}
_LISTENERS, _FILTER = b"l", b"f"

_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class Started:
    """A started relay, as used by its guard and its runner."""

    def __init__(self, channel: _socket.socket, pid: int) -> None:
        self.pid = pid
        self.channel = channel

    def listen(self) -> None:
        """In the guard, inside the new network namespace: create the sockets that the relay serves there."""
        listener = _listener()
        names = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        names.bind((NAME_SERVER, _NAME_PORT))
        _send(self.channel, _LISTENERS, [listener.fileno(), names.fileno()])
        listener.close()
        names.close()

    def watch(self, filter_fd: int) -> None:
        """In the runner: pass the filter's notifications to the relay, and close the channel to it."""
        _send(self.channel, _FILTER, [filter_fd])
        os.close(filter_fd)
        self.channel.close()


def start(networks: dict[str, Any]) -> Started:
    """In the guard, before it leaves the machine's network: fork the relay."""
    ours, theirs = _pair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            _become_relay(theirs.fileno())
            _Relay(theirs, Networks(networks)).run()
        finally:
            os._exit(0)
    theirs.close()
    return Started(ours, pid)


def _pair() -> tuple[_socket.socket, _socket.socket]:
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET | _socket.SOCK_CLOEXEC)
    return ours, theirs


def _become_relay(kept: int) -> None:
    """Close the guard's files, and keep the machine's view of the file system, which name resolution needs."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    kernel.prctl(kernel.PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.DUMPABLE, 0)
    kernel.set_name("arclog-relay")
    kernel.unshare(kernel.NEWNS)
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
    try:
        kernel.mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)
    except OSError:  # only older kernels need it, for connects of threads
        pass
    for entry in os.listdir("/proc/self/fd"):
        if int(entry) != kept:
            try:
                os.close(int(entry))
            except OSError:  # the listing's own descriptor
                continue


class _End:
    """One end of a relayed connection."""

    __slots__ = ("ended", "other", "sock", "unsent")

    def __init__(self, sock: _socket.socket) -> None:
        self.sock = sock
        self.other = self
        #: data to be sent to it
        self.unsent = b""
        #: its input has ended
        self.ended = False


class _Relay:
    """The relay of one sandbox."""

    def __init__(self, channel: _socket.socket, networks: Networks) -> None:
        self._networks = networks
        self._channel = channel
        self._poll = select.poll()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._filter = -1
        self._listener: _socket.socket | None = None
        self._register(channel.fileno(), select.POLLIN, self._on_channel)

    def run(self) -> NoReturn:
        """Serve until the sandbox is gone."""
        while True:
            for fd, events in self._poll.poll():
                handler = self._handlers.get(fd)
                if handler is not None:
                    handler(events)

    def _register(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        self._poll.register(fd, events)
        self._handlers[fd] = handler

    def _forget(self, fd: int) -> None:
        if self._handlers.pop(fd, None) is not None:
            self._poll.unregister(fd)

    def _on_channel(self, _: int) -> None:
        word, files = _receive(self._channel)
        if word == _LISTENERS:
            listener, names = (_socket.socket(fileno=file) for file in files)
            listener.setblocking(False)
            self._listener = listener
            answers = Names(names, self._networks)
            self._register(names.fileno(), select.POLLIN, lambda _: answers.receive())
        elif word == _FILTER:
            self._filter = files[0]
            self._register(self._filter, select.POLLIN, self._on_filter)
        elif self._filter < 0:
            os._exit(0)  # the runner ended before it started
        else:
            self._forget(self._channel.fileno())

    # --- requests of the filter
    # ---------------------------------------------------------------------------------------------

    def _on_filter(self, events: int) -> None:
        if not events & select.POLLIN:
            os._exit(0)  # no process uses the filter any more
        notification = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._filter, _RECEIVE, notification)
        except OSError:  # the calling process is gone
            return
        number, pid, _, _, _, _, file, address, size = _NOTIFICATION.unpack(notification)[:9]
        try:
            self._connect(number, pid, ctypes.c_int(file & 0xFFFF_FFFF).value, _memory(pid, address, size))
        except OSError as problem:
            self._answer(number, problem.errno or errno.ENETUNREACH)

    def _connect(self, number: int, pid: int, file: int, address: bytes) -> None:
        family = struct.unpack_from("=H", address)[0] if len(address) >= 2 else 0
        if len(address) < _LEAST.get(family, _MOST_ADDRESS + 1):
            self._answer(number, 0, _CONTINUE)
            return
        host = address[4:8] if family == _INET else address[8:24]
        if not self._networks.permits(host):
            if is_own_loopback(host):
                self._answer(number, 0, _CONTINUE)
            else:
                self._answer(number, errno.ENETUNREACH)
            return
        task = _socket_of(pid, file)
        domain, protocol = (task.getsockopt(_socket.SOL_SOCKET, which) for which in (_SO_DOMAIN, _SO_PROTOCOL))
        if domain not in _LEAST or protocol != _socket.IPPROTO_TCP:
            task.close()
            self._answer(number, 0, _CONTINUE)
            return
        self._dial(number, task, family, _target(family, address))

    def _dial(self, number: int, task: _socket.socket, family: int, target: tuple[Any, ...]) -> None:
        """Connect to the task's destination, then connect the task's socket to the relay."""
        outside = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        outside.setblocking(False)
        problem = outside.connect_ex(target)
        if problem not in (0, errno.EINPROGRESS):
            outside.close()
            task.close()
            self._answer(number, problem)
            return

        def connected(_: int) -> None:
            self._forget(outside.fileno())
            failed = outside.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR)
            try:
                if failed:
                    raise OSError(failed, os.strerror(failed))
                self._join(task, outside)
            except OSError as problem:
                outside.close()
                self._answer(number, problem.errno or errno.ECONNABORTED)
            else:
                self._answer(number, 0)
            finally:
                task.close()

        self._register(outside.fileno(), select.POLLOUT, connected)

    def _join(self, task: _socket.socket, outside: _socket.socket) -> None:
        listener = self._listener
        if listener is None:
            raise OSError(errno.ENETUNREACH, "there is no listener")
        domain, port = task.getsockopt(_socket.SOL_SOCKET, _SO_DOMAIN), listener.getsockname()[1]
        if domain == _INET:
            loopback = "127.0.0.1"
        else:
            loopback = "::1" if listener.family == _socket.AF_INET6 else "::ffff:127.0.0.1"
        try:
            task.connect((loopback, port))
        except BlockingIOError:
            pass
        source = task.getsockname()[1]
        inside = _accepted(listener, source)
        for sock in (inside, outside):
            sock.setblocking(False)
            sock.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        first, second = _End(inside), _End(outside)
        first.other, second.other = second, first
        self._update(first)
        self._update(second)

    def _answer(self, number: int, problem: int, flags: int = 0) -> None:
        try:
            fcntl.ioctl(self._filter, _SEND, _ANSWER.pack(number, 0, -problem, flags))
        except OSError:  # the calling process is gone
            return

    # --- forwarding
    # ---------------------------------------------------------------------------------------------------------

    def _update(self, end: _End) -> None:
        """Poll for the events that this end can handle next."""
        wanted = 0 if end.ended or end.other.unsent else select.POLLIN
        if end.unsent:
            wanted |= select.POLLOUT
        fd = end.sock.fileno()
        if wanted:
            self._register(fd, wanted, lambda events: self._on_end(end, events))
        else:
            self._forget(fd)

    def _on_end(self, end: _End, events: int) -> None:
        try:
            if end.unsent and events & (select.POLLOUT | select.POLLERR | select.POLLHUP):
                self._put(end, b"")
            if not end.ended and not end.other.unsent and events & ~select.POLLOUT:
                self._pass(end)
        except BlockingIOError:
            pass
        except OSError:
            self._close(end)
            return
        if end.ended and end.other.ended and not (end.unsent or end.other.unsent):
            self._close(end)
            return
        self._update(end)
        self._update(end.other)

    def _pass(self, end: _End) -> None:
        data = end.sock.recv(_CHUNK)
        if not data:
            end.ended = True
        self._put(end.other, data)

    def _put(self, end: _End, data: bytes) -> None:
        """Send data to an end. If its peer has ended and everything is sent, shut it down for writing."""
        end.unsent += data
        while end.unsent:
            try:
                end.unsent = end.unsent[end.sock.send(end.unsent) :]
            except BlockingIOError:
                return
        if end.other.ended:
            end.sock.shutdown(_socket.SHUT_WR)

    def _close(self, end: _End) -> None:
        for side in (end, end.other):
            self._forget(side.sock.fileno())
            side.sock.close()


def _accepted(listener: _socket.socket, source: int) -> _socket.socket:
    """Accept the connection from this port; close others."""
    accept: Any = listener._accept  # type: ignore[attr-defined]  # noqa: SLF001 - what socket.socket.accept is made of
    waiting = select.poll()
    waiting.register(listener.fileno(), select.POLLIN)
    while waiting.poll(_ACCEPT_MS):
        fd, address = accept()
        sock = _socket.socket(fileno=fd)
        if address[1] == source:
            return sock
        sock.close()
    raise OSError(errno.ECONNABORTED, "the connection was not received")


def _listener() -> _socket.socket:
    """Return a listening socket for IPv4 and IPv6, or for IPv4 alone if the machine has no IPv6."""
    try:
        sock = _socket.socket(_socket.AF_INET6, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        sock.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 0)
        sock.bind(("::", 0))
    except OSError:
        sock = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
        sock.bind(("127.0.0.1", 0))
    sock.listen(_BACKLOG)
    return sock


def _target(family: int, address: bytes) -> tuple[Any, ...]:
    port = struct.unpack_from("!H", address, 2)[0]
    if family == _INET:
        return _socket.inet_ntop(_socket.AF_INET, address[4:8]), port
    scope = struct.unpack_from("=I", address, 24)[0] if len(address) >= 28 else 0
    return _socket.inet_ntop(_socket.AF_INET6, address[8:24]), port, 0, scope


def _memory(pid: int, address: int, size: int) -> bytes:
    """Read an address from the memory of a process, at most _MOST_ADDRESS bytes."""
    size = min(size, _MOST_ADDRESS)
    buffer = ctypes.create_string_buffer(size or 1)
    local = _Vector(ctypes.cast(buffer, ctypes.c_void_p), size)
    remote = _Vector(ctypes.c_void_p(address), size)
    enabled, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    _libc.process_vm_readv.restype = ctypes.c_ssize_t
    count = int(
        _libc.process_vm_readv(ctypes.c_int(pid), ctypes.byref(local), enabled, ctypes.byref(remote), enabled, none)
    )
    if count < 0:
        raise OSError(ctypes.get_errno(), "the address cannot be read")
    return buffer.raw[:count]


def _socket_of(pid: int, file: int) -> _socket.socket:
    """Return a copy of another process's socket."""
    process = _opened(pid)
    try:
        copied = kernel.syscall(_PIDFD_GETFD, ctypes.c_int(process), ctypes.c_int(file), ctypes.c_uint(0))
    finally:
        os.close(process)
    try:
        return _socket.socket(fileno=copied)
    except OSError:
        os.close(copied)
        raise


def _opened(pid: int) -> int:
    """Return a pidfd of a process, given the id of one of its threads."""
    for flags in (0, _PIDFD_THREAD):
        try:
            return kernel.syscall(_PIDFD_OPEN, ctypes.c_int(pid), ctypes.c_uint(flags))
        except OSError as problem:
            if problem.errno not in (errno.EINVAL, errno.ENOENT):
                raise
    with open(f"/proc/{pid}/status", "rb") as file:  # Linux before 6.9
        leader = next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))
    return kernel.syscall(_PIDFD_OPEN, ctypes.c_int(leader), ctypes.c_uint(0))


def _send(channel: _socket.socket, word: bytes, files: list[int]) -> None:
    channel.sendmsg([word], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", files))])


def _receive(channel: _socket.socket) -> tuple[bytes, list[int]]:
    try:
        word, ancillary, _, _ = channel.recvmsg(1, _socket.CMSG_SPACE(8), _socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return b"", []
    files = array.array("i")
    for _, _, data in ancillary:
        files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return word, list(files)
