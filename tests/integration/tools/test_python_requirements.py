"""Kind python with `requirements`: real installers, wheels made by hand, no network."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from arclog.model.config.settings import Settings
from arclog.model.outcome import Outcome
from arclog.sandbox.environments import known_environments, normalize_requirements, remove_environment
from arclog.sandbox.installers import PIP, Installer, installer
from arclog.tools.python import PythonConfig, PythonTool
from tests.integration.sandbox.wheels import source_package, wheel
from tests.unit.sandbox.support import Log, context, offspring, processes_with, wait_dead

UV = installer()
#: `venv` puts pip into an environment first, which takes seconds
BOTH = pytest.mark.parametrize(
    "program", [pytest.param(UV, id="uv"), pytest.param(PIP, id="pip", marks=pytest.mark.soak)]
)


class World:
    """A folder of wheels, a folder of environments, and tools that share them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        self.environments = folder / "environments"
        self.tools: list[PythonTool] = []

    def tool(self, program: Installer | None = None, *, offline: bool = True, only_wheels: bool = False) -> PythonTool:
        values = {
            "python.environments": str(self.environments),
            "python.find_links": str(self.wheels),
            "python.offline": offline,
            "python.only_wheels": only_wheels,
        }
        scratch = self.folder / f"scratch-{len(self.tools)}"
        self.tools.append(PythonTool(Settings(values), scratch, installer=program))
        return self.tools[-1]

    @property
    def made(self) -> list[tuple[str, ...]]:
        return sorted(
            environment.record.requirements
            for environment in known_environments(self.environments)
            if environment.record
        )


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    # Nothing that some other test or user has in their cache may satisfy a requirement here.
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")  # its pauses between tries are pip's own affair
    world = World(tmp_path)
    yield world
    for tool in world.tools:
        await tool.close()
    assert offspring() == []


async def run(tool: PythonTool, code: str, *requirements: str, log: Any = None, execution_id: str = "11") -> Outcome:
    config = PythonConfig(code=code, requirements=list(requirements))
    return await tool.run(config, context(log, execution_id=execution_id))


@BOTH
async def test_a_task_has_its_packages_and_theirs_and_not_the_workers(world: World, program: Installer) -> None:
    wheel(world.wheels, "tiny_base", "1.0", "word = 'base'")
    wheel(world.wheels, "tiny", "2.1", "import tiny_base\ntext = 'tiny on ' + tiny_base.word", needs=("tiny-base>=1",))
    tool, log = world.tool(program), Log()

    outcome = await run(tool, "import tiny\nresult = tiny.text", "Tiny ==2.1", log=log)

    assert outcome.error is None
    assert outcome.result == "tiny on base"
    assert world.made == [("tiny==2.1",)]
    notes = log.of("log")
    assert notes[0].startswith(f"resolving tiny==2.1 with {program.name} into ")
    assert notes[-1].startswith("the environment is ready after ")
    assert len(log.lines) > 2  # the installer's own words
    ours = await run(tool, "import msgspec", "tiny==2.1")
    assert ours.error is not None
    assert ours.error.code == "ModuleNotFoundError"
    assert (await run(tool, "import msgspec\nresult = 1")).result == 1


async def test_it_is_that_environments_python_in_every_way(world: World) -> None:
    wheel(world.wheels, "tiny", "1.0", "def main():\n    print('from the program')", script="tiny-program")
    tool = world.tool()
    code = (
        "import subprocess, sys, multiprocessing\n"
        "said = subprocess.run(['tiny-program'], capture_output=True, text=True).stdout\n"
        "again = subprocess.run([sys.executable, '-c', 'import tiny; print(tiny.__name__)'], capture_output=True,"
        " text=True).stdout\n"
        "result = [said, again, sys.prefix, sys.prefix != sys.base_prefix]"
    )
    outcome = await run(tool, code, "tiny")

    assert outcome.error is None
    folder = world.environments / normalize_requirements(["tiny"]).digest
    assert outcome.result == ["from the program\n", "tiny\n", str(folder), True]


async def test_a_present_environment_needs_no_installer_and_stays_warm(world: World) -> None:
    wheel(world.wheels, "tiny", "1.0", "")
    await run(world.tool(), "import tiny", "tiny==1.0")
    broken = Installer("none", "/nonexistent/installer")
    tool, log = world.tool(broken), Log()

    # Modules stay between the tasks of one process.
    count = "import os\nresult = os.seen = getattr(os, 'seen', 0) + 1"
    warm = [(await run(tool, f"import tiny\n{count}", "tiny==1.0", log=log)).result for _ in range(3)]

    assert log.lines == []
    assert warm == [1, 2, 3]
    assert (await run(tool, count)).result == 1
    assert (await run(tool, count, "tiny==1.0", execution_id="12")).result == 1
    await tool.execution_ended("11")
    await tool.execution_ended("12")
    missing = await run(tool, "", "absent")
    assert missing.error is not None
    assert missing.error.kind == "config"
    assert "/nonexistent/installer could not be started" in missing.error.message


@BOTH
async def test_a_package_that_nobody_has_is_a_config_error(world: World, program: Installer) -> None:
    outcome = await run(world.tool(program), "", "no-such-package-anywhere==1.0")

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("config", False)
    assert "no-such-package-anywhere" in outcome.error.message
    assert "python.offline" in outcome.error.message
    assert f"{program.name} says:" in outcome.error.message
    assert list(world.environments.iterdir()) == []


@BOTH
async def test_requirements_that_exclude_each_other_are_a_config_error(world: World, program: Installer) -> None:
    wheel(world.wheels, "base", "1.0", "")
    wheel(world.wheels, "base", "2.0", "")
    wheel(world.wheels, "old", "1.0", "", needs=("base<2",))
    wheel(world.wheels, "new", "1.0", "", needs=("base>=2",))

    outcome = await run(world.tool(program), "", "old", "new")

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("config", False)
    assert "base" in outcome.error.message
    assert world.made == []


@BOTH
async def test_a_registry_that_cannot_be_reached_is_worth_a_retry(
    world: World, program: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # bound and not listening: every connection is refused
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/simple"
        monkeypatch.setenv("PIP_INDEX_URL", address)
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("UV_INDEX_URL", address)
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        tool = world.tool(program, offline=False)
        outcome = await run(tool, "", "tiny")
        assert outcome.error is not None
        assert (outcome.error.kind, outcome.error.retryable) == ("connection", True), outcome.error.message
        assert "no package registry can be reached" in outcome.error.message
        assert world.made == []
        # A retry, when it is there: the failure is not remembered.
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("UV_OFFLINE", "1")
        wheel(world.wheels, "tiny", "1.0", "")
        assert (await run(tool, "import tiny\nresult = 1", "tiny")).result == 1


@pytest.mark.parametrize("answer", ["404 Not Found", "503 Service Unavailable", "401 Unauthorized"])
@BOTH
async def test_what_a_registry_answers(
    world: World, program: Installer, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/simple"
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("UV_INDEX_URL", address)
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    async with server:
        outcome = await run(world.tool(program, offline=False), "", "tiny")
    assert outcome.error is not None
    expected = {"404": "config", "503": "connection", "401": "auth"}[answer[:3]]
    assert outcome.error.kind == expected, outcome.error.message


@pytest.mark.parametrize(
    "text",
    [
        "--index-url=http://x",
        "./here",
        "a b",
        "a @ file:///srv/a-1-py3-none-any.whl",
        "a @ https://169.254.169.254/a-1.zip",
    ],
)
async def test_what_is_no_requirement_never_reaches_an_installer(world: World, text: str) -> None:
    outcome = await run(world.tool(Installer("none", "/nonexistent/installer")), "", text)

    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert outcome.error.message.startswith("requirements[0]: ")
    assert not world.environments.exists()


# ── what runs, and who is asked ───────────────────────────────────────────────────────────────────────────────────────


def unconfined(marker: Path) -> str:
    """Python in one line that writes the marker, except in the process of a task."""
    return f"import os; 'ARCLOG_SCRATCH' in os.environ or open({str(marker)!r}, 'w').close()\n"


@BOTH
async def test_packages_run_code_in_tasks_only(
    world: World, program: Installer, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = world.folder / "ran"
    monkeypatch.setenv("UV_COMPILE_BYTECODE", "1")  # an operator's habit
    broken = "this is a template, not Python\n"
    wheel(world.wheels, "tiny", "1.0", "", more={"tiny.pth": unconfined(marker), "tiny_template.py": broken})

    outcome = await run(world.tool(program), "import os, tiny\nresult = os.path.exists(tiny.__cached__)", "tiny")

    assert outcome.error is None
    assert not marker.exists()
    assert outcome.result is True  # compiled all the same, since tasks cannot write it


@BOTH
@pytest.mark.parametrize("place", ["scripts/python", "data/pyvenv.cfg", "data/bin/python"])
async def test_a_package_that_replaces_the_interpreter_of_its_environment(
    world: World, program: Installer, place: str
) -> None:
    marker = world.folder / "ran"
    library = world.folder / "library"
    (library / "bin").mkdir(parents=True)
    (library / "bin" / "python3").symlink_to(sys.executable)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (library / "lib" / version / "encodings").mkdir(parents=True)
    (library / "lib" / version / "os.py").touch()
    (library / "lib" / version / "encodings" / "__init__.py").write_text(
        f"import posix\nb'ARCLOG_SCRATCH' in posix.environ or posix.close(posix.open({str(marker)!r}, posix.O_CREAT))\n"
    )
    text = f"home = {library / 'bin'}\n"
    if place.endswith("python"):
        text = f'#!/bin/sh\n[ -n "$ARCLOG_SCRATCH" ] || : > {marker}\nexec {sys.executable} "$@"\n'
    wheel(world.wheels, "tiny", "1.0", "", more={f"tiny-1.0.data/{place}": text})

    await run(world.tool(program), "import tiny", "tiny")  # an installer may refuse it

    assert not marker.exists()


@BOTH
async def test_a_package_that_replaces_the_installer(world: World, program: Installer) -> None:
    marker = world.folder / "ran"
    modules = [
        *("__init__", "__main__", "_internal/__init__", "_internal/cli/spinners", "_internal/utils/_log"),
        *("_internal/metadata/importlib/__init__", "_internal/metadata/__init__", "_internal/commands/show"),
        *("_internal/commands/check", "_internal/operations/check", "_internal/self_outdated_check"),
    ]
    more = {f"pip/{module}.py": unconfined(marker) for module in modules}
    wheel(world.wheels, "pip", "99.0", "", more=more)

    outcome = await run(world.tool(program), "result = 1", "pip==99.0")

    assert outcome.error is None, outcome.error.message
    assert not marker.exists()


@pytest.mark.parametrize("name", ["uv.toml", "pyproject.toml"])
async def test_files_above_the_environments_do_not_configure_the_installer(world: World, name: str) -> None:
    others = world.folder / "others"
    wheel(others, "tiny", "1.0", "")
    section = "" if name == "uv.toml" else "[tool.uv]\n"
    (world.folder / name).write_text(f"{section}find-links = [{str(others)!r}]\n")

    outcome = await run(world.tool(), "", "tiny")

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("config", "REQUIREMENTS")


async def test_the_configuration_of_the_workers_user_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    others = world.folder / "others"
    wheel(others, "tiny", "1.0", "")
    configuration = world.folder / "config" / "uv" / "uv.toml"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(f"find-links = [{str(others)!r}]\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(world.folder / "config"))

    outcome = await run(world.tool(), "import tiny\nresult = 1", "tiny")

    assert outcome.result == 1


@BOTH
async def test_with_only_wheels_nothing_is_built(world: World, program: Installer) -> None:
    source_package(world.wheels, "tiny", "1.0", "got = 'built'")

    outcome = await run(world.tool(program, only_wheels=True), "", "tiny")

    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == ("config", "REQUIREMENTS")
    assert "python.only_wheels" in outcome.error.message
    assert (await run(world.tool(program), "import tiny\nresult = tiny.got", "tiny")).result == "built"


async def test_a_folder_that_cannot_be_written(world: World) -> None:
    world.environments.write_text("a file, not a folder")
    outcome = await run(world.tool(), "", "tiny")

    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert "set python.environments" in outcome.error.message


# ── several at once, and ends in the middle ──────────────────────────────────────────────────────────────────────────


class Gate:
    """An installer that waits in the middle until it is let go on; it says when it began, and how often."""

    def __init__(self, folder: Path) -> None:
        self.begun = folder / "begun"
        self.go_on = folder / "go-on"
        self.pipe = folder / "pipe"
        os.mkfifo(self.pipe)
        os.mkfifo(self.go_on)
        script = folder / "gated-uv"
        script.write_text(
            f'#!/bin/sh\ncase $1 in venv) exec {UV.program} "$@";; esac\n'
            f'echo $$ >> {self.begun}\necho began > {self.pipe}\nread line < {self.go_on}\nexec {UV.program} "$@"\n'
        )
        script.chmod(0o755)
        self.installer = Installer("uv", str(script))

    async def wait(self) -> None:
        """Until an installer stands at the gate."""
        await asyncio.to_thread(self.pipe.read_text)

    async def open(self) -> None:
        await asyncio.to_thread(self.go_on.write_text, "go\n")

    @property
    def times(self) -> int:
        return len(self.begun.read_text().splitlines())


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


async def test_tasks_and_processes_that_want_the_same_share_one_installation(world: World, gate: Gate) -> None:
    wheel(world.wheels, "tiny", "1.0", "")
    # Two tools stand for two processes: a lock belongs to the open file, not to the process.
    first_tool, other = world.tool(gate.installer), world.tool(gate.installer)
    logs = [Log() for _ in range(4)]
    runs = [
        asyncio.ensure_future(run(tool, "import tiny\nresult = 1", "tiny", log=log, execution_id=str(number)))
        for number, (tool, log) in enumerate(zip((first_tool, first_tool, other, other), logs, strict=True))
    ]
    await gate.wait()
    await gate.open()

    assert [(await run).result for run in runs] == [1, 1, 1, 1]
    assert gate.times == 1
    assert all("ready" in log.of("log")[-1] for log in logs[:2])
    assert any("another process makes the environment" in line for line in logs[2].of("log"))


def mid_install(world: World) -> Callable[[], bool]:
    digest = normalize_requirements(["tiny"]).digest
    return (world.environments / digest / "bin" / "python").exists


async def test_who_is_cancelled_takes_the_installer_along_and_leaves_nothing(world: World, gate: Gate) -> None:
    wheel(world.wheels, "tiny", "1.0", "")
    tool, is_half_made = world.tool(gate.installer), mid_install(world)
    first = asyncio.ensure_future(run(tool, "result = 1", "tiny"))
    await gate.wait()
    assert is_half_made()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not is_half_made()
    assert list(world.environments.iterdir()) == []
    assert processes_with(str(gate.installer.program)) == []


async def test_one_who_still_waits_keeps_the_installation_going(world: World, gate: Gate) -> None:
    wheel(world.wheels, "tiny", "1.0", "")
    tool = world.tool(gate.installer)
    first = asyncio.ensure_future(run(tool, "result = 1", "tiny"))
    await gate.wait()
    second = asyncio.ensure_future(run(tool, "result = 2", "tiny"))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await gate.open()
    assert (await second).result == 2
    assert gate.times == 1


async def test_a_killed_process_leaves_nothing_that_looks_whole(world: World, gate: Gate) -> None:
    wheel(world.wheels, "tiny", "1.0", "")
    program = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom arclog.model.config.settings import Settings\n"
        "from arclog.sandbox.installers import Installer\nfrom arclog.testing.tools import task_context\n"
        "from arclog.tools.python import PythonConfig, PythonTool\n"
        "async def main(environments, wheels, scratch, uv):\n"
        "    values = {'python.environments': environments, 'python.find_links': wheels, 'python.offline': True}\n"
        "    tool = PythonTool(Settings(values), Path(scratch), installer=Installer('uv', uv))\n"
        "    await tool.run(PythonConfig(code='', requirements=['tiny']), task_context())\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    arguments = [world.environments, world.wheels, world.folder / "killed", gate.installer.program]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, *map(str, arguments))
    await gate.wait()
    assert mid_install(world)()
    left = offspring()
    process.kill()
    assert await process.wait() == -signal.SIGKILL
    assert wait_dead(left) == []

    [environment] = known_environments(world.environments)
    assert environment.record is None
    outcome = await run(world.tool(UV), "import tiny\nresult = 1", "tiny")
    assert outcome.result == 1
    assert world.made == [("tiny",)]
    assert [path.name for path in world.environments.iterdir() if path.is_dir()] == [
        normalize_requirements(["tiny"]).digest
    ]


async def test_an_installer_that_is_killed_is_no_fault_of_the_requirements(world: World, gate: Gate) -> None:
    task = asyncio.ensure_future(run(world.tool(gate.installer), "", "tiny"))
    await gate.wait()
    os.kill(int(gate.begun.read_text()), signal.SIGKILL)
    outcome = await task
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("killed", "SIGKILL", True)


# ── what is known of the cache ───────────────────────────────────────────────────────────────────────────────────────


async def test_environments_are_known_by_their_last_use_and_not_removed_while_in_use(world: World) -> None:
    for name in ("one", "two"):
        wheel(world.wheels, name, "1.0", "")
    tool = world.tool()
    for name in ("one", "two"):
        await run(tool, "", name)
    first, second = known_environments(world.environments)
    assert [listed.record and listed.record.requirements for listed in (first, second)] == [("one",), ("two",)]
    assert not remove_environment(world.environments, first.digest)  # a warm process has it

    await tool.execution_ended("11")
    for known in (first, second):
        os.utime(known.folder.with_suffix(".json"), (1000, 1000))
    await run(tool, "import one", "one")
    assert [environment.digest for environment in known_environments(world.environments)] == [
        second.digest,
        first.digest,
    ]
    assert not remove_environment(world.environments, first.digest)
    await tool.execution_ended("11")
    await tool.close()
    assert remove_environment(world.environments, first.digest)
    assert [environment.digest for environment in known_environments(world.environments)] == [second.digest]
    assert not remove_environment(world.environments, "never")
