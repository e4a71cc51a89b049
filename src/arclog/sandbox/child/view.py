"""A sandbox's view of the file system: a mount namespace whose root has only the paths that its tasks may use.

The root is empty, or (if tasks may read `/`) the whole file system, read-only. Onto it are mounted, parents first, the
readable paths, the writable paths, and empty covers over hidden ones. /proc, /dev and /dev/shm are the sandbox's own.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH114, PTH115, PTH118, PTH120, PTH123, PTH211, TID252

from __future__ import annotations

import os
import re
from typing import Any

from . import kernel, relay

READ, WRITE, COVER, REPLACE = "read", "write", "cover", "replace"

#: Devices without state.
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/ptmx": "pts/ptmx",
}
_PLAIN = kernel.MS_NOSUID | kernel.MS_NODEV
_BIND = kernel.MS_BIND | kernel.MS_REC
#: The lowest pid_max that Linux accepts.
_LEAST_PIDS = 301
_NAMES = "/etc/resolv.conf"
#: Covers contain folders only.
_COVER_SIZE = "size=256k,nr_inodes=256,mode=755"


class View:
    """The root of one sandbox, prepared in the guard."""

    def __init__(self, spec: dict[str, Any]) -> None:
        confinement = spec["confinement"]
        self._own = f"{spec['folder']}/view"
        self._root = f"{self._own}/root"
        self._writes_all = "/" in confinement["write"]
        self._whole = self._writes_all or "/" in confinement["read"]
        self._shared_bytes: int = confinement["max_memory_bytes"]
        self._most_threads: int = confinement["max_threads"]
        #: the kernel limits the view's processes to `max_threads`
        self.is_bounded = False
        # Even if `/` is readable, a readable path inside a hidden one needs an entry.
        entries = [(path, READ) for path in confinement["read"] if path != "/"]
        entries += [(path, WRITE) for path in [*confinement["write"], spec["folder"]]]
        self._paths = [path for path, _ in entries]
        entries += [(path, COVER) for path in confinement["hidden"]]
        #: real path → its replacement
        self._replaced = {
            os.path.realpath(path): f"{self._own}/{name}"
            for path, name in confinement["replaced"].items()
            if os.path.isdir(path)
        }
        entries += [(path, REPLACE) for path in self._replaced]
        #: the file with the name servers, if it has to name the relay; else ''
        self._names = os.path.realpath(_NAMES) if confinement["network"] == "list" and os.path.exists(_NAMES) else ""
        #: real paths, parents first; if a path has several entries, the last one counts
        ways = {os.path.realpath(path): way for path, way in entries if path != "/" and os.path.exists(path)}
        self._ways = sorted((ways | self._held_in_place(ways)).items(), key=lambda entry: entry[0].count("/"))
        #: covers, which stay writable until the folders on them are created
        self._covers: list[str] = []
        #: mounts in folders that are removed with the sandbox
        self._inner: list[str] = []

    def _held_in_place(self, ways: dict[str, str]) -> dict[str, str]:
        """Return the folders between a writable path and what is covered or replaced in it. As mounts they cannot be renamed;
        otherwise, a task could move them away with what they hide, and put its own in their place.
        """
        held: dict[str, str] = {}
        for path in [path for path, way in ways.items() if way in (COVER, REPLACE)]:
            between = []
            parent = os.path.dirname(path)
            while parent != "/" and parent not in ways:
                between.append(parent)
                parent = os.path.dirname(parent)
            if ways.get(parent) == WRITE or (parent == "/" and self._writes_all):
                held.update(dict.fromkeys(between, WRITE))
        return held

    def enter(self) -> None:
        """Create the view and enter it. Raises OSError."""
        kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_SLAVE)
        for path in dict.fromkeys((self._own, self._root, *self._replaced.values())):
            os.mkdir(path, 0o700)
        if self._whole:
            kernel.mount("/", self._root, None, _BIND)
            kernel.restrict_mount(self._root, read_only=not self._writes_all)
        else:
            kernel.mount("arclog", self._root, "tmpfs", _PLAIN, "size=1m,mode=755")
            for path in self._paths:
                self._mirror(path)
        kernel.mount(None, self._root, None, kernel.MS_UNBINDABLE)  # must not contain itself
        self._devices()
        self._processes()
        for path, way in self._ways:
            self._apply(path, way)
        if self._names:
            self._bind(self._own_names(), self._names)
            kernel.restrict_mount(self._root + self._names)
        for cover in self._covers:
            kernel.restrict_mount(cover, recursive=False)
        kernel.restrict_mount(f"{self._root}/dev", recursive=False)
        if not self._whole:
            kernel.restrict_mount(self._root, recursive=False)
        kernel.enter_root(self._root)

    def leave(self) -> None:
        """Unmount the sandbox's own folders, so that they can be removed."""
        for path in reversed(self._inner):
            kernel.unmount(path)

    def _apply(self, path: str, way: str) -> None:
        if way != COVER:
            self._bind(self._replaced[path] if way == REPLACE else path, path)
            if way == READ:
                kernel.restrict_mount(self._root + path)
        elif os.path.isdir(self._root + path):
            kernel.mount("arclog", self._root + path, "tmpfs", _PLAIN, _COVER_SIZE)
            self._covers.append(self._root + path)
        elif os.path.lexists(self._root + path):
            blank = f"{self._own}/blank"
            os.close(os.open(blank, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o000))
            kernel.mount(blank, self._root + path, None, kernel.MS_BIND)
            kernel.restrict_mount(self._root + path)

    def _own_names(self) -> str:
        """Write a resolv.conf with the relay as name server and the machine's search list. Return its path."""
        place = f"{self._own}/resolv.conf"
        with open(self._names, encoding="utf-8", errors="replace") as file:
            kept = [line for line in file if line.split(None, 1)[:1] in (["search"], ["domain"])]
        with open(place, "w", encoding="utf-8") as file:
            file.write(f"nameserver {relay.NAME_SERVER}\n{''.join(kept)}")
        return place

    def _bind(self, source: str, path: str) -> None:
        """Mount a path of the old root at a real path of the new one."""
        target = self._root + path
        if not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
            if os.path.isdir(source):
                os.mkdir(target, 0o755)
            else:
                os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o444))
        kernel.mount(source, target, None, _BIND)
        if any(path.startswith(f"{replaced}/") for replaced in self._replaced):
            self._inner.append(path)

    def _mirror(self, path: str, depth: int = 0) -> str:
        """Create the symbolic links on the way to a path. Return the real path."""
        real = "/"
        for part in path.strip("/").split("/"):
            place = os.path.join(real, part)
            if not os.path.islink(place) or depth > 40:
                real = place
                continue
            pointed_to = os.readlink(place)
            target = self._root + place
            if not os.path.lexists(target):
                os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
                os.symlink(pointed_to, target)
            real = self._mirror(os.path.normpath(os.path.join(real, pointed_to)), depth + 1)
        return real

    def _devices(self) -> None:
        place = f"{self._root}/dev"
        if not self._whole:
            os.mkdir(place, 0o755)
        kernel.mount("arclog", place, "tmpfs", kernel.MS_NOSUID, "size=64k,mode=755")
        for path in DEVICES:
            if os.path.exists(path):
                self._bind(path, path)
        for path, target in _LINKS.items():
            os.symlink(target, self._root + path)
        for name, kind, options in (
            ("shm", "tmpfs", f"mode=1777,size={self._shared_bytes}" if self._shared_bytes else "mode=1777"),
            ("pts", "devpts", "newinstance,ptmxmode=0666,mode=620"),
            ("mqueue", "mqueue", None),
        ):
            os.mkdir(f"{place}/{name}", 0o755)
            try:
                kernel.mount(kind, f"{place}/{name}", kind, _PLAIN | kernel.MS_NOEXEC, options)
            except OSError:
                if name == "shm":
                    raise

    def _processes(self) -> None:
        """Mount /proc of the new pid namespace or, if the kernel refuses, the existing one."""
        place = f"{self._root}/proc"
        os.makedirs(place, 0o755, exist_ok=True)
        try:
            kernel.mount("proc", place, "proc", _PLAIN | kernel.MS_NOEXEC)
        except OSError:
            if not self._whole:
                kernel.mount("/proc", place, None, _BIND)
        else:
            if self._most_threads:
                self.is_bounded = _bound(place, self._most_threads)
        kernel.restrict_mount(place)


def _bound(proc: str, most: int) -> bool:
    """Limit the processes and threads of this pid namespace. Before Linux 6.14 the limit applied to the whole
    machine.
    """
    major, minor = (int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    if (major, minor) < (6, 14):
        return False
    try:
        with open(f"{proc}/sys/kernel/pid_max", "w") as file:
            file.write(str(max(most, _LEAST_PIDS)))
    except OSError:
        return False
    return True
