"""The project's own promises: hashed locks without addresses, a licence, a first minute that works as written."""

from __future__ import annotations

import configparser
import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PURE = ("model", "expr", "playbook", "plan", "core", "history", "dialects")


def normal(requirement: str) -> str:
    """The name in a requirement, as registries compare names."""
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match, f"no name in {requirement!r}"
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def pins(lock: Path) -> dict[str, str]:
    """name → version of everything that a lock pins."""
    return {normal(name): version for name, version in re.findall(r"(?m)^([A-Za-z0-9._-]+)==(\S+)", lock.read_text())}


def wanted(inputs: str) -> set[str]:
    lines = (line.split("#")[0].strip() for line in (ROOT / "requirements" / inputs).read_text().splitlines())
    return {normal(line) for line in lines if line}


def test_the_locks_are_there():
    assert [lock.stem for lock in LOCKS] == ["bench", "dev", "helm", "runtime", "ui", "uv"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_pin_of_a_lock_has_hashes(lock):
    logical = lock.read_text().replace("\\\n", " ")
    requirements = [line for line in logical.splitlines() if line and not line.lstrip().startswith("#")]
    assert requirements
    for line in requirements:
        assert re.match(r"[A-Za-z0-9._-]+==\S+", line), f"{lock.name} has a line that pins nothing: {line}"
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", line), f"{lock.name} has no hash for {line.split()[0]}"


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_names_no_address_and_no_path(lock):
    text = lock.read_text()
    assert not re.search(r"://|--(extra-)?index|--find-links|@ |(?m:(^|\s)/\w)", text)


def test_every_dependency_is_locked():
    project, build = PYPROJECT["project"]["dependencies"], PYPROJECT["build-system"]["requires"]
    # Node builds the console alone, and has a lock of its own.
    node = wanted("ui.in")
    assert node <= {normal(requirement) for requirement in build} & pins(ROOT / "requirements/ui.txt").keys()
    runtime = {normal(requirement) for requirement in [*project, *build]} - node | wanted("build.in")
    assert runtime <= pins(ROOT / "requirements/runtime.txt").keys()
    assert runtime | wanted("dev.in") <= pins(ROOT / "requirements/dev.txt").keys()
    assert runtime | wanted("bench.in") <= pins(ROOT / "requirements/bench.txt").keys()


@pytest.mark.parametrize("larger", ["dev", "bench"])
def test_the_larger_locks_hold_the_runtime_lock_unchanged(larger):
    assert pins(ROOT / "requirements/runtime.txt").items() <= pins(ROOT / f"requirements/{larger}.txt").items()


def test_readme_starts_with_the_two_promised_commands():
    commands = re.findall(r"(?m)^\./x .*$|^\$ .*$|^pip .*$", (ROOT / "README.md").read_text())
    assert [re.split(r"\s+#", command)[0].rstrip() for command in commands[:2]] == [
        "./x run examples/hello.yaml",
        "./x test",
    ]


def test_links_between_the_papers_lead_somewhere():
    papers = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/adr/README.md")]
    for paper in papers:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", paper.read_text()):
            assert (paper.parent / target).exists(), f"{paper.name} links to {target}, which is not there"


def test_licence_is_apache_2_in_full():
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert PYPROJECT["project"]["license"] == "Apache-2.0"


def test_changelog_has_a_place_for_what_comes():
    assert re.search(r"(?m)^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text())


@pytest.mark.parametrize("script", ["x", ".ci/run"])
def test_scripts_can_be_started(script):
    assert (ROOT / script).stat().st_mode & stat.S_IXUSR


def test_continuous_integration_runs_the_same_as_everybody():
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands[-1] == "exec ./x test"


def test_every_package_that_is_there_has_its_layer():
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    layers = set(re.findall(r"\w+", config["importlinter:contract:layers"]["layers"]))
    packages = {path.parent.name for path in (ROOT / "src/arclog").glob("*/__init__.py")}
    assert packages <= layers


def test_every_pure_package_is_under_the_purity_contract():
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    sources = config["importlinter:contract:pure"]["source_modules"].split()
    assert {source.removesuffix(".**") for source in sources} == {f"arclog.{package}" for package in PURE}


def x(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "x"), *args]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=60)


def test_x_without_a_command_explains_itself():
    done = x()
    assert done.returncode == 2
    assert "usage: ./x COMMAND" in done.stderr


def test_x_names_an_unknown_command():
    done = x("tset")
    assert done.returncode == 2
    assert "no command 'tset'" in done.stderr


def test_x_parses_on_old_pythons_so_that_they_get_a_sentence():
    import ast

    tree = ast.parse((ROOT / "x").read_text(), feature_version=(3, 7))
    first_code = next(node for node in tree.body if not isinstance(node, ast.Import | ast.Expr | ast.Assign))
    assert isinstance(first_code, ast.If), "the version check comes before anything that an old Python cannot run"


#: Runs `./x test` with a quick check, a mypy that waits for the tests to start, and tests that end with the code that was asked for.
TESTED = """
import importlib.machinery, importlib.util, subprocess, sys
script, folder, mypy, tests = sys.argv[1:]
loader = importlib.machinery.SourceFileLoader("arclog_x", script)
x = importlib.util.module_from_spec(importlib.util.spec_from_loader("arclog_x", loader))
loader.exec_module(x)
started = f"{folder}/started"
waits = "import os, sys, time\\nfor _ in range(6000):\\n  if os.path.exists(sys.argv[1]): sys.exit(int(sys.argv[2]))\\n  time.sleep(0.01)\\nsys.exit(9)"
with open(f"{folder}/tests.py", "w") as file:
    file.write(f"print('tests ran', flush=True)\\nopen({started!r}, 'w').close()\\nraise SystemExit({tests})")

def started_check(*command):
    return subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.PIPE, text=True)

x.start_checks = lambda args, collect: {"quick": started_check("1"), "mypy": started_check(waits, started, mypy)}
x.stale_locks = list
x.inside = lambda *parts: f"{folder}/tests.py"
sys.exit(x.main(["test"]))
"""


@pytest.mark.parametrize(("mypy", "tests", "code"), [(0, 0, 0), (0, 3, 3), (1, 0, 1), (1, 3, 1)])
def test_x_runs_mypy_beside_the_tests_and_fails_with_either(tmp_path: Path, mypy: int, tests: int, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-B", "-c", TESTED, ROOT / "x", tmp_path, str(mypy), str(tests)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    assert "check: quick ok" in done.stdout
    assert "tests ran" in done.stdout
    assert ("check: mypy ok" in done.stdout) == (mypy == 0)
    assert ("the checks failed, see above: mypy" in done.stderr) == (mypy != 0)
