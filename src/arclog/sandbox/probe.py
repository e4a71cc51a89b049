"""Finds out which parts of the confinement work on this machine for this user: it starts a sandbox as for a task, which
reports the restrictions in force.

`PROMISES` is the table for `arclog doctor` and docs/security.md.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from arclog.model.config.settings import Settings
from arclog.sandbox.child.landlock import SCOPED
from arclog.sandbox.confinement_settings import ALL, LIST, OFF, STRICT, Confinement, confined, confinement_of
from arclog.sandbox.folders import Folders
from arclog.sandbox.launcher import Launcher
from arclog.sandbox.processes import Tree
from arclog.sandbox.protocol import Report


class Facts(Struct, frozen=True):
    """The facts that `child.confine` reports."""

    #: namespaces
    user: bool
    pid: bool
    #: its own root, in a mount namespace
    view: bool
    #: `open`, `namespace`, `filter` (of system calls), `list` (a namespace with a relay to networks)
    network: str
    #: what enforces `tasks.max_threads`: `kernel` (a limit), `pids` (the namespace), `counted` (the guard)
    threads: str
    #: version of Landlock; 0 without it
    landlock: int
    seccomp: bool
    missing: list[str]


class Promise(Struct, frozen=True):
    """A guarantee about what tasks cannot do."""

    name: str
    text: str
    #: returns the mechanism that provides it, or '' if it does not hold
    rests_on: Callable[[Facts, Confinement], str]
    #: the remedy if it does not hold
    remedy: str
    #: whether isolation of tenants requires it
    between_tenants: bool = True


_NAMESPACES = (
    "allow the worker to create namespaces: user namespaces for ordinary users (user.max_user_namespaces above 0, on Ubuntu "
    "kernel.apparmor_restrict_unprivileged_userns=0), CAP_SYS_ADMIN or a seccomp profile that allows them in a container"
)
_LANDLOCK = "use Linux 5.19 or later with Landlock (`landlock` in the kernel's lsm= list)"


def _files(facts: Facts, confinement: Confinement) -> str:
    if facts.view:
        return "a mount namespace" + (f" and Landlock {facts.landlock}" if facts.landlock else "")
    return f"Landlock {facts.landlock}" if facts.landlock and not confinement.shows_hidden() else ""


def _writes(facts: Facts, _: Confinement) -> str:
    walls = ["a mount namespace"] if facts.view else []
    return " and ".join([*walls, f"Landlock {facts.landlock}"] if facts.landlock else walls)


def _processes(facts: Facts, _: Confinement) -> str:
    if facts.pid:
        return "a pid namespace"
    return f"Landlock {facts.landlock}" if facts.landlock >= SCOPED else ""


def _network(facts: Facts, confinement: Confinement) -> str:
    if confinement.network == ALL:
        return "tasks.allow_networks: all"
    held = {
        "namespace": "a network namespace",
        "filter": "a filter of system calls",
        "list": "a network namespace with a relay to the networks of tasks.allow_networks",
    }.get(facts.network, "")
    if held and confinement.network == LIST and facts.network != LIST:
        return f"{held}; tasks have no network, since there is no relay to those of tasks.allow_networks here"
    return held


def _sockets(facts: Facts, confinement: Confinement) -> str:
    """Return the mechanism for sockets in the file system and for abstract sockets."""
    apart = facts.network in ("namespace", LIST) or facts.landlock >= SCOPED or confinement.network == ALL
    if not apart and confinement.level != STRICT:
        return ""
    if facts.view and "/" not in confinement.read:
        return "a mount namespace"
    if confinement.level == STRICT and facts.seccomp and facts.network == "filter":
        return "a filter of system calls"
    return "tasks.allow_read: /" if facts.view else ""


def _bound(facts: Facts, _: Confinement) -> str:
    return {"kernel": "a limit of the kernel", "pids": "the pid namespace"}.get(facts.threads, "")


#: In order of importance to users.
PROMISES = (
    Promise("files", "arclog's home, its keys and the folders of other tasks are out of reach", _files, _NAMESPACES),
    Promise("writes", "files elsewhere are not changed", _writes, f"{_LANDLOCK}; or {_NAMESPACES}"),
    Promise(
        "processes", "other processes get no signals, and their memory and environment are out of reach", _processes,
        f"{_NAMESPACES}; or use Linux 6.12 or later with Landlock",
    ),
    Promise(
        "privileges", "no capabilities, setuid programs, tracing, keyrings, io_uring or namespaces",
        lambda facts, _: "no_new_privs and a filter of system calls" if facts.seccomp else "",
        "use a kernel with seccomp filters, on x86_64, aarch64 or riscv64",
    ),
    Promise("network", "the network is restricted as configured", _network, _NAMESPACES),
    Promise("sockets", "local sockets and shared memory of other programs are restricted as configured", _sockets, _NAMESPACES, between_tenants=False),
    Promise(
        "bounds", "the kernel refuses more than tasks.max_threads at once (else they are counted four times a second)", _bound,
        "run the worker as an ordinary user that may create user namespaces, or use Linux 6.14 or later", between_tenants=False,
    ),
)  # fmt: skip


class Held(Struct, frozen=True):
    """The confinement in force on this machine."""

    level: str
    user: str
    #: None if tasks are not confined, or if it is unknown
    facts: Facts | None = None
    confinement: Confinement | None = None
    #: why no sandbox could be created
    problem: str = ""

    def rests_on(self, promise: Promise) -> str:
        if self.facts is None or self.confinement is None:
            return ""
        return promise.rests_on(self.facts, self.confinement)

    def lacking(self) -> list[Promise]:
        return [promise for promise in PROMISES if not self.rests_on(promise)]

    def is_standard(self) -> bool:
        """Return whether tasks of several tenants may share a worker."""
        return not any(promise.between_tenants for promise in self.lacking())


async def held(settings: Settings, scratch: Path) -> Held:
    """Find out the restrictions in force. Takes some tens of milliseconds. Creates and removes a folder in
    `scratch`.
    """
    level, user = settings.text("tasks.confinement"), "root" if os.geteuid() == 0 else "an ordinary user"
    confinement = confinement_of(settings, scratch)
    if level == OFF or confinement is None:
        return Held(level, user)
    folders = Folders(settings, scratch).of_next("probe")
    folders.make()
    launcher = Launcher()
    output = bytearray()
    try:
        # Even at level strict, report what the kernel lacks instead of failing.
        asked = msgspec.structs.replace(confinement, level="standard")
        spec = {"probe": True, **confined(asked, folders)}
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            tree = Tree(launcher, spec, null)
        finally:
            os.close(null)
        tree.stdout.listener = output.extend
        try:
            report: Report = await asyncio.shield(tree.gone)
        finally:
            await tree.finished()
        facts = msgspec.json.decode(bytes(output), type=Facts)
    except (OSError, msgspec.DecodeError) as problem:
        failed = report.failed if isinstance(problem, msgspec.DecodeError) else ""
        return Held(level, user, problem=failed.strip().rpartition("\n")[2] or str(problem))
    finally:
        await launcher.close()
        await asyncio.to_thread(shutil.rmtree, folders.folder, ignore_errors=True)
    return Held(level, user, facts, confinement)
