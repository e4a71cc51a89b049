"""Linux system calls that Python 3.11 lacks, through ctypes: processes, namespaces, mounts and capabilities.

A failed call raises OSError, except for a few best-effort calls (`prctl`, `set_name`).
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH123

from __future__ import annotations

import ctypes
import os
import signal

PDEATHSIG = 1
DUMPABLE = 4
SET_NAME = 15
CAPBSET_DROP = 24
SUBREAPER = 36
NO_NEW_PRIVS = 38
CAP_AMBIENT = 47

NEWNS = 0x00020000
NEWCGROUP = 0x02000000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_UNBINDABLE, MS_SLAVE = 0x1000, 0x4000, 0x20000, 0x80000
_MNT_DETACH = 2
_ATTR_RDONLY, _ATTR_NOSUID, _ATTR_NODEV = 1, 2, 4
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000

MACHINE = os.uname().machine
#: x86_64 has its own system call numbers; other machines share a table. Calls added since 2019 have one number
#: everywhere.
_IS_X86 = MACHINE == "x86_64"
_NUMBERS = {
    "clone": 56 if _IS_X86 else 220,
    "pivot_root": 155 if _IS_X86 else 41,
    "mount_setattr": 442,
    "close_range": 436,
}
#: The machines whose system call numbers are known.
IS_KNOWN = MACHINE in ("x86_64", "aarch64", "riscv64")

_CAP_VERSION = 0x20080522
#: More than the number of capabilities in any kernel.
_MOST_CAPS = 64
_CLOSE_RANGE_CLOEXEC = 4
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_libc = ctypes.CDLL(None, use_errno=True)
#: keeps the interpreter lock during the call, as a fork requires
_locked = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_locked.syscall.restype = ctypes.c_long


class _MountAttributes(ctypes.Structure):
    _fields_ = (
        ("set", ctypes.c_uint64),
        ("clear", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns", ctypes.c_uint64),
    )


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapData(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def syscall(number: int, *args: object) -> int:
    """Make a system call by its number. Raises OSError if it fails."""
    if not IS_KNOWN:
        raise OSError(38, f"unknown machine {MACHINE}")
    result = int(_libc.syscall(ctypes.c_long(number), *args))
    if result < 0:
        raise _failure(f"system call {number}")
    return result


def prctl(option: int, value: int, third: int = 0) -> bool:
    return int(_libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), 0, 0)) == 0


def set_name(name: str) -> None:
    """Set the name of the process for `ps` and `top`, at most 15 characters."""
    _libc.prctl(SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def flush() -> None:
    """Flush the output of C code."""
    _libc.fflush(None)


def fork_isolated() -> tuple[int, int]:
    """Fork into new namespaces, or fork normally if the kernel refuses. Return the pid and the flags of the namespaces:
    pid, mount and ipc, and a user namespace if the caller may not create the others without one.
    """
    if IS_KNOWN:
        wanted = NEWPID | NEWNS | NEWIPC
        for flags in (wanted, wanted | NEWUSER) if os.geteuid() == 0 else (wanted | NEWUSER,):
            pid = _clone(flags)
            if pid >= 0:
                return pid, flags
    return os.fork(), 0


def _clone(flags: int) -> int:
    ctypes.pythonapi.PyOS_BeforeFork()
    number = ctypes.c_long(_NUMBERS["clone"])
    pid = int(_locked.syscall(number, ctypes.c_ulong(flags | signal.SIGCHLD), None, None, None, None))
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
    else:
        ctypes.pythonapi.PyOS_AfterFork_Parent()
    return pid


def map_identity(uid: int, gid: int) -> None:
    """In a new user namespace, keep the user and group ids of the process."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def unshare(flags: int) -> None:
    if _libc.unshare(ctypes.c_int(flags)):
        raise _failure("unshare")


def raise_loopback() -> None:
    """Bring up the loopback interface of a new network namespace."""
    import _socket
    import fcntl
    import struct

    sock = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    try:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack("16sh22x", fcntl.ioctl(sock.fileno(), _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(sock.fileno(), _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))
    finally:
        sock.close()


def mount(source: str | None, target: str, kind: str | None = None, flags: int = 0, data: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]):
        raise _failure(f"mount {target}")


def unmount(path: str) -> None:
    if _libc.umount2(os.fsencode(path), ctypes.c_int(_MNT_DETACH)):
        raise _failure(f"umount {path}")


def restrict_mount(target: str, *, read_only: bool = True, recursive: bool = True) -> None:
    """Make a mount read-only and ignore setuid bits on it. Needs Linux 5.12."""
    attributes = _MountAttributes(_ATTR_NOSUID | (_ATTR_RDONLY if read_only else 0), 0, 0, 0)
    flags = ctypes.c_uint(_AT_RECURSIVE if recursive else 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    path = os.fsencode(target)
    syscall(_NUMBERS["mount_setattr"], ctypes.c_int(_AT_FDCWD), path, flags, ctypes.byref(attributes), size)


def enter_root(path: str) -> None:
    """Make a mount the root of this mount namespace, and detach the old root."""
    os.chdir(path)
    syscall(_NUMBERS["pivot_root"], b".", b".")
    unmount(".")
    os.chdir("/")


def keep_capabilities(kept: tuple[int, ...] = ()) -> None:
    """Permanently drop all capabilities except these."""
    prctl(CAP_AMBIENT, 4)  # PR_CAP_AMBIENT_CLEAR_ALL
    for number in range(_MOST_CAPS):
        if number not in kept and not prctl(CAPBSET_DROP, number):
            break  # there are no more, or the process has no right to drop them and so none to use them
    mask = sum(1 << number for number in kept)
    own = (_CapData * 2)()
    header = _CapHeader(_CAP_VERSION, 0)
    if _libc.capget(ctypes.byref(header), own):
        raise _failure("capget")
    for index in range(2):
        permitted = own[index].permitted & (mask >> 32 * index & 0xFFFFFFFF)
        own[index] = _CapData(permitted, permitted, 0)
    if _libc.capset(ctypes.byref(header), own):
        raise _failure("capset")


def close_at_exec(first: int) -> None:
    """Close all file descriptors from `first` on when a program is executed."""
    try:
        syscall(_NUMBERS["close_range"], ctypes.c_uint(first), ctypes.c_uint(0xFFFFFFFF), _CLOSE_RANGE_CLOEXEC)
    except OSError:  # Linux before 5.11; Python opens its files with close-on-exec anyway
        return


def _failure(operation: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{operation}: {os.strerror(number)}")
