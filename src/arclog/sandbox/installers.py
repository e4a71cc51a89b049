"""The programs that fill an environment: uv where it is found, else venv and pip. What they say of a failure, as a TaskError.

Their processes see only what an installer needs of ours (search path, proxies, certificates, their own variables), since
a package that is built from source runs its own code.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from msgspec import Struct

from arclog.drivers.addresses import without_logins
from arclog.model.config.settings import Settings
from arclog.model.outcome import TaskError, error
from arclog.sandbox.requirements import Wanted

_PASSED = re.compile(
    r"(?:PATH|HOME|LANG|TZ|NETRC|(?:UV|PIP|XDG|SSL|LC)_.*|(?:HTTP|HTTPS|ALL|NO)_PROXY|(?:REQUESTS|CURL)_CA_BUNDLE)",
    re.IGNORECASE,
)
#: would put the packages elsewhere, or change what is printed
_HELD_BACK = frozenset({"PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_DRY_RUN", "PIP_QUIET", "UV_PYTHON",
                        "UV_PROJECT", "UV_TARGET", "UV_PREFIX", "UV_SYSTEM_PYTHON"})  # fmt: skip

_UNREACHABLE = re.compile(
    r"error sending request|failed to fetch|could not connect|connection (?:refused|reset|aborted|error|broken)"
    r"|connect(?:ion)? ?time(?:d ?)?out|tcp connect error|dns error|name (?:or service not known|resolution)"
    r"|newconnectionerror|read ?timeout|timed out|max retries exceeded|network is unreachable|no route to host"
    r"|failed to establish a new connection|remotedisconnected|proxyerror|HTTP status server error|5\d\d server error",
    re.IGNORECASE,
)
_UNKNOWN = re.compile(r"HTTP status client error \(404|404 client error", re.IGNORECASE)
_UNAUTHORIZED = re.compile(
    r"\b(?:401 unauthorized|403 forbidden|40[13] client error)|authentication credentials", re.IGNORECASE
)
_FULL = re.compile(r"no space left on device|os error 28|disk quota exceeded", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LAST_LINES = 12
_MESSAGE_MAX = 4000


class Source(Struct, frozen=True):
    """Where packages come from, beside what the installer's own configuration says."""

    #: only what is on this machine
    offline: bool
    #: folders or addresses with packages
    find_links: tuple[str, ...]


class Installer(Struct, frozen=True):
    """How an environment is made."""

    name: str
    #: the program of uv; '' for pip
    program: str = ""

    def commands(self, folder: Path, wanted: Wanted, source: Source, notes: Path) -> list[list[str]]:
        """What to run, one after the other, to make the environment in `folder`; `notes` is a file for what it does not
        print.
        """
        python = str(folder / "bin" / "python")
        links = [word for place in source.find_links for word in ("--find-links", place)]
        if self.program:
            make = [self.program, "venv", "--quiet", "--no-project", "--python", sys.executable, str(folder)]
            install = [self.program, "pip", "install", "--python", python, "--compile-bytecode"]
            return [make, [*install, *(["--offline"] if source.offline else []), *links, *wanted.requirements]]
        make = [sys.executable, "-m", "venv", str(folder)]
        install = [python, "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off", "--log", str(notes)]
        return [make, [*install, *(["--no-index"] if source.offline else []), *links, *wanted.requirements]]


PIP = Installer("pip")


def source_of(settings: Settings) -> Source:
    places = settings.text("python.find_links").split(",")
    links = tuple(place.strip() for place in places if place.strip())
    # A folder is meant from where we run; the installer runs elsewhere.
    absolute = tuple(link if "://" in link else str(Path(link).expanduser().absolute()) for link in links)
    return Source(offline=bool(settings["python.offline"]), find_links=absolute)


def installer() -> Installer:
    """Uv from the search path or from beside our Python, else pip."""
    beside = Path(sys.executable).parent / "uv"
    program = shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else "")
    return Installer("uv", program) if program else PIP


def environment(scratch: Path) -> dict[str, str]:
    """What an installer sees of our environment."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    # Files that are linked into uv's cache would let a task that changes its packages change everybody's.
    default = {"UV_LINK_MODE": "copy"}
    own = {"TMPDIR": str(scratch), "NO_COLOR": "1", "UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {name: value for name, value in {**default, **passed, **own}.items() if name not in _HELD_BACK}


def _trouble(notes: Path) -> list[str]:
    try:
        with notes.open(encoding="utf-8", errors="replace") as file:
            return [line for line in file if "Could not fetch URL" in line or "WARNING" in line]
    except FileNotFoundError:
        return []


def failure(program: Installer, wanted: Wanted, source: Source, lines: list[str], notes: Path) -> TaskError:
    """What an installer's last words mean. pip says only in its notes why a registry gave nothing."""
    telling = [without_logins(_COLOUR.sub("", line)) for line in lines if not line.startswith("Using Python")]
    said = "\n".join(telling[-_LAST_LINES:])[-_MESSAGE_MAX:].strip()
    everything = "\n".join([*lines, *_trouble(notes)])
    what = f"the environment for {wanted} could not be made"
    if _FULL.search(everything):
        return error("limit", f"{what}: the disk is full ({program.name}):\n{said}", code="ENOSPC")
    if not source.offline and _UNREACHABLE.search(everything) and not _UNKNOWN.search(everything):
        hint = "no package registry can be reached; a retry may help, or set python.find_links and python.offline"
        return error("connection", f"{what}: {hint} ({program.name}):\n{said}", code="REGISTRY")
    if _UNAUTHORIZED.search(everything):
        return error("auth", f"{what}: the registry refuses access ({program.name}):\n{said}", code="REGISTRY")
    if "ensurepip" in everything and not program.program:
        hint = "install uv, or the venv module of this Python (Debian, Ubuntu: apt install python3-venv)"
        return error("config", f"{what}: {hint}:\n{said}", code="INSTALLER")
    offline = " (offline: python.offline)" if source.offline else ""
    return error("config", f"{what}{offline}; {program.name} says:\n{said}", code="REQUIREMENTS")
