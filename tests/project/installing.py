"""The package as users get it: built, and installed in a virtual environment of its own."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

#: The Python below this environment.
BASE = Path(getattr(sys, "_base_executable", sys.executable))
ROOT = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
#: A remedy as arclog's messages give it.
REMEDY = re.compile(r"pip install 'arclog\[(\w+)\]'")


def _x() -> Any:
    """The program ./x as a module: it knows how this machine's pip is set up."""
    loader = importlib.machinery.SourceFileLoader("arclog_x", str(ROOT / "x"))
    spec = importlib.util.spec_from_loader("arclog_x", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return module


@cache
def pythons() -> list[Path]:
    """The oldest Python that arclog runs on and the newest one that this machine has."""
    by_version: dict[tuple[int, ...], Path] = {}
    places = [BASE, *Path.home().glob(".pyenv/versions/*/bin/python3")]
    places += [Path(name) for version in range(11, 20) if (name := shutil.which(f"python3.{version}"))]
    for place in places:
        command = [str(place), "-c", "import sys, venv, ensurepip; print(*sys.version_info[:3])"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            by_version.setdefault(tuple(map(int, done.stdout.split())), place)
    fit = sorted(version for version in by_version if version[:2] >= OLDEST)
    return [by_version[version] for version in dict.fromkeys((fit[0], fit[-1]))]


def build(folder: Path, form: str) -> Path:
    """The wheel or the sdist of this tree, with the console in it."""
    subprocess.run([ROOT / "x", "ui", "build"], check=True)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", form, "-d", folder], cwd=ROOT, check=True)
    (made,) = folder.glob("*.whl" if form == "wheel" else "*.tar.gz")
    return made


@dataclass
class Installed:
    """A virtual environment with arclog in it."""

    folder: Path
    home: Path

    def environment(self, variables: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("ARCLOG_", "PYTHON"))}
        return {**own, "ARCLOG_HOME": str(self.home), "NO_COLOR": "1", **(variables or {})}

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.folder / "bin/python"), *words], {})

    def arclog(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self._run([str(self.folder / "bin/arclog"), *words], variables)

    def _run(self, command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(variables),
            cwd=self.home.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @contextmanager
    def running(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """A command that does not end by itself."""
        process = subprocess.Popen(
            [str(self.folder / "bin/arclog"), *words],
            env=self.environment(),
            cwd=self.home.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(30)
            assert process.stdout is not None
            process.stdout.close()


def install(folder: Path, package: Path, extras: str = "", python: Path | None = None) -> Installed:
    """A fresh environment with a wheel, an sdist or a tree, from uv's cache where that has what is needed."""
    uv = str(Path(sys.executable).parent / "uv")
    environment = _x().uv_environment(sys.executable)
    made = folder / "venv"
    subprocess.run([uv, "venv", "--quiet", "--python", str(python or BASE), str(made)], check=True)
    wanted = f"arclog{f'[{extras}]' if extras else ''} @ file://{package}"
    # The versions that are locked: what a registry has today is not what is tested here.
    command = [
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        str(made),
        "--constraint",
        "requirements/runtime.txt",
        wanted,
    ]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    return Installed(made, folder / "home")


def install_with_pip(folder: Path, package: str, python: Path) -> Installed:
    """The same by pip, as README says."""
    made = folder / "venv"
    subprocess.run([str(python), "-m", "venv", str(made)], check=True)
    command = [str(made / "bin/python"), "-m", "pip", "install", "--quiet", "--no-input", package]
    subprocess.run(command, cwd=ROOT, check=True)
    return Installed(made, folder / "home")
