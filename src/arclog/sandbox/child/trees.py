"""Process trees and folder trees, and their removal."""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH110, PTH123, PTH208

from __future__ import annotations

import os
import signal
import stat

_PAGE = os.sysconf("SC_PAGESIZE")
_RAISED = ".arclog-raised-"


def family(root: int) -> list[int]:
    """Return all living descendants of a process."""
    processes: list[int] = []
    todo = [root]
    while todo:
        young = children(todo.pop())
        processes += young
        todo += young
    return processes


def children(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    processes: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as listing:
                processes += [int(child) for child in listing.read().split()]
        except FileNotFoundError:
            if thread == str(pid) and os.path.exists(f"/proc/{pid}"):
                return _children_by_scan(pid)
        except OSError:
            continue
    return processes


def memory_of(pids: list[int], enough: int) -> int:
    """Return the total memory of processes in bytes. Only if the sum of their resident sizes exceeds `enough`, shared
    memory is divided among the processes that share it.
    """
    total = sum(_resident(pid) for pid in pids)
    return total if total <= enough else sum(_proportional(pid) for pid in pids)


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except OSError:  # it has ended
        return 0


def _proportional(pid: int) -> int:
    """Return the memory of a process: its own, and its share of memory that it shares."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) * 1024 for line in file if line.startswith(b"Pss:"))
    except OSError:
        return _resident(pid)


def kill(pid: int) -> None:
    """Kill a process and all its living descendants."""
    for member in [*family(pid), pid]:
        send_signal(member, signal.SIGKILL)


def remove_tree(path: str, dir_fd: int | None = None) -> None:
    """Remove a folder and its contents, without following links. Raises OSError.

    Any depth is supported: the folders below are moved up before they are removed.
    """
    try:
        top = _opened(path, dir_fd)
    except FileNotFoundError:
        return
    number = 0
    raised = f"{_RAISED}{os.urandom(8).hex()}-"  # a name that is not there, whatever a task has called its files
    try:
        while entries := _listed(top):
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=top)
                    continue
                below = _opened(entry.name, top)
                try:
                    for inner in _listed(below):
                        if not inner.is_dir(follow_symlinks=False):
                            os.unlink(inner.name, dir_fd=below)
                            continue
                        os.close(_opened(inner.name, below))
                        number += 1
                        os.rename(inner.name, f"{raised}{number}", src_dir_fd=below, dst_dir_fd=top)
                finally:
                    os.close(below)
                os.rmdir(entry.name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(path, dir_fd=dir_fd)


def _opened(name: str, dir_fd: int | None) -> int:
    """Open a folder, and make it writable."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = os.open(name, flags, dir_fd=dir_fd)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=dir_fd)
        return os.open(name, flags, dir_fd=dir_fd)
    if os.fstat(folder).st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.fchmod(folder, stat.S_IRWXU)
    return folder


def _listed(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as listing:
        return list(listing)


def _children_by_scan(pid: int) -> list[int]:
    """Return the children of a process, on kernels without /proc/…/children."""
    processes: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != b"Z":
                processes.append(int(name))
    return processes


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
