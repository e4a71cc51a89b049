"""Trees that must go as a whole: a process with its descendants, a folder with its contents."""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH101, PTH106, PTH108, PTH110, PTH123, PTH208

from __future__ import annotations

import os
import signal
import stat


def family(root: int) -> list[int]:
    """All living descendants of a process."""
    found: list[int] = []
    todo = [root]
    while todo:
        young = children(todo.pop())
        found += young
        todo += young
    return found


def children(pid: int) -> list[int]:
    """The children of a process, of all its threads."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    found: list[int] = []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as listing:
                found += [int(child) for child in listing.read().split()]
        except FileNotFoundError:
            if thread == str(pid) and os.path.exists(f"/proc/{pid}"):
                return _children_by_scan(pid)
        except OSError:
            continue
    return found


def kill(pid: int) -> None:
    """Kill a process and all its living descendants."""
    for member in [*family(pid), pid]:
        send_signal(member, signal.SIGKILL)


def remove_tree(path: str) -> None:
    """Remove a folder with all it holds, following no link; what cannot be removed stays."""
    try:
        with os.scandir(path) as listing:
            entries = list(listing)
    except PermissionError:
        os.chmod(path, stat.S_IRWXU)
        entries = list(os.scandir(path))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove_tree(entry.path)
        else:
            os.unlink(entry.path)
    os.rmdir(path)


def _children_by_scan(pid: int) -> list[int]:
    """For kernels without /proc/…/children."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != b"Z":
                found.append(int(name))
    return found


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
