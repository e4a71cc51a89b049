"""The few Linux calls that Python 3.11 lacks: prctl, and a fork into fresh namespaces.

Failing is an answer here, not an exception: what the kernel refuses, the caller does without.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal

PDEATHSIG = 1
SET_NAME = 15
SUBREAPER = 36
NO_NEW_PRIVS = 38

_NEWNS = 0x00020000
_NEWPID = 0x20000000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
_MS_REC_PRIVATE = 0x4000 | 0x40000
_CLONE_NUMBER = {"x86_64": 56, "aarch64": 220, "riscv64": 220}

_libc = ctypes.CDLL(None, use_errno=True)
#: keeps the interpreter lock during the call, as a fork must
_locked = ctypes.PyDLL(None, use_errno=True)


def prctl(option: int, value: int) -> bool:
    return int(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)) == 0


def set_name(name: str) -> None:
    """The process's name as `ps` and `top` show it, at most 15 letters."""
    _libc.prctl(SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def flush() -> None:
    """Write out what C code printed."""
    _libc.fflush(None)


def fork_isolated() -> tuple[int, bool]:
    """Fork into a new pid and mount namespace; where that is refused, an ordinary fork. Answers (pid, isolated)."""
    number = _CLONE_NUMBER.get(platform.machine())
    if number is None:
        return os.fork(), False
    flags = ctypes.c_ulong(_NEWPID | _NEWNS | signal.SIGCHLD)
    ctypes.pythonapi.PyOS_BeforeFork()
    pid = int(_locked.syscall(ctypes.c_long(number), flags, None, None, None, None))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0, True
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid > 0:
        return pid, True
    return os.fork(), False


def own_proc() -> None:
    """Show only the own namespace's processes in /proc; other processes' environments become unreadable by path."""
    if _libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None) == 0:
        _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC), None)
