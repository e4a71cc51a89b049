"""Landlock restricts the files that a process and its children may use, whatever their user's permissions are.

Version 6 also prevents signals to processes outside and connections to their abstract sockets.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: TID252

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from . import kernel

_CREATE, _ADD, _RESTRICT = 444, 445, 446
_VERSION_FLAG, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
#: The rights that each version supports: all bits up to the newest.
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_READ = _EXECUTE | _READ_FILE | _READ_DIR
#: The rights that apply to files other than folders.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_SCOPE_ABSTRACT, _SCOPE_SIGNAL = 1, 2
#: The first version with scopes.
SCOPED = 6


def version() -> int:
    """Return the version of this kernel, or 0 without Landlock."""
    try:
        return kernel.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION_FLAG))
    except OSError:
        return 0


def restrict(read: Iterable[str], write: Iterable[str]) -> int:
    """Restrict this process to these paths. Return the version in force, or 0 without Landlock."""
    in_force = version()
    if not in_force:
        return 0
    rights = _ALL[min(in_force, max(_ALL))]
    scopes = _SCOPE_ABSTRACT | _SCOPE_SIGNAL if in_force >= SCOPED else 0
    attributes = struct.pack("=QQQ", rights, 0, scopes)[: 24 if in_force >= SCOPED else 8]
    ruleset = kernel.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0))
    try:
        for path in read:
            _allow(ruleset, path, _READ & rights)
        for path in write:
            _allow(ruleset, path, rights)
        kernel.syscall(_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
    finally:
        os.close(ruleset)
    return in_force


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # a missing path needs no rule
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, place)
        kernel.syscall(_ADD, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
    finally:
        os.close(place)
