"""The programs that fill an environment with packages: uv if it is found, else venv and pip.

Invariant: a step that runs code of packages, or works in a folder where such code may have run, is confined
(`Step.is_confined`). Packages run code when they are built from source, so uv installs wheels only at first; only if
a package has to be built does it begin again, confined. pip is always confined: it follows addresses in the metadata
of packages, and builds what it finds there even with `--only-binary`. With `tasks.confinement: off`, nothing is
confined.

Unconfined steps inherit only what an installer needs: search path, proxies, certificates, their own variables. Nothing
outside of a sandbox starts the Python of an environment once packages are in it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

from msgspec import Struct

from arclog.drivers.addresses import without_logins
from arclog.model.config.settings import Settings
from arclog.model.outcome import TaskError, error
from arclog.sandbox.confinement_settings import LIST, Confinement

# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: compiles the modules in a folder, in one process where semaphores are forbidden. Files that are not valid Python, such
#: as templates, are left alone.
_COMPILE = """
import compileall, sys
try:
    compileall.compile_dir(sys.argv[1], quiet=2, workers=0)
except OSError:
    compileall.compile_dir(sys.argv[1], quiet=2)
"""
_NOTES = "notes.txt"


class Source(Struct, frozen=True):
    """The sources of packages, besides the installer's own configuration."""

    #: use only packages on this machine
    offline: bool
    #: folders or addresses with packages
    find_links: tuple[str, ...]
    #: build no package from source
    only_wheels: bool = False


class Step(Struct, frozen=True):
    """One command of an installation."""

    command: list[str]
    #: it runs code of packages, or works on their files
    is_confined: bool = False


class InstallFolders(Struct, frozen=True):
    """The folders of one installation. Everything in `scratch` is removed afterwards."""

    environment: Path
    scratch: Path

    @property
    def work(self) -> Path:
        """The installer's temporary files. Confined steps may write here and in the environment."""
        return self.scratch / "work"

    @property
    def home(self) -> Path:
        return self.work / "home"

    @property
    def temporary(self) -> Path:
        return self.work / "tmp"

    @property
    def cache(self) -> Path:
        return self.work / "cache"

    @property
    def notes(self) -> Path:
        """The log of pip."""
        return self.work / _NOTES

    @property
    def own_pip(self) -> Path:
        """A pip that no package can replace."""
        return self.scratch / "pip"

    @property
    def sandbox(self) -> Path:
        """The folder of a guard, which creates and removes it for each confined step."""
        return self.scratch / "sandbox"

    def make(self) -> None:
        for folder in (self.scratch, self.work, self.home, self.temporary):
            folder.mkdir(mode=0o700)


class Installer(Struct, frozen=True):
    """The program that creates an environment."""

    name: str
    #: the path of uv; '' for pip
    program: str = ""

    @property
    def prefers_wheels(self) -> bool:
        """Whether it can install without running code of packages."""
        return bool(self.program)

    def steps(self, folders: InstallFolders, wanted: tuple[str, ...], source: Source, *, builds: bool) -> list[Step]:
        """Return the steps that create the environment. With `builds`, packages may be built from source."""
        folder, python = str(folders.environment), str(folders.environment / "bin" / "python")
        arguments = [word for place in source.find_links for word in ("--find-links", place)] + list(wanted)
        if self.program:
            make = [self.program, "venv", "--quiet", "--no-project", "--python", sys.executable, folder]
            # To compile, uv would start the new environment's Python, which executes .pth files of packages.
            install = [self.program, "pip", "install", "--python", python, "--no-compile-bytecode"]
            install += ["--offline"] if source.offline else []
            install += [] if builds else ["--no-build"]
            compiling = [sys.executable, "-I", "-S", "-c", _COMPILE, f"{folder}/lib"]
            return [Step(make), Step([*install, *arguments], is_confined=builds), Step(compiling, is_confined=builds)]
        # A pip of its own, since one in the environment would go on with modules that a package has replaced.
        make_own = [sys.executable, "-I", "-m", "venv", str(folders.own_pip)]
        make = [sys.executable, "-I", "-m", "venv", "--without-pip", folder]
        install = [str(folders.own_pip / "bin" / "python"), "-I", "-m", "pip", "--python", python, "install"]
        install += ["--no-input", "--progress-bar", "off", "--log", str(folders.notes)]
        install += ["--no-index"] if source.offline else []
        install += [] if builds else ["--only-binary", ":all:"]
        return [Step(make_own), Step(make), Step([*install, *arguments], is_confined=True)]


PIP = Installer("pip")


def source_of(settings: Settings) -> Source:
    places = settings.text("python.find_links").split(",")
    stripped = tuple(place.strip() for place in places if place.strip())
    # A relative folder is resolved here, since the installer runs in another folder.
    absolute = tuple(place if "://" in place else str(Path(place).expanduser().absolute()) for place in stripped)
    return Source(bool(settings["python.offline"]), absolute, bool(settings["python.only_wheels"]))


def installer() -> Installer:
    """Return uv from the search path or from the folder of our Python, else pip."""
    beside = Path(sys.executable).parent / "uv"
    program = shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else "")
    return Installer("uv", program) if program else PIP


# ── environment variables and files ───────────────────────────────────────────────────────────────────────────────────

_PASSED = re.compile(
    r"(?:PATH|HOME|LANG|TZ|NETRC|(?:UV|PIP|XDG|SSL|LC)_.*|(?:HTTP|HTTPS|ALL|NO)_PROXY|(?:REQUESTS|CURL)_CA_BUNDLE)",
    re.IGNORECASE,
)
#: these would move the packages elsewhere, change the output, or start the filled environment
_HELD_BACK = frozenset({"PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_DRY_RUN", "PIP_QUIET", "UV_PYTHON",
                        "UV_PROJECT", "UV_TARGET", "UV_PREFIX", "UV_SYSTEM_PYTHON", "UV_WORKING_DIR",
                        "UV_WORKING_DIRECTORY", "UV_COMPILE_BYTECODE", "PIP_PYTHON"})  # fmt: skip
#: folders of the worker's user, which a confined installer replaces by its own or does without
_NOT_CONFINED = frozenset({"XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_BIN_HOME", "XDG_RUNTIME_DIR",
                           "UV_CREDENTIALS_DIR"})  # fmt: skip
#: variables whose value names files or folders, separated by spaces, commas or colons
_NAMES_FILES = ("NETRC", "UV_CONFIG_FILE", "PIP_CONFIG_FILE", "SSL_CERT_FILE", "SSL_CERT_DIR", "SSL_CLIENT_CERT",
                "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "PIP_CLIENT_CERT", "UV_FIND_LINKS",
                "PIP_FIND_LINKS", "UV_CONSTRAINT", "PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT", "UV_BUILD_CONSTRAINT",
                "UV_OVERRIDE", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "PIP_INDEX_URL",
                "PIP_EXTRA_INDEX_URL")  # fmt: skip
_CONFIGURATION = ("uv/uv.toml", "pip/pip.conf")
#: files that installers look for in the home, and the variables that name them where the home is another one
_IN_THE_HOME = {"NETRC": (".netrc", "_netrc"), "PIP_CONFIG_FILE": (".pip/pip.conf",)}
_OF_THE_MACHINE = ("/etc/uv/uv.toml", "/etc/pip.conf")
#: uv reads `uv.toml` and `pyproject.toml` in the folder where it runs and in those above, and both installers take a
#: file there for a requirement of its name. Tasks may write to folders above the environments, but never here. Unlike
#: with --no-config, the files of uv's user and of the machine count.
WORKING_FOLDER = "/"


def installer_environment(temporary: Path) -> dict[str, str]:
    """Return the environment variables of an installer."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    # With files linked from uv's cache, a task that changes its packages would change those of all environments.
    default = {"UV_LINK_MODE": "copy"}
    own = {"TMPDIR": str(temporary), "NO_COLOR": "1", "UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {name: value for name, value in {**default, **passed, **own}.items() if name not in _HELD_BACK}


def confined_environment(folders: InstallFolders) -> dict[str, str]:
    """Return the environment variables of a confined installer. Its home and its cache are its own: whoever can write
    the cache of the worker's user can change the packages of other environments.
    """
    variables = installer_environment(folders.temporary)
    user = Path(variables.get("HOME") or "~").expanduser()
    variables.setdefault("XDG_CONFIG_HOME", str(user / ".config"))
    for name, places in _IN_THE_HOME.items():
        found = next((path for path in (user / place for place in places) if path.exists()), None)
        if found is not None:
            variables.setdefault(name, str(found))
    own = {"HOME": folders.home, "UV_CACHE_DIR": folders.cache / "uv", "PIP_CACHE_DIR": folders.cache / "pip"}
    variables |= {name: str(path) for name, path in own.items()}
    return {name: value for name, value in variables.items() if name not in _NOT_CONFINED}


def files_for(program: Installer, folders: InstallFolders, source: Source, variables: Mapping[str, str]) -> list[str]:
    """Return the paths that a confined installer reads, in addition to what tasks read: the programs, local packages,
    and its configuration.
    """
    paths = [program.program, sys.executable, str(folders.own_pip)]
    paths += [path for path in paths if path]
    paths += (place for place in source.find_links if "://" not in place)
    paths += _OF_THE_MACHINE
    folders_of_configuration = variables.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    for place in (variables.get("XDG_CONFIG_HOME", ""), *folders_of_configuration.split(os.pathsep)):
        paths += (f"{place}/{name}" for name in _CONFIGURATION)
    for name in _NAMES_FILES:
        paths += re.split(r"[\s,:]+", variables.get(name, "").replace("file://", " "))
    return list(dict.fromkeys(_existing(paths)))


def _existing(paths: list[str]) -> Iterator[str]:
    """Yield the absolute paths that exist, and the files that they are links to."""
    for path in paths:
        if path.startswith("/") and path.strip("/") and not path.startswith("//") and os.path.exists(path):  # noqa: PTH110 - it never raises
            yield path
            yield os.path.realpath(path)


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────────

#: uv found no wheel of a package, and may not build it
_HAS_TO_BE_BUILT = re.compile(r"no usable wheels|\bbuild(?:ing|s)?\b[^\n]*\bdisabled|--no-build\b", re.IGNORECASE)
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
_NOTES_MAX = 4 * 1024 * 1024


class Reach(Enum):
    """The network of a step that failed."""

    UNCONFINED = "unconfined"
    ALL = "all"
    NONE = "none"
    #: the networks of `python.build_networks`
    LIST = "list"
    #: nothing, because the kernel refuses what a list of networks needs
    REFUSED = "refused"

    @classmethod
    def of(cls, confinement: Confinement | None, *, is_relayed: bool) -> Reach:
        if confinement is None:
            return cls.UNCONFINED
        return cls.REFUSED if confinement.network == LIST and not is_relayed else cls(confinement.network)


#: Why a registry cannot be reached by a confined installation, and the remedy.
_OUT_OF_REACH = {
    Reach.NONE: "it has no network: set python.build_networks to a list with the networks of the registry or of its proxy",
    Reach.LIST: "it reaches only the networks of python.build_networks: set python.build_networks to a list that has those of the "
    "registry or of its proxy",
    Reach.REFUSED: "it has no network, since this machine refuses what the list in python.build_networks needs (`arclog doctor`): "
    "set python.build_networks to `all`, where packages may reach every address",
}


def has_to_build(lines: list[str]) -> bool:
    """Return whether an installer that may not build packages failed because one has to be built."""
    return _HAS_TO_BE_BUILT.search("\n".join(lines)) is not None


def installer_failure(
    program: Installer,
    wanted: str,
    source: Source,
    lines: list[str],
    notes: Path,
    reach: Reach = Reach.UNCONFINED,
) -> TaskError:
    """Return the error for an installer's last output. pip reports a failed registry only in its log file."""
    shown = [without_logins(_COLOUR.sub("", line)) for line in lines if not line.startswith("Using Python")]
    last_lines = "\n".join(shown[-_LAST_LINES:])[-_MESSAGE_MAX:].strip()
    everything = "\n".join([*lines, *_trouble(notes)])
    problem = f"the environment for {wanted} could not be made"
    is_confined = reach is not Reach.UNCONFINED
    by = f"{program.name}, confined" if is_confined else program.name
    if _FULL.search(everything):
        return error("limit", f"{problem}: the disk is full ({by}):\n{last_lines}", code="ENOSPC")
    if not source.offline and _UNREACHABLE.search(everything) and not _UNKNOWN.search(everything):
        kind = "config" if reach in (Reach.NONE, Reach.REFUSED) else "connection"
        hint = "no package registry can be reached; a retry may help, or set python.find_links and python.offline"
        if reach in _OUT_OF_REACH:
            why = "a package has to be built from source" if program.prefers_wheels else "pip can run code of packages"
            hint = f"{why}, so the installation is confined, and {_OUT_OF_REACH[reach]}, or offer wheels in python.find_links"
        return error(kind, f"{problem}: {hint} ({by}):\n{last_lines}", code="REGISTRY")
    if _UNAUTHORIZED.search(everything):
        return error("auth", f"{problem}: the registry refuses access ({by}):\n{last_lines}", code="REGISTRY")
    if "ensurepip" in everything and not program.program:
        hint = "install uv, or the venv module of this Python (Debian, Ubuntu: apt install python3-venv)"
        return error("config", f"{problem}: {hint}:\n{last_lines}", code="INSTALLER")
    bounds = ["offline: python.offline"] if source.offline else []
    if is_confined:
        bounds.append("confined, without the installer's cache" if source.offline else "confined")
    if source.only_wheels:
        bounds.append("no package is built from source: python.only_wheels")
    limits = f" ({'; '.join(bounds)})" if bounds else ""
    return error("config", f"{problem}{limits}; {program.name} says:\n{last_lines}", code="REQUIREMENTS")


def _trouble(notes: Path) -> list[str]:
    """Return the warnings in pip's log. Packages may have replaced the file by anything else."""
    try:
        log = os.open(notes, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        text = os.read(log, _NOTES_MAX) if stat.S_ISREG(os.fstat(log).st_mode) else b""
    finally:
        os.close(log)
    lines = text.decode("utf-8", "replace").splitlines()
    return [line for line in lines if "Could not fetch URL" in line or "WARNING" in line]
