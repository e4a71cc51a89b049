"""Confines one sandbox, in two steps: the guard enters its own namespaces and view of the files, then the runner drops
its privileges. A restriction that the kernel refuses is left out at level `standard`, and is an error at level
`strict`.

`spec["confinement"]` (created by `sandbox.confinement_settings`) has the configured restrictions; the facts record
those in force.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH123, TID252

from __future__ import annotations

import os
import resource
from typing import Any

from . import kernel, landlock, relay, seccomp
from .view import DEVICES, View

#: Capabilities that root's tasks keep if they may write the user's folders: to change ownership and bypass permissions.
_FILE_CAPABILITIES = (0, 1, 3, 4)
#: If memory runs out, the kernel kills these processes before the worker.
_OOM_SCORE = "500"
#: Readable in addition to the configured paths, if there is no view.
_SYSTEM_FILES = ("/proc", "/sys/devices/system", "/sys/kernel/mm/transparent_hugepage", "/sys/fs/cgroup")
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the place of POSIX shared memory
_OWN_DEVICES = ("/dev/pts", _SHARED_MEMORY, "/dev/mqueue")

Facts = dict[str, Any]


class NotConfined(Exception):
    """Level `strict` is not available here."""


def enter(spec: dict[str, Any], flags: int) -> tuple[Facts, View | None]:
    """Apply the restrictions that need privileges, in the guard, which was forked into the namespaces of `flags`.
    Return the facts and the view that it entered.
    """
    wanted = spec["confinement"]
    facts: Facts = {
        "user": bool(flags & kernel.NEWUSER),
        "pid": bool(flags & kernel.NEWPID),
        "view": False,
        "network": "open",
        "threads": "counted",
        "missing": [],
        #: forwards connections to the networks of a list; None if tasks have all networks or none
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
    """Enter an empty network namespace. A relay to the networks of a list stays outside."""
    # The relay ends with the pid namespace, and resolves names in its own mount namespace.
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
    """Drop all privileges that the runner's code does not need, in the runner. Raises NotConfined if `strict` is not
    available.
    """
    wanted = spec["confinement"]
    # This limit counts per user namespace; without one, it would count all processes of the user.
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
        # The view has replaced hidden paths already, so rules for the whole view are enough.
        return landlock.restrict(["/"], [*write, *_OWN_DEVICES, *wanted["replaced"]])
    if landlock.version() == 1:
        return 0  # renaming a file into another folder would fail
    shared = [_SHARED_MEMORY] if wanted["level"] == "standard" else []
    return landlock.restrict([*wanted["read"], *_SYSTEM_FILES], [*write, *shared])


def _check_strict(wanted: dict[str, Any], facts: Facts) -> None:
    """Check that the kernel keeps tasks from other processes, files and networks. Raises NotConfined."""
    scoped = facts["landlock"] >= landlock.SCOPED
    # Landlock cannot exclude a folder from one that it permits.
    apart = facts["landlock"] and not any(
        (f"{hidden}/").startswith(f"{path.rstrip('/')}/")
        for hidden in wanted["hidden"]
        for path in (*wanted["read"], *wanted["write"])
    )
    holds = {
        "processes": facts["pid"] or scoped,
        "files": facts["view"] or apart,
        "network": facts["network"] != "open" or wanted["network"] == "all",
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
