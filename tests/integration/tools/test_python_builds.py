"""Packages of `requirements` that are built from source: what their build gets while it is confined, and how it fails.

`tests/security/test_confinement.py` lets the same build try everything that a hostile task tries.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.sandbox.confinement_settings import for_server
from arclog.sandbox.environments import known_environments, normalize_requirements, remove_environment
from arclog.sandbox.installers import PIP, Installer, installer
from arclog.tools.python import PythonConfig, PythonTool
from tests.integration.sandbox.wheels import source_package, wheel
from tests.unit.sandbox.support import Log, context, offspring, processes_with

UV = installer()
CANARY = "canary-51d07b3e"
BOTH = pytest.mark.parametrize(
    "program", [pytest.param(UV, id="uv"), pytest.param(PIP, id="pip", marks=pytest.mark.soak)]
)
BUILT = "import tiny\nresult = tiny.got"


class World:
    """A worker of a server, with its home, and packages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.environments = self.home / "environments"
        self.wheels = folder / "wheels"
        self.cache = folder / "uv-cache"
        self.scratch = folder / "scratch"
        self.tools: list[PythonTool] = []
        (self.scratch / "shell-1").mkdir(parents=True)
        self.home.mkdir()
        for secret in (self.home / "secrets.key", self.home / "arclog.db", self.scratch / "shell-1" / "file"):
            secret.write_text(CANARY)
        self.wheels.mkdir()

    def tool(self, program: Installer = UV, **changes: Any) -> PythonTool:
        values = {"home": str(self.home), "python.find_links": str(self.wheels), "python.offline": True}
        values |= {name.replace("__", "."): value for name, value in changes.items()}
        self.tools.append(PythonTool(for_server(Settings(values)), self.scratch, installer=program))
        return self.tools[-1]

    @property
    def place(self) -> Path:
        """The environment of tiny."""
        return self.environments / normalize_requirements(["tiny"]).digest


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    world = World(tmp_path)
    monkeypatch.setenv("UV_CACHE_DIR", str(world.cache))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setenv("CANARY", CANARY)
    yield world
    for tool in world.tools:
        await tool.close()
    assert offspring() == []


async def run(tool: PythonTool, code: str = BUILT, *requirements: str, log: Any = None) -> Outcome:
    config = PythonConfig(code=code, requirements=list(requirements or ("tiny",)))
    return await asyncio.wait_for(tool.run(config, context(log)), 60)


#: Each attack is an expression; what it returns, unless it is empty, it has got.
READING = f"""
import glob, os, pathlib, socket, subprocess, sys

def files_with_the_canary(pattern):
    found = []
    for path in glob.glob(pattern, include_hidden=True):
        try:
            if {CANARY[::-1]!r}[::-1].encode() in pathlib.Path(path).read_bytes():
                found.append(path)
        except OSError:
            pass
    return found

def connected(address):
    with socket.create_connection(address, 5) as connection:
        return connection.recv(10)

def planted(path):
    pathlib.Path(path).write_text('planted')  # perhaps in a folder of its own: the test looks at the real ones

attacks = {{
    "key": lambda: files_with_the_canary(HOME + "/*.key"),
    "store": lambda: files_with_the_canary(HOME + "/arclog.db"),
    "file_of_another_task": lambda: files_with_the_canary(SCRATCH + "/*/*"),
    "environment_of_the_worker": lambda: files_with_the_canary("/proc/[0-9]*/environ"),
    "loopback": lambda: connected(("127.0.0.1", PORT)),
    "file_in_the_home": lambda: planted(HOME + "/planted"),
    "cache": lambda: [planted(folder + "/planted") for folder in glob.glob(CACHE + "/*/")] and "",
    "other_environment": lambda: planted(ENVIRONMENTS + "/other/planted"),
    "record": lambda: planted(ENVIRONMENTS + "/planted.json"),
    "file_in_the_working_folder": lambda: planted(WORKDIR + "/planted"),
}}
got = {{}}
for name, attack in attacks.items():
    try:
        if reached := attack():
            got[name] = str(reached)
    except OSError:
        pass
"""


@BOTH
async def test_a_build_reaches_nothing_of_the_worker(world: World, program: Installer) -> None:
    (world.environments / "other").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_greet, args=(server,), daemon=True).start()
        places = {
            "HOME": str(world.home),
            "SCRATCH": str(world.scratch),
            "CACHE": str(world.cache),
            "ENVIRONMENTS": str(world.environments),
            "WORKDIR": str(world.folder),
            "PORT": server.getsockname()[1],
        }
        names = "".join(f"{name} = {value!r}\n" for name, value in places.items())
        source_package(world.wheels, "tiny", "1.0", names + READING)
        wheel(world.wheels, "filler", "1.0", "")
        tool = world.tool(program)
        assert (await run(tool, "result = 1", "filler")).error is None  # there is a cache
        outcome = await run(tool)

        assert outcome.error is None, outcome.error.message
        assert outcome.result == {}
        assert list(world.folder.rglob("planted*")) == []


def _greet(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        connection.sendall(b"hello")
        connection.close()


async def test_a_build_leaves_no_process(world: World) -> None:
    mark = f"left-{os.getpid()}"
    attack = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', {mark!r}], start_new_session=True,"
        " stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "got = 'left'\n"
    )
    source_package(world.wheels, "tiny", "1.0", attack)
    assert (await run(world.tool())).result == "left"
    assert processes_with(mark) == []


@pytest.mark.parametrize("name", ["made.json", "made.json.new"])
@pytest.mark.parametrize("way", ["symlink", "fifo"])
async def test_a_build_cannot_bend_what_the_worker_writes(world: World, name: str, way: str) -> None:
    """Records were files in the environment, where a build could put a link or a pipe in their place."""
    place = world.place / name
    deed = (
        f"os.mkfifo({str(place)!r})"
        if way == "fifo"
        else f"os.symlink({str(world.home / 'arclog.db')!r}, {str(place)!r})"
    )
    source_package(world.wheels, "tiny", "1.0", f"import os\n{deed}\ngot = 'planted'")

    outcome = await run(world.tool())

    assert outcome.result == "planted"
    assert (world.home / "arclog.db").read_text() == CANARY
    [known] = known_environments(world.environments)
    assert known.record is not None


async def test_a_build_cannot_make_the_worker_compile_elsewhere(world: World) -> None:
    """`compileall` follows a `__pycache__` that is a link, for example into arclog's own package."""
    target = world.folder / "package" / "__pycache__"
    target.mkdir(parents=True)
    library = world.place / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    cache = str(library / "__pycache__")
    attack = (
        "import os, shutil\n"
        f"shutil.rmtree({cache!r}, ignore_errors=True)\nos.symlink({str(target)!r}, {cache!r})\ngot = 'linked'"
    )
    source_package(world.wheels, "tiny", "1.0", attack)

    assert (await run(world.tool())).result == "linked"
    assert list(target.iterdir()) == []


async def test_an_environment_that_a_build_has_closed_is_made_anew_and_removed(world: World) -> None:
    names = [f"{world.place}/bad/.arclog-raised-1/x", f"{world.place}/bad/y/z", f"{world.place}/.arclog-raised-1/x"]
    attack = (
        f"import os\nfor name in {names!r}:\n    os.makedirs(name)\n"
        f"os.chmod({names[1]!r}, 0)\nos.chmod({str(world.place)!r}, 0o777)\ngot = 'closed'"
    )
    source_package(world.wheels, "tiny", "1.0", attack)
    tool = world.tool()
    assert (await run(tool)).result == "closed"
    assert world.place.stat().st_mode & 0o777 == 0o700
    await tool.execution_ended("11")
    await tool.close()
    world.tools.clear()
    assert remove_environment(world.environments, world.place.name)
    assert list(world.environments.iterdir()) == []


async def test_a_build_that_removes_the_python_of_its_environment_fails(world: World) -> None:
    """By a process that outlives the build backend, and ends with the installer."""
    loop = f"import os, time\nwhile True:\n    try:\n        os.unlink('{world.place}/bin/python')\n    except OSError:\n        time.sleep(0.001)\n"
    attack = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {loop!r}], start_new_session=True,"
        " stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    )
    source_package(world.wheels, "tiny", "1.0", attack)
    outcome = await run(world.tool())
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert list(world.environments.iterdir()) == []


# ── sources and failures ─────────────────────────────────────────────────────────────────────────────────────────────


@BOTH
async def test_a_package_is_built_and_the_log_says_so(world: World, program: Installer) -> None:
    source_package(world.wheels, "tiny", "1.0", "got = 'built'", more={"other.py": ""})
    code = "import os, tiny\nresult = [tiny.got, os.path.exists(tiny.__cached__)]"
    log = Log()
    assert (await run(world.tool(program), code, log=log)).result == ["built", True]
    notes = log.of("log")
    assert ("a package has to be built from source: the installation is repeated, confined" in notes) == (program is UV)
    assert not any("no usable wheels" in text for _, text in log.lines)


async def test_a_version_with_a_wheel_needs_no_build(world: World) -> None:
    wheel(world.wheels, "tiny", "1.0", "got = 'wheel'")
    source_package(world.wheels, "tiny", "2.0", "got = 'built'")
    tool = world.tool()
    assert (await run(tool)).result == "wheel"
    assert (await run(tool, BUILT, "tiny>=2")).result == "built"


async def test_a_build_that_fails(world: World) -> None:
    source_package(world.wheels, "tiny", "1.0", "raise SystemExit('this is broken')")
    outcome = await run(world.tool())
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("config", "REQUIREMENTS")
    assert "(offline: python.offline; confined, without the installer's cache); uv says:" in outcome.error.message
    assert "this is broken" in outcome.error.message
    assert "no usable wheels" not in outcome.error.message
    assert list(world.environments.iterdir()) == []


class Index:
    """A package index on the loopback."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/simple"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        name = path.rstrip("/").rpartition("/")[2]
        status, kind, body = "404 Not Found", "text/plain", b""
        if (self._folder / name).is_file():
            status, kind, body = "200 OK", "application/octet-stream", (self._folder / name).read_bytes()
        elif files := sorted(self._folder.glob(f"{re.sub('[^a-z]', '?', name)}-*")):
            links = "".join(f'<a href="/{file.name}">{file.name}</a>' for file in files)
            status, kind, body = "200 OK", "text/html", f"<html><body>{links}</body></html>".encode()
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()


@BOTH
async def test_an_index_that_builds_cannot_reach(
    world: World, program: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source_package(world.wheels, "tiny", "1.0", "got = 'built'")
    async with Index(world.wheels) as address:
        monkeypatch.setenv("UV_DEFAULT_INDEX", address)
        monkeypatch.setenv("PIP_INDEX_URL", address)
        online = {"python__offline": False, "python__find_links": ""}
        for networks, kind in (("", "connection"), ("none", "config")):
            outcome = await run(world.tool(program, **online, python__build_networks=networks))
            assert outcome.error is not None
            assert (outcome.error.kind, outcome.error.code) == (kind, "REGISTRY"), outcome.error.message
            assert "set python.build_networks" in outcome.error.message
        assert (await run(world.tool(program, **online, python__build_networks="loopback"))).result == "built"


async def test_the_lists_of_networks_are_checked(world: World) -> None:
    source_package(world.wheels, "tiny", "1.0", "got = 'built'")
    outcome = await run(world.tool(python__build_networks="everywhere"))
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert outcome.error.message.startswith("python.build_networks: ")


async def test_at_level_strict_builds_have_no_network(world: World) -> None:
    attack = (
        "import socket\ntry:\n    socket.create_connection(('192.0.2.1', 9), 5)\n"
        "except OSError as problem:\n    got = problem.errno\n"
    )
    source_package(world.wheels, "tiny", "1.0", attack)
    outcome = await run(world.tool(tasks__confinement="strict"))
    assert outcome.error is None, outcome.error.message
    assert outcome.result == 101  # ENETUNREACH


async def test_the_limits_of_tasks_hold(world: World) -> None:
    source_package(world.wheels, "tiny", "1.0", "import time\nx = bytearray(600_000_000)\ntime.sleep(5)\ngot = 1")
    outcome = await run(world.tool(tasks__max_memory_bytes=400 * 1024 * 1024))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("limit", "tasks.max_memory_bytes")


async def test_without_confinement_the_builds_are_not_confined(world: World) -> None:
    source_package(world.wheels, "tiny", "1.0", f"got = open({str(world.home / 'secrets.key')!r}).read()")
    assert (await run(world.tool(tasks__confinement="off"))).result == CANARY
