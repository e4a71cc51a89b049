"""Confines one sandbox, in two steps: the guard enters namespaces and a view of the files of its own, then the runner gives
up its rights. What the kernel refuses is left out at level `standard`, and an error at level `strict`.

`spec["confinement"]` (made by `sandbox.confinement`) says what is wanted; the facts say what is in force.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH123, TID252

from __future__ import annotations

import os
import resource
from typing import Any

from . import kernel, landlock, relay, seccomp
from .view import DEVICES, View

#: What a task of root keeps where it writes the user's own folders: to own files and to pass over their permissions.
_FILE_CAPABILITIES = (0, 1, 3, 4)
#: Who runs out of memory first: these processes rather than the worker.
_OOM_SCORE = "500"
#: Beside the paths that are given, without a view of its own.
_SYSTEM_FILES = ("/proc", "/sys/devices/system", "/sys/kernel/mm/transparent_hugepage", "/sys/fs/cgroup")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the place of POSIX shared memory
_OWN_DEVICES = ("/dev/pts", _SHARED_MEMORY, "/dev/mqueue")

Facts = dict[str, Any]


class NotConfined(Exception):
    """The level `strict` is not available here."""


def enter(spec: dict[str, Any], flags: int) -> tuple[Facts, View | None]:
    """In the guard, which was forked with these namespaces: everything that needs rights. Returns the view that it is in."""
    wanted = spec["confinement"]
    facts: Facts = {
        "user": bool(flags & kernel.NEWUSER),
        "pid": bool(flags & kernel.NEWPID),
        "view": False,
        "network": "open",
        "threads": "counted",
        "missing": [],
        #: passes connections on to the networks of a list; None: tasks have all or none
        "relay": None,
    }
    _put("/proc/self/oom_score_adj", _OOM_SCORE)
    if wanted["network"] != "all":
        _leave_network(wanted, flags, facts)
    if not flags & kernel.NEWNS:
        facts["missing"].append("namespaces (refused by the kernel or by the container)")
        return facts, None
    view = View(spec)
    try:
        view.enter()
    except OSError as problem:
        facts["missing"].append(f"a mount namespace ({problem.strerror})")
        return facts, None
    facts["view"] = True
    facts["threads"] = "pids" if view.is_bounded else "counted"
    return facts, view


def _leave_network(wanted: dict[str, Any], flags: int, facts: Facts) -> None:
    """Go into an empty network; a relay that reaches the networks of a list stays outside."""
    # It is ended with the pid namespace, and looks up names in a mount namespace of its own.
    relayed = wanted["network"] == "list" and flags & kernel.NEWPID and flags & kernel.NEWNS
    started = relay.start(wanted["networks"]) if relayed else None
    try:
        kernel.unshare(kernel.NEWNET)
        kernel.raise_loopback()
    except OSError as problem:
        facts["missing"].append(f"a network namespace ({problem.strerror})")
        return
    facts["network"] = "namespace"
    if started is not None:
        try:
            started.listen()
            facts["relay"] = started
        except OSError as problem:
            facts["missing"].append(f"a relay to the networks of a list ({problem.strerror})")


def drop(spec: dict[str, Any], facts: Facts) -> None:
    """In the runner: give up every right that its code does not need. Raises NotConfined when `strict` is not available."""
    wanted = spec["confinement"]
    # Each user namespace counts by itself; elsewhere all processes of the user would count.
    if facts["user"] and os.getuid() and wanted["max_threads"]:
        resource.setrlimit(resource.RLIMIT_NPROC, (wanted["max_threads"],) * 2)
        facts["threads"] = "kernel"
    kernel.keep_capabilities(_FILE_CAPABILITIES if wanted["keeps_rights_on_files"] else ())
    if not kernel.prctl(kernel.NO_NEW_PRIVS, 1):
        raise NotConfined("the kernel does not know no_new_privs")
    facts["landlock"] = _landlock(spec, facts)
    families = {seccomp.AF_UNIX, seccomp.AF_INET, seccomp.AF_INET6, seccomp.AF_NETLINK}
    if wanted["network"] != "all" and facts["network"] != "namespace":
        families = {seccomp.AF_UNIX} if wanted["level"] == "standard" else set()
    started: relay.Started | None = facts.pop("relay")
    facts["seccomp"], asks = seccomp.restrict(families, ask_to_connect=started is not None)
    if started is not None and asks is not None:
        started.watch(asks)
        facts["network"] = "list"
    elif wanted["network"] == "list":
        facts["missing"].append("a relay to the networks of a list")
    if facts["seccomp"] and facts["network"] == "open" and wanted["network"] != "all":
        facts["network"] = "filter"
    if not facts["landlock"]:
        facts["missing"].append("Landlock")
    if not facts["seccomp"]:
        facts["missing"].append("seccomp")
    if wanted["level"] == "strict":
        _check_strict(wanted, facts)


def _landlock(spec: dict[str, Any], facts: Facts) -> int:
    wanted = spec["confinement"]
    write = [spec["folder"], *wanted["write"], *DEVICES]
    if facts["view"]:
        # What is covered was replaced by something of the sandbox's own, so rules for the whole view are enough.
        return landlock.restrict(["/"], [*write, *_OWN_DEVICES, *wanted["replaced"]])
    if landlock.version() == 1:
        return 0  # renaming a file into another folder would fail
    shared = [_SHARED_MEMORY] if wanted["level"] == "standard" else []
    return landlock.restrict([*wanted["read"], *_SYSTEM_FILES], [*write, *shared])


def _check_strict(wanted: dict[str, Any], facts: Facts) -> None:
    """Processes, files and the network of others are out of reach, each by a wall of the kernel; else NotConfined."""
    scoped = facts["landlock"] >= landlock.SCOPED
    # Landlock alone cannot take a folder out of one that it leaves.
    apart = facts["landlock"] and not any(
        (f"{hidden}/").startswith(f"{path.rstrip('/')}/")
        for hidden in wanted["hidden"]
        for path in (*wanted["read"], *wanted["write"])
    )
    holds = {
        "processes": facts["pid"] or scoped,
        "files": facts["view"] or apart,
        "network": facts["network"] != "open",
        "system calls": facts["seccomp"],
    }
    lacking = [name for name, held in holds.items() if not held]
    if lacking:
        raise NotConfined(
            f"tasks.confinement is strict, and this machine cannot confine {', '.join(lacking)}: it lacks "
            f"{', '.join(facts['missing'])}; see `arclog doctor`"
        )


def _put(path: str, text: str) -> None:
    try:
        with open(path, "w") as file:
            file.write(text)
    except OSError:
        return
