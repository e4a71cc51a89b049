"""A worker with something to steal, and a hostile task in it: `python -m tests.security.victim '{…}'` prints what it got.

As root it can become an ordinary user, or pretend that the kernel offers less: no namespaces, no Landlock, neither.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import shutil
import socket
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arclog.model.settings import Settings
from arclog.sandbox.child import kernel
from arclog.sandbox.confinement import for_server
from arclog.tools.python import PythonConfig, PythonTool
from arclog.tools.shell import ShellConfig, ShellTool
from tests.unit.sandbox.support import context

CANARY = "canary-7f3a91c2"
ORDINARY = 65534
_HOSTILE = Path(__file__).with_name("hostile.py")
#: What root keeps at level standard where it works in the user's own folder.
_FILE_CAPABILITIES = 0b11011


_MS_PRIVATE = 0x40000


def part_from_the_machine() -> None:
    """Attacks that succeed must hurt nobody: mounts and keys of this process are its own from here on."""
    if os.getuid() == 0:
        outside = Path("/proc/self/ns/mnt").readlink()
        kernel.unshare(kernel.NEWNS | kernel.NEWIPC | kernel.NEWUTS)
        kernel.mount(None, "/", None, kernel.MS_REC | _MS_PRIVATE)
        assert Path("/proc/self/ns/mnt").readlink() != outside


def become_ordinary() -> None:
    """Give up root for good. What Python needs may lie in a folder that is root's alone: it is shown elsewhere."""
    for needed in {sys.base_prefix, sys.prefix, str(Path(__file__).parents[2])}:
        for parent in reversed(Path(needed).parents):
            if not parent.stat().st_mode & stat.S_IXOTH:
                place = os.open(needed, os.O_PATH)
                kernel.mount("tmpfs", str(parent), "tmpfs", 0, "mode=755")
                Path(needed).mkdir(parents=True)
                kernel.mount(f"/proc/self/fd/{place}", needed, None, kernel.MS_BIND)
                os.close(place)
                break
    os.setgroups([])
    os.setresgid(ORDINARY, ORDINARY, ORDINARY)
    os.setresuid(ORDINARY, ORDINARY, ORDINARY)
    kernel.prctl(kernel.DUMPABLE, 1)


def pretend(lacking: str) -> None:
    """Have the kernel refuse what it does not offer elsewhere: `namespaces` (as in a container), `landlock`, `both`."""
    namespaces = kernel.NEWNS | kernel.NEWUSER | kernel.NEWPID | kernel.NEWNET | kernel.NEWIPC
    x86 = kernel.MACHINE == "x86_64"
    code = [struct.pack("=HBBI", 0x20, 0, 0, 0)]

    def answer(number: int, error: int) -> None:
        code.append(struct.pack("=HBBI", 0x15, 0, 1, number))
        code.append(struct.pack("=HBBI", 0x06, 0, 0, 0x00050000 | error))

    if lacking in ("landlock", "both"):
        for number in (444, 445, 446):
            answer(number, errno.ENOSYS)
    if lacking in ("namespaces", "both"):
        for number in (272, 165, 166, 155) if x86 else (97, 40, 39, 41):
            answer(number, errno.EPERM)
        for number in (429, 442, 435):
            answer(number, errno.ENOSYS)
        code.append(struct.pack("=HBBI", 0x15, 0, 3, 56 if x86 else 220))
        code.append(struct.pack("=HBBI", 0x20, 0, 0, 16))
        code.append(struct.pack("=HBBI", 0x45, 0, 1, namespaces))
        code.append(struct.pack("=HBBI", 0x06, 0, 0, 0x00050000 | errno.EPERM))
    code.append(struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    kernel.prctl(kernel.NO_NEW_PRIVS, 1)
    program = Program(len(code), b"".join(code))
    kernel.syscall(317 if x86 else 277, ctypes.c_uint(1), ctypes.c_uint(0), ctypes.byref(program))


@contextmanager
def prey(folder: Path, setuid: Path) -> Iterator[dict[str, Any]]:
    """Everything that a hostile task looks for, and where it is."""
    home = folder / "work" / ".arclog"
    home.mkdir(parents=True)
    (home / "secrets.key").write_text(CANARY)
    (home / "arclog.db").write_text(CANARY)
    key_file = folder / "keys" / "other.key"
    key_file.parent.mkdir()
    key_file.write_text(CANARY)
    os.environ["CANARY"] = CANARY
    shared = f"arclog-{os.getpid()}"
    Path("/dev/shm", shared).write_text(CANARY)
    listener = socket.create_server(("127.0.0.1", 0))
    abstract, named = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0arclog-{os.getpid()}")
    named.bind(str(folder / "socket"))
    for server in (abstract, named):
        server.listen()
    threading.Thread(target=_greet, args=(listener,), daemon=True).start()
    os.chdir(home.parent)
    try:
        yield {
            "canary": CANARY,
            "worker": os.getpid(),
            "home": str(home),
            "key_file": str(key_file),
            "port": listener.getsockname()[1],
            "abstract": f"arclog-{os.getpid()}",
            "socket": str(folder / "socket"),
            "shared": shared,
            "setuid": str(setuid),
        }
    finally:
        for server in (listener, abstract, named):
            server.close()
        Path("/dev/shm", shared).unlink()


def _greet(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.sendall(b"hello")
        connection.close()


async def attacked(settings: Settings, folder: Path, at: dict[str, Any]) -> dict[str, Any]:
    """What each attack got, in a worker that also runs a task of somebody else."""
    scratch = folder / "scratch"
    shell, python = ShellTool(settings, scratch), PythonTool(settings, scratch)
    begun = asyncio.Event()
    waiting = "echo $ARCLOG_SCRATCH; exec sleep 600"
    other = asyncio.create_task(
        shell.run(ShellConfig(command=waiting), context(lambda *_: begun.set(), execution_id="12"))
    )
    await asyncio.wait({other, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
    assert not other.done(), other.result()
    folders = [path for path in scratch.iterdir() if path.name.startswith("shell-")]
    at = {
        **at,
        "other_task": str(folders[0] / "scratch"),
        "zygotes": _children(),
        "capabilities": _FILE_CAPABILITIES if settings.text("worker.workdir") != "fresh" else 0,
    }
    code = _HOSTILE.read_text() + "\nATTACKS = {n: f for n, f in list(globals().items()) if n in NAMES}\n"
    try:
        outcome = await python.run(
            PythonConfig(code=code, args={"at": at, "NAMES": attack_names()}), context(timeout_s=100.0)
        )
        found = outcome.result if outcome.error is None else {"error": outcome.error.message}
        planted = (Path(at["home"]) / "planted").exists() or (folders[0] / "scratch" / "planted").exists()
        return {**found, "planted": "in the home" if planted else ""}
    finally:
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
        await python.close()
        await shell.close()


def _children() -> list[int]:
    me = os.getpid()
    return [int(number) for number in Path(f"/proc/{me}/task/{me}/children").read_text().split()]


def attack_names() -> list[str]:
    from tests.security import hostile

    return list(hostile.ATTACKS)


def main(spec: dict[str, Any]) -> None:
    """`spec`: user (root, ordinary), lacking ('', namespaces, landlock, both), served, settings."""
    part_from_the_machine()
    folder = Path(tempfile.mkdtemp(prefix="arclog-victim-"))
    setuid = folder / "id"
    shutil.copy("/usr/bin/id", setuid)
    setuid.chmod(0o4755)
    if spec["user"] == "ordinary" and os.getuid() == 0:
        folder.chmod(0o777)
        become_ordinary()
    if spec.get("lacking"):
        pretend(spec["lacking"])
    inner = folder / "victim"
    inner.mkdir()
    with prey(inner, setuid) as at:
        settings = Settings(
            {"home": at["home"], "secrets.key_file": at["key_file"], **spec.get("settings", {})},
        )
        found = asyncio.run(attacked(for_server(settings) if spec.get("served") else settings, inner, at))
    os.chdir("/")
    shutil.rmtree(inner, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
