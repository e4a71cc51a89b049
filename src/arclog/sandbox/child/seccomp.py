"""A filter that denies system calls that no task needs and an attack may use, for a process and all its children.

It is a second line of defence after dropped capabilities: it prevents a process from gaining new ones in a user
namespace, and keeps parts of the kernel with a history of vulnerabilities (io_uring, bpf, keyrings) out of reach.
Programs for another architecture (32 bits) are denied all system calls.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Collection

from . import kernel

_SET_MODE_FILTER = 1
#: Creates a descriptor for the filter's notifications; with the second flag, only a kill interrupts a waiting process
#: (Linux 5.19).
_NEW_LISTENER, _WAIT_KILLABLE = 1 << 3, 1 << 5
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "riscv64": 0xC00000F3}
#: name: (number on x86_64, number elsewhere)
_NUMBERS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "syslog": (103, 116),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
}
#: These fail as if the kernel did not have them, so that programs use their fallbacks for older kernels.
_UNKNOWN = {"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "clone3": 435}
_CLONE, _IOCTL, _SOCKET, _CONNECT, _SECCOMP = (56, 220), (16, 29), (41, 198), (42, 203), (317, 277)
_SETSOCKOPT = (54, 208)
#: Shares a port with other processes of the same user: a task would receive some of the requests to a server of several
#: processes, with their keys.
_SOL_SOCKET, _SO_REUSEPORT = 1, 15
#: These would write input to a terminal, or reach a console's memory.
_TERMINAL = (0x5412, 0x541C)
_NAMESPACES = (
    kernel.NEWNS
    | kernel.NEWCGROUP
    | kernel.NEWUTS
    | kernel.NEWIPC
    | kernel.NEWUSER
    | kernel.NEWPID
    | kernel.NEWNET
    | 0x80  # a time namespace
)
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

_X32_BIT = 0x40000000
_ALLOW, _ERRNO, _ASK = 0x7FFF0000, 0x00050000, 0x7FC00000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT, _THIRD_ARGUMENT_AT = 0, 4, 16, 24, 32


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def restrict(families: Collection[int], *, ask_to_connect: bool = False) -> tuple[bool, int | None]:
    """Filter this process's system calls; `families` are the permitted address families of sockets. Return whether the
    filter is installed and, with `ask_to_connect`, a descriptor that reports each connect(2), or None if that is not
    available.
    """
    architecture = _ARCHITECTURE.get(kernel.MACHINE)
    if architecture is None:
        return False, None
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER) if ask_to_connect else ():
        try:
            return True, _install(program(architecture, families, ask_to_connect=True), flags)
        except OSError:
            continue
    try:
        _install(program(architecture, families), 0)
    except OSError:
        return False, None
    return True, None


def _install(code: bytes, flags: int) -> int:
    holder = _Program(len(code) // 8, code)
    number = _own(_SECCOMP)
    return kernel.syscall(number, ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(flags), ctypes.byref(holder))


def program(architecture: int, families: Collection[int], *, ask_to_connect: bool = False) -> bytes:
    """Return the filter as a BPF program."""
    refused = _ERRNO | errno.EPERM
    unknown = _ERRNO | errno.ENOSYS
    code = [_do(_LOAD, _ARCHITECTURE_AT), _do(_EQUAL, architecture, 1, 0), _do(_RETURN, unknown)]
    code.append(_do(_LOAD, _NUMBER_AT))
    if kernel.MACHINE == "x86_64":
        code += [_do(_AT_LEAST, _X32_BIT, 0, 1), _do(_RETURN, unknown)]
    for number in _UNKNOWN.values():
        code += [_do(_EQUAL, number, 0, 1), _do(_RETURN, unknown)]
    for numbers in _NUMBERS.values():
        code += [_do(_EQUAL, _own(numbers), 0, 1), _do(_RETURN, refused)]
    if ask_to_connect:
        code += [_do(_EQUAL, _own(_CONNECT), 0, 1), _do(_RETURN, _ASK)]
    code += _checked(_CLONE, _FIRST_ARGUMENT_AT, [_do(_ANY_BIT, _NAMESPACES, 0, 1), _do(_RETURN, refused)])
    terminal = [word for ioctl in _TERMINAL for word in (_do(_EQUAL, ioctl, 0, 1), _do(_RETURN, refused))]
    code += _checked(_IOCTL, _SECOND_ARGUMENT_AT, terminal)
    sharing = [_do(_LOAD, _THIRD_ARGUMENT_AT), _do(_EQUAL, _SO_REUSEPORT, 0, 1), _do(_RETURN, refused)]
    code += _checked(_SETSOCKOPT, _SECOND_ARGUMENT_AT, [_do(_EQUAL, _SOL_SOCKET, 0, len(sharing)), *sharing])
    family = [word for protocol in sorted(families) for word in (_do(_EQUAL, protocol, 0, 1), _do(_RETURN, _ALLOW))]
    code += _checked(_SOCKET, _FIRST_ARGUMENT_AT, [*family, _do(_RETURN, _ERRNO | errno.EAFNOSUPPORT)])
    code.append(_do(_RETURN, _ALLOW))
    return b"".join(code)


def _checked(numbers: tuple[int, int], argument_at: int, rules: list[bytes]) -> list[bytes]:
    """Return the rules for an argument of one system call. If no rule returns, the call is allowed."""
    body = [_do(_LOAD, argument_at), *rules, _do(_RETURN, _ALLOW)]
    return [_do(_EQUAL, _own(numbers), 0, len(body)), *body]


def _own(numbers: tuple[int, int]) -> int:
    return numbers[0] if kernel.MACHINE == "x86_64" else numbers[1]


def _do(operation: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, yes, no, value)
