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
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from arclog.expr.sql.compile import SqlRefused
from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.sandbox.child import kernel
from arclog.sandbox.confinement_settings import for_server
from arclog.sandbox.probe import held
from arclog.tools import duckdb
from arclog.tools.python import PythonConfig, PythonTool
from arclog.tools.shell import ShellConfig, ShellTool
from arclog.wiring.process import protect_process
from tests.integration.sandbox.wheels import source_package
from tests.security.hostile_build import hostile_build
from tests.unit.sandbox.support import all_processes, context
from tests.unit.tools.sql.support import Sql

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


class Worker:
    """The tools of a worker, which also runs a task of somebody else."""

    def __init__(self, settings: Settings, folder: Path, at: dict[str, Any]) -> None:
        self._settings = settings
        self._at = at
        self.scratch = folder / "scratch"
        self._shell = ShellTool(settings, self.scratch)
        self._python = PythonTool(settings, self.scratch)
        self._duckdb = Sql(duckdb.KIND, folder, settings)

    async def attacked(self, kind: str) -> dict[str, Any]:
        """What each attack got."""
        begun = asyncio.Event()
        waiting = ShellConfig(command="echo begun; exec sleep 600")
        other = asyncio.create_task(self._shell.run(waiting, context(lambda *_: begun.set(), execution_id="12")))
        await asyncio.wait({other, asyncio.create_task(begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
        assert not other.done(), other.result()
        (folder,) = (path for path in self.scratch.iterdir() if path.name.startswith("shell-"))
        at = {
            **self._at,
            "other_task": str(folder / "scratch"),
            "zygotes": _children(),
            "capabilities": _FILE_CAPABILITIES if self._settings.text("worker.workdir") != "fresh" else 0,
            "name": f"bad-{os.getpid()}",
            "most": 2000,
        }
        try:
            result = await getattr(self, f"_by_{kind}")(at)
            return {**result, **_harm(Path(at["home"]), folder / "scratch")}
        finally:
            other.cancel()
            await asyncio.gather(other, return_exceptions=True)
            await self._python.close()
            await self._shell.close()
            await self._duckdb.close()

    async def _by_python(self, at: dict[str, Any]) -> dict[str, Any]:
        config = PythonConfig(code=_HOSTILE.read_text(), args={"at": at})
        return _result(await self._python.run(config, context(timeout_s=100.0)))

    async def _by_shell(self, at: dict[str, Any]) -> dict[str, Any]:
        code = f"{_HOSTILE.read_text()}\nimport json, sys\nprint(json.dumps(main(json.load(sys.stdin))))\n"
        config = ShellConfig(command=[sys.executable, "-I", "-c", code], input=json.dumps(at), parse="json")
        result: dict[str, Any] = _result(await self._shell.run(config, context(timeout_s=100.0)))["json"]
        return result

    async def _by_build(self, at: dict[str, Any]) -> dict[str, Any]:
        """By a package that has to be built from source for a task."""
        attack = hostile_build(at)
        source_package(Path(self._settings.text("python.find_links")), "hostile", "1.0", attack)
        config = PythonConfig(code="import hostile\nresult = hostile.got", requirements=["hostile"])
        return _result(await self._python.run(config, context(timeout_s=100.0)))

    async def _by_duckdb(self, at: dict[str, Any]) -> dict[str, Any]:
        results = {}
        for name, statement in STATEMENTS.items():
            try:
                outcome = await self._duckdb(statement.format(**at), transaction=False)
            except SqlRefused:
                results[name] = ""
                continue
            rows = "" if outcome.error else json.dumps(outcome.result["rows"], default=str)
            results[name] = rows if CANARY in rows or "[REACHED]" in rows else ""
        return results

    async def _by_processes(self, at: dict[str, Any]) -> dict[str, Any]:
        """How many processes a task had at a time, and whether one outlived it."""
        code = _HOSTILE.read_text().replace("def main(", "def attacks(")
        results: dict[str, Any] = {}
        for name in ("many_processes", "process_left_behind"):
            config = PythonConfig(code=f"{code}\ndef main(at):\n    return {name}(at)\n", args={"at": at})
            outcome = await self._python.run(config, context(timeout_s=100.0))
            results[name] = outcome.error.code if outcome.error else outcome.result
        await self._python.close()
        results["left"] = _named(at["name"])
        return results


#: What SQL tries; a row that holds the canary, or `[REACHED]`, got through.
STATEMENTS = {
    "key_in_the_home": "SELECT content FROM read_text('{home}/secrets.key')",
    "key_by_a_pattern": "SELECT content FROM read_text('{home}/*.key')",
    "key_in_the_folder_above": "SELECT content FROM read_text('{home}/../.arclog/secrets.key')",
    "key_as_bytes": "SELECT content::VARCHAR FROM read_blob('{home}/secrets.key')",
    "key_as_csv": "SELECT * FROM read_csv('{home}/secrets.key', header = false, columns = {{'a': 'VARCHAR'}})",
    "key_file": "SELECT content FROM read_text('{key_file}')",
    "database_overwritten": "COPY (SELECT 1) TO '{home}/arclog.db' (FORMAT csv)",
    "file_in_the_home": "COPY (SELECT 1) TO '{home}/planted' (FORMAT csv)",
    "database_attached": "ATTACH '{home}/arclog.db' AS stolen",
    "own_environment": "SELECT content FROM read_text('/proc/self/environ')",
    "environment_of_the_worker": "SELECT content FROM read_text('/proc/{worker}/environ')",
    "root_of_the_worker": "SELECT content FROM read_text('/proc/{worker}/root{home}/secrets.key')",
    "names_in_the_home": "SELECT '[REACHED]' FROM glob('{home}/*')",
    "file_of_another_task": "COPY (SELECT 1) TO '{other_task}/planted' (FORMAT csv)",
    "folder_of_another_task": "SELECT '[REACHED]' FROM glob('{other_task}/../*')",
    "machine_by_http": "SELECT '[REACHED]' FROM read_text('http://127.0.0.1:{port}/')",
    "extension": "INSTALL httpfs; SELECT '[REACHED]'",
    "setting": "SET enable_external_access = true; SELECT '[REACHED]'",
    "shared_memory_of_others": "SELECT content FROM read_text('/dev/shm/{shared}')",
}


def _harm(home: Path, other: Path) -> dict[str, str]:
    """What was done to arclog's home, and to the task of somebody else."""
    planted = any((folder / "planted").exists() for folder in (home, other))
    database = home / "arclog.db"
    intact = database.exists() and database.read_text() == CANARY
    return {"planted": "a file" if planted else "", "destroyed": "" if intact else "the database"}


def _result(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error is None, outcome.error
    result: dict[str, Any] = outcome.result
    return result


def _named(name: str) -> list[int]:
    """Living processes of this name."""
    names = []
    for process in all_processes():
        try:
            is_alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if is_alive and (process / "comm").read_text().strip() == name:
                names.append(int(process.name))
        except OSError:
            continue
    return names


def _children() -> list[int]:
    me = os.getpid()
    return [int(number) for number in Path(f"/proc/{me}/task/{me}/children").read_text().split()]


def main(spec: dict[str, Any]) -> None:
    """`spec`: folder (an empty one), user (root, ordinary), lacking ('', namespaces, landlock, both), served, kind, settings. Prints what each
    attack got, and which promises do not hold here.
    """
    part_from_the_machine()
    folder = Path(spec["folder"])
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
        own = {"home": at["home"], "secrets.key_file": at["key_file"], "object.file_root": str(inner / "data")}
        (inner / "data").mkdir()
        own |= {"python.find_links": str(inner / "wheels"), "python.offline": True}
        os.environ["UV_CACHE_DIR"] = str(inner / "cache")
        settings = Settings({**own, **spec.get("settings", {})})
        settings = for_server(settings) if spec.get("served") else settings
        protect_process(settings)

        async def found() -> dict[str, Any]:
            confinement = await held(settings, inner / "probe")
            got = await Worker(settings, inner, at).attacked(spec.get("kind", "python"))
            return {"got": got, "lacking": [promise.name for promise in confinement.lacking()]}

        answer = asyncio.run(found())
    os.chdir("/")
    shutil.rmtree(inner, ignore_errors=True)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
