"""Installed from a wheel or an sdist, with and without extras, every command works or names the extra that it needs."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from arclog.model.config.extras import ALL, EXTRAS
from tests.project.installing import REMEDY, ROOT, Installed, build, install, install_with_pip, pythons

HELLO = str(ROOT / "examples/hello.yaml")
NOWHERE = "127.0.0.1:1"
ALL_EXTRAS = frozenset(EXTRAS)


def playbook(kind: str, keys: str) -> str:
    return f"metadata: {{name: p}}\nworkflow:\n  - {{step: start, tool: {{kind: {kind}, {keys}}}}}\n"


#: kind → keys of a task that needs its driver, and fails at a server that is not there if it needs one
TASKS = {
    "postgres": f"dsn: 'postgresql://{NOWHERE}/x', command: SELECT 1",
    "duckdb": "command: SELECT 1",
    "object": f"action: get, url: 's3://b/x', endpoint: 'http://{NOWHERE}', allow_http: true",
    "nats": f"op: publish, servers: 'nats://{NOWHERE}', subject: a, data: 1",
}
#: extra → environment of a command that needs it, and fails at a server that is not there
BACKENDS = {
    "postgres": {"ARCLOG_STORE_URL": f"postgresql://{NOWHERE}/x"},
    "object": {"ARCLOG_RESULTS_URL": "s3://bucket/prefix"},
    "nats": {"ARCLOG_BUS_URL": f"nats://{NOWHERE}"},
}
EVERY_COMMAND = """
import contextlib, io
from arclog.cli.args import COMMANDS, dispatch
for name in COMMANDS:
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        dispatch([name, "--help"])
    assert "usage: arclog " + name in said.getvalue(), name
"""


def check(installed: Installed, extras: frozenset[str], *, quick: bool = False) -> None:
    """Every command works, or names the one extra that it needs and that is not there."""
    version = installed.python("-m", "arclog", "--version")
    assert (version.returncode, version.stdout) == (0, installed.arclog("version").stdout)
    every = installed.python("-c", EVERY_COMMAND)
    assert every.returncode == 0, every.stderr
    ran = installed.arclog("run", HELLO, "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["state"] == "COMPLETED"
    for words in [["list"], ["why", "last"], ["doctor"], ["schema"], ["secret", "list"]][: 1 if quick else None]:
        done = installed.arclog(*words)
        assert done.returncode == 0, done.stderr
    _worker(installed)
    for kind, keys in TASKS.items():
        file = installed.home.parent / f"{kind}.yaml"
        file.write_text(playbook(kind, keys))
        done = installed.arclog("run", str(file), "--json")
        error = json.loads(done.stdout).get("error") or {}
        assert error.get("kind") != "internal", error
        named(str(error.get("message")), kind, extras)
    for extra, variables in BACKENDS.items():
        done = installed.arclog("run", HELLO, ARCLOG_STORE_PATIENCE_S="0", ARCLOG_RESULTS_TIMEOUT_S="1", **variables)
        assert "this is a bug" not in done.stderr
        named(done.stderr, extra, extras)
    schedule = ["schedule", "add", "daily", "--cron", "0 6 * * *", "--path", "hello"]
    for words in (["key", "create", "--name", "ci", "--role", "operator"], schedule):
        done = installed.arclog(*words)
        assert done.returncode == (0 if "server" in extras else 2), done.stderr
        named(done.stderr, "server", extras)
    if "server" not in extras:
        done = installed.arclog("up", "--port", "0")
        assert done.returncode == 2
        named(done.stderr, "server", extras)


def named(message: str, extra: str, extras: frozenset[str]) -> None:
    """A message names the extra if, and only if, it is missing."""
    assert REMEDY.findall(message) == ([] if extra in extras else [extra]), message


def _worker(installed: Installed) -> None:
    """A worker needs no extra: it starts, and waits for its server."""
    with installed.running("worker", "--server", f"http://{NOWHERE}") as worker:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        assert "cannot be reached" in line, line
        assert worker.poll() is None


def serve(installed: Installed) -> None:
    """`up` answers, and a run over HTTP ends."""
    # A home of its own: a server asks for keys once one was made.
    installed = Installed(installed.folder, installed.home.with_name("served"))
    with installed.running("up", "--port", "0", "--json") as server:
        assert server.stdout is not None
        # Its first line, whatever it logs.
        url = json.loads(server.stdout.readline())["url"]
        done = installed.arclog("run", HELLO, "--server", url, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["state"] == "COMPLETED"


def test_the_wheel_without_extras(tmp_path: Path) -> None:
    check(install(tmp_path, build(tmp_path / "dist", "wheel")), frozenset(), quick=True)


@pytest.mark.soak  # the wheel, which is built from the same files, is installed in every run
def test_the_sdist_with_all_extras(tmp_path: Path) -> None:
    installed = install(tmp_path, build(tmp_path / "dist", "sdist"), ALL)
    check(installed, ALL_EXTRAS, quick=True)
    serve(installed)


def test_readme_names_every_extra() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Install")[1].split("\n## ")[0]
    for extra in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]:
        assert f"`{extra}`" in section


@pytest.fixture(params=["oldest", "newest"])
def python(request: pytest.FixtureRequest) -> Path:
    # Asked for here and not in the parameters: every process that collects the tests would start each Python of the machine.
    versions = pythons()
    if request.param == "newest" and len(versions) == 1:
        pytest.skip("this machine has one Python that arclog runs on")
    return versions[0 if request.param == "oldest" else -1]


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", ["wheel", "sdist"])
@pytest.mark.parametrize("extras", ["", *EXTRAS, ALL])
def test_every_extra_alone(tmp_path: Path, python: Path, form: str, extras: str) -> None:
    installed = install(tmp_path, build(tmp_path / "dist", form), extras, python)
    there = ALL_EXTRAS if extras == ALL else frozenset({extras} - {""})
    check(installed, there)
    if "server" in there:
        serve(installed)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("extras", ["", "[all]"])
def test_pip_from_the_tree(tmp_path: Path, python: Path, extras: str) -> None:
    installed = install_with_pip(tmp_path, f".{extras}", python)
    check(installed, ALL_EXTRAS if extras else frozenset())
    if extras:
        serve(installed)
