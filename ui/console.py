"""Builds the console: packages by `npm ci`, then Vite, into the Python package.

Standard library only. `./x` runs it with the Node of `requirements/ui.txt`, the build hook (`hatch_build.py`) with the one of
its own environment. What was built carries a digest of its sources, so that nothing is built twice.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

UI = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(UI)
#: Where the built files go: package data that is never committed.
BUILT = os.path.join(ROOT, "src", "arclog", "server", "static")
_STAMP = "built-from"
#: Not part of what is built.
_ASIDE = ("node_modules", "README.md", "console.py", "api_types.py", "screenshots.py", "__pycache__")


class BuildFailed(Exception):
    """A command failed; the message has its last words."""


def digest() -> str:
    """A hash over everything that the built files come from; '' where the sources are not."""
    if not os.path.exists(os.path.join(UI, "package.json")):
        return ""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(UI):
        folders[:] = sorted(name for name in folders if name not in _ASIDE)
        for name in sorted(name for name in files if name not in _ASIDE and not name.endswith(".test.ts")):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found.update(os.path.relpath(path, UI).encode() + b"\0" + hashlib.sha256(file.read()).digest())
    return found.hexdigest()


def is_built() -> bool:
    """Whether the built files are there and come from the sources as they are now."""
    if not os.path.exists(os.path.join(BUILT, "index.html")):
        return False
    wanted = digest()
    return not wanted or _read(os.path.join(BUILT, _STAMP)) == wanted


def build(node: str) -> None:
    """Install the packages and build, with the Node in the folder `node`. Raises BuildFailed."""
    wanted = digest()
    install(node, UI)
    npm(node, UI, "run", "build")
    with open(os.path.join(BUILT, _STAMP), "w", encoding="utf-8") as file:
        file.write(wanted)


def install(node: str, folder: str) -> None:
    """Install the packages of a folder's lock, unless they are there."""
    with open(os.path.join(folder, "package-lock.json"), "rb") as file:
        wanted = hashlib.sha256(file.read()).hexdigest()
    stamp = os.path.join(folder, "node_modules", _STAMP)
    if _read(stamp) == wanted:
        return
    npm(node, folder, "ci", "--no-audit", "--no-fund")
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(wanted)


def npm(node: str, folder: str, *args: str) -> None:
    """Run npm quietly. Raises BuildFailed with what it said last."""
    done = subprocess.run(
        [*npm_command(node), *args],
        cwd=folder, env=environment(node), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        said = "\n".join("   | " + line for line in done.stdout.strip().splitlines()[-30:])
        raise BuildFailed(f"npm {' '.join(args)} failed in {os.path.relpath(folder, ROOT)}:\n{said}")


def npm_command(node: str) -> list[str]:
    return [os.path.join(node, "bin", "node"), os.path.join(node, "lib", "node_modules", "npm", "bin", "npm-cli.js")]


def environment(node: str) -> dict[str, str]:
    """Scripts of packages find the same Node."""
    return {**os.environ, "PATH": os.path.join(node, "bin") + os.pathsep + os.environ.get("PATH", "")}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def main(argv: list[str]) -> int:
    """`build NODE`: what a container image's build calls."""
    if len(argv) != 2 or argv[0] != "build":
        sys.stderr.write("usage: python ui/console.py build FOLDER-OF-NODE\n")
        return 2
    try:
        build(argv[1])
    except BuildFailed as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
