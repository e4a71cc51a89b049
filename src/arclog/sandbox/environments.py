"""Cached environments of packages: one folder for each set of requirements, shared by all processes with the same home.

Invariant: an environment is complete when its record exists, and the record is written last. Creating or removing one
takes an exclusive lock, using it a shared one. (It is created in place, not renamed: programs in an environment contain
its path.) The kernel releases the locks of a process that dies, so a dead process blocks no other.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
import shutil
import sys
import sysconfig
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from arclog.drivers.addresses import without_logins
from arclog.model.config.settings import Settings
from arclog.model.outcome import TaskError, error
from arclog.sandbox.launcher import Launcher
from arclog.sandbox.processes import Tree, ended_by
from arclog.sandbox.streams import Lines

# ── requirements ──────────────────────────────────────────────────────────────────────────────────────────────────────
# The requirements of a python task: names of packages with extras, versions and markers (PEP 508, PEP 440), in plain
# ASCII. Nothing else is accepted: an installer would follow an address or a path as the worker's user, with its logins.
#
# Equivalent lists have the same digest, so they share an environment.


_NAME = r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?"
_VERSION = r"""(?:===|==|~=|!=|<=|>=|<|>) \s*
    v?(?:\d+!)? \d+(?:\.\d+)*
    (?:[-_.]?(?:alpha|a|beta|b|preview|pre|c|rc)[-_.]?\d*)?
    (?:-\d+|[-_.]?(?:post|rev|r)[-_.]?\d*)?
    (?:[-_.]?dev[-_.]?\d*)?
    (?:\.\*|\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?"""
_REQUIREMENT = re.compile(
    rf"""
    (?P<name>{_NAME}) \s*
    (?:\[ \s* (?P<extras>{_NAME}(?:\s*,\s*{_NAME})*)? \s* \])? \s*
    (?P<open>\()? \s* (?P<versions>{_VERSION}(?:\s*,\s*{_VERSION})*)? \s* (?(open)\)) \s*
    (?:;\s*(?P<marker>.+))?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_TERM = r"""(?:python_version|python_full_version|os_name|sys_platform|platform_(?:release|system|version|machine)
    |platform_python_implementation|implementation_name|implementation_version|extra
    |'[a-z0-9 ._*+!,<>=~-]*'|"[a-z0-9 ._*+!,<>=~-]*")"""
_COMPARISON = rf"(?:{_TERM} \s* (?:===|==|~=|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b) \s* {_TERM})"
_COMPARISONS = rf"\s* {_COMPARISON} (?:\s*\b(?:and|or)\b\s* {_COMPARISON})* \s*"
_MARKER = re.compile(_COMPARISONS, re.VERBOSE | re.IGNORECASE)
_GROUP = re.compile(rf"\({_COMPARISONS}\)", re.VERBOSE | re.IGNORECASE)
#: stands for a group in parentheses, which the quoted texts of a marker cannot contain
_ANY_COMPARISON = " os_name == '' "
_PLAIN = re.compile(r"[ -~]*")
_LONGEST = 1000
_SHOWN = 100


class NotARequirement(Exception):
    """The text is not a valid requirement; the message has the reason."""


class RequirementSet(Struct, frozen=True):
    """The required packages of an environment."""

    #: normalized, sorted, each once
    requirements: tuple[str, ...]
    #: names the environment: these requirements on this Python and platform
    digest: str

    def __str__(self) -> str:
        text = ", ".join(self.requirements)
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def normalize_requirements(requirements: Sequence[str]) -> RequirementSet:
    """Return the requirements in normalized form. Raises NotARequirement."""
    lines = tuple(sorted({_normalized(text, index) for index, text in enumerate(requirements)}))
    facts = (lines, sys.version, sys.implementation.cache_tag, sysconfig.get_platform())
    return RequirementSet(lines, hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:32])


def _normalized(text: str, index: int) -> str:
    is_plain = len(text) <= _LONGEST and _PLAIN.fullmatch(text) is not None
    match = _REQUIREMENT.fullmatch(text.strip()) if is_plain else None
    if match is None or (match["marker"] and not _is_marker(match["marker"])):
        hint = "write a name with its version, e.g. 'rich==13.9.4' or 'rich>=13,<14'"
        if text.strip().startswith("-"):
            hint = "options belong to the settings python.find_links and python.offline, or to the installer's own"
        elif "{{" in text:
            hint = "requirements are literal: templates are not rendered here"
        elif any(sign in text for sign in "@:/\\"):
            hint = (
                "addresses, files and repositories are not allowed: write the package's name and version, and let the "
                "operator offer it in python.find_links or in the installer's index"
            )
        text = without_logins(text)
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        raise NotARequirement(f"requirements[{index}]: {shown!r} is not a requirement; {hint}")
    name = re.sub(r"[-_.]+", "-", match["name"]).lower()
    extras = sorted({part.strip().lower() for part in (match["extras"] or "").split(",")} - {""})
    line = f"{name}[{','.join(extras)}]" if extras else name
    if match["versions"]:
        line += ",".join(sorted({"".join(part.split()) for part in match["versions"].split(",")}))
    if match["marker"]:
        line += f" ; {' '.join(match['marker'].split())}"
    return line


def _is_marker(text: str) -> bool:
    """Return whether the text is a condition on the Python and the platform."""
    while (shorter := _GROUP.sub(_ANY_COMPARISON, text)) != text:
        text = shorter
    return _MARKER.fullmatch(text) is not None


# ── installers ────────────────────────────────────────────────────────────────────────────────────────────────────────
# The programs that fill an environment: uv if it is found, else venv and pip. Their failures become a TaskError.
#
# Their processes inherit only what an installer needs (search path, proxies, certificates, their own variables), since
# a package that is built from source runs its own code. Otherwise no code of a package runs here: nothing starts the
# Python of an environment once packages are in it.

_PASSED = re.compile(
    r"(?:PATH|HOME|LANG|TZ|NETRC|(?:UV|PIP|XDG|SSL|LC)_.*|(?:HTTP|HTTPS|ALL|NO)_PROXY|(?:REQUESTS|CURL)_CA_BUNDLE)",
    re.IGNORECASE,
)
#: these would move the packages elsewhere, change the output, or start the filled environment
_HELD_BACK = frozenset({"PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_ROOT", "PIP_DRY_RUN", "PIP_QUIET", "UV_PYTHON",
                        "UV_PROJECT", "UV_TARGET", "UV_PREFIX", "UV_SYSTEM_PYTHON", "UV_WORKING_DIR",
                        "UV_WORKING_DIRECTORY", "UV_COMPILE_BYTECODE", "PIP_PYTHON"})  # fmt: skip
#: uv reads `uv.toml` and `pyproject.toml` in the folder where it runs and in those above, and both installers take a
#: file there for a requirement of its name. Tasks may write to folders above the environments, but never here. Unlike
#: with --no-config, the files of uv's user and of the machine count.
_FOLDER = "/"

#: compiles the modules in a folder. Files that are not valid Python, such as templates, are left alone.
_COMPILE = "import compileall, sys; compileall.compile_dir(sys.argv[1], quiet=2, workers=0)"

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
    """The sources of packages, besides the installer's own configuration."""

    #: use only packages on this machine
    offline: bool
    #: folders or addresses with packages
    find_links: tuple[str, ...]
    #: build no package from source
    only_wheels: bool = False


class Installer(Struct, frozen=True):
    """The program that creates an environment."""

    name: str
    #: the path of uv; '' for pip
    program: str = ""

    def commands(self, folder: Path, wanted: RequirementSet, source: Source, notes: Path) -> list[list[str]]:
        """Return the commands that create the environment in `folder`. `notes` is a file for pip's log."""
        python = str(folder / "bin" / "python")
        arguments = [word for place in source.find_links for word in ("--find-links", place)]
        if self.program:
            make = [self.program, "venv", "--quiet", "--no-project", "--python", sys.executable, str(folder)]
            # To compile, uv would start the new environment's Python, which executes .pth files of packages.
            install = [self.program, "pip", "install", "--python", python, "--no-compile-bytecode"]
            install += ["--offline"] if source.offline else []
            install += ["--no-build"] if source.only_wheels else []
            compiling = [sys.executable, "-I", "-S", "-c", _COMPILE, str(folder / "lib")]
            return [make, [*install, *arguments, *wanted.requirements], compiling]
        # A pip of its own, since one in the environment would go on with modules that a package has replaced.
        own = notes.parent / "pip"
        make_own = [sys.executable, "-I", "-m", "venv", str(own)]
        make = [sys.executable, "-I", "-m", "venv", "--without-pip", str(folder)]
        install = [str(own / "bin" / "python"), "-I", "-m", "pip", "--python", python, "install", "--no-input"]
        install += ["--progress-bar", "off", "--log", str(notes), *(["--no-index"] if source.offline else [])]
        install += ["--only-binary", ":all:"] if source.only_wheels else []
        return [make_own, make, [*install, *arguments, *wanted.requirements]]


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


def installer_environment(scratch: Path) -> dict[str, str]:
    """Return the environment variables of an installer."""
    passed = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    # With files linked from uv's cache, a task that changes its packages would change those of all environments.
    default = {"UV_LINK_MODE": "copy"}
    own = {"TMPDIR": str(scratch), "NO_COLOR": "1", "UV_NO_PROGRESS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    return {name: value for name, value in {**default, **passed, **own}.items() if name not in _HELD_BACK}


def _trouble(notes: Path) -> list[str]:
    try:
        with notes.open(encoding="utf-8", errors="replace") as file:
            return [line for line in file if "Could not fetch URL" in line or "WARNING" in line]
    except FileNotFoundError:
        return []


def installer_failure(
    program: Installer, wanted: RequirementSet, source: Source, lines: list[str], notes: Path
) -> TaskError:
    """Return the error for an installer's last output. pip reports a failed registry only in its log file."""
    shown = [without_logins(_COLOUR.sub("", line)) for line in lines if not line.startswith("Using Python")]
    last_lines = "\n".join(shown[-_LAST_LINES:])[-_MESSAGE_MAX:].strip()
    everything = "\n".join([*lines, *_trouble(notes)])
    problem = f"the environment for {wanted} could not be made"
    if _FULL.search(everything):
        return error("limit", f"{problem}: the disk is full ({program.name}):\n{last_lines}", code="ENOSPC")
    if not source.offline and _UNREACHABLE.search(everything) and not _UNKNOWN.search(everything):
        hint = "no package registry can be reached; a retry may help, or set python.find_links and python.offline"
        return error("connection", f"{problem}: {hint} ({program.name}):\n{last_lines}", code="REGISTRY")
    if _UNAUTHORIZED.search(everything):
        return error("auth", f"{problem}: the registry refuses access ({program.name}):\n{last_lines}", code="REGISTRY")
    if "ensurepip" in everything and not program.program:
        hint = "install uv, or the venv module of this Python (Debian, Ubuntu: apt install python3-venv)"
        return error("config", f"{problem}: {hint}:\n{last_lines}", code="INSTALLER")
    offline = " (offline: python.offline)" if source.offline else ""
    return error("config", f"{problem}{offline}; {program.name} says:\n{last_lines}", code="REQUIREMENTS")


# ── environments ──────────────────────────────────────────────────────────────────────────────────────────────────────

_RECORD = "made.json"
_NOTES = "notes.txt"
_LOCK_LOOK_S = 0.1
#: the part of an installer's output that is searched for the error
_TAIL_BYTES = 32 * 1024

Log = Callable[[str, str], None]
T = TypeVar("T")


class EnvironmentFailed(Exception):
    """The environment does not exist and could not be created."""

    def __init__(self, problem: TaskError) -> None:
        self.problem = problem
        super().__init__(problem.message)


class Record(Struct, frozen=True):
    """The record that is written when all packages are installed."""

    requirements: tuple[str, ...]
    #: seconds since 1970
    made_at: float
    installer: str


class KnownEnvironment(Struct, frozen=True):
    """An environment in the cache, as listed for cleanup."""

    digest: str
    folder: Path
    #: last use by a task, in seconds since 1970; for an incomplete one, its last change
    used_at: float
    #: None if it is being created, or if its creator was killed
    record: Record | None


class Environment:
    """A complete environment in use: it is not removed until `release`."""

    def __init__(self, folder: Path, lock: int) -> None:
        self.folder = folder
        self._lock = lock

    @property
    def digest(self) -> str:
        return self.folder.name

    def shared(self) -> Environment:
        """Return another hold on the same environment, to be released separately."""
        again = _shared_hold(self.folder)
        if again is None:
            raise FileNotFoundError(f"{self.folder} was removed while it was in use")
        return again

    def release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


class _Making:
    """An environment that is being created, with the logs of the tasks that wait for it."""

    def __init__(self, make: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
        self.logs: list[Log] = []
        self.task = asyncio.ensure_future(make(self.log))

    def log(self, stream: str, text: str) -> None:
        for log in self.logs:
            log(stream, text)


class Environments:
    """The environments below one folder."""

    def __init__(
        self, folder: Path, launcher: Launcher, source: Source, log_cap: int, program: Installer | None = None
    ) -> None:
        """`launcher` starts the installer's processes; `log_cap` limits the output that is passed on, in bytes;
        `program` is searched for on first use.
        """
        self._log_cap = log_cap
        self._folder = folder
        self._launcher = launcher
        self._source = source
        self._program = program
        self._making: dict[str, _Making] = {}

    async def get(self, requirements: Sequence[str], log: Log) -> Environment:
        """Return the environment with these packages; create it if it does not exist. Raises EnvironmentFailed."""
        try:
            need = normalize_requirements(requirements)
        except NotARequirement as problem:
            raise EnvironmentFailed(error("config", str(problem))) from None
        try:
            while True:
                taken = None if need.digest in self._making else _shared_hold(self._folder / need.digest)
                if taken is not None:
                    return taken
                await self._wait_until_made(need, log)
        except OSError as problem:
            message = f"no environment can be kept in {self._folder}: {problem}; set python.environments"
            raise EnvironmentFailed(error("config", message)) from None

    async def _wait_until_made(self, need: RequirementSet, log: Log) -> None:
        """Wait until it is created. If the last waiting task is cancelled, the creation is cancelled, too."""
        making = self._making.get(need.digest)
        if making is None:
            making = self._making[need.digest] = _Making(partial(self._make, need))
        making.logs.append(log)
        try:
            await asyncio.shield(making.task)
        except asyncio.CancelledError:
            making.logs.remove(log)
            if not making.logs and not making.task.done():
                self._forget(need, making)
                making.task.cancel()
                await _settled(asyncio.gather(making.task, return_exceptions=True))
            raise
        finally:
            if making.task.done():
                self._forget(need, making)

    def _forget(self, need: RequirementSet, making: _Making) -> None:
        if self._making.get(need.digest) is making:
            del self._making[need.digest]

    async def _make(self, need: RequirementSet, log: Log) -> None:
        folder = self._folder / need.digest
        lock = await _alone(folder, log)
        try:
            if _record(folder) is not None:
                return  # another process was faster
            program = self._program or installer()
            try:
                await self._fill(folder, need, program, log)
            except BaseException:
                await _settled(asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True))
                _lock_path(folder).unlink(missing_ok=True)
                raise
        finally:
            os.close(lock)

    async def _fill(self, folder: Path, need: RequirementSet, program: Installer, log: Log) -> None:
        began = time.monotonic()
        log("log", f"resolving {need} with {program.name} into {folder}")
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        scratch = _scratch_path(folder)
        await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            for command in program.commands(folder, need, self._source, scratch / _NOTES):
                await self._run(command, need, program, scratch, log)
        finally:
            await _settled(asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True))
        record = Record(need.requirements, time.time(), program.name)
        try:
            await _settled(asyncio.to_thread(_seal, folder, record))
        except OSError as problem:
            raise EnvironmentFailed(error("limit", f"{folder} cannot be written: {problem}")) from None
        log("log", f"the environment is ready after {time.monotonic() - began:.1f} s")

    async def _run(self, command: list[str], need: RequirementSet, program: Installer, scratch: Path, log: Log) -> None:
        output = bytearray()
        out = Lines("stdout", log, self._log_cap, "logs.max_task_bytes")
        err = Lines("stderr", log, self._log_cap, "logs.max_task_bytes")

        def listener(lines: Lines) -> Callable[[bytes], None]:
            def take(data: bytes) -> None:
                output.extend(data)
                del output[:-_TAIL_BYTES]
                lines.feed(data)

            return take

        try:
            spec: dict[str, Any] = {"argv": command, "env": installer_environment(scratch), "cwd": _FOLDER}
            null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            try:
                tree = Tree(self._launcher, spec, null)
            finally:
                os.close(null)
            tree.stdout.listener, tree.stderr.listener = listener(out), listener(err)
            try:
                report = await asyncio.shield(tree.gone)
            except asyncio.CancelledError:
                await tree.killed()
                raise
        finally:
            out.end()
            err.end()
        if report.failed:
            raise EnvironmentFailed(error("config", f"{command[0]} could not be started: {report.failed}"))
        if report.status is None or os.WIFSIGNALED(report.status):
            how, code = ended_by(report.status)
            message = f"{program.name} was ended by {how} while it made the environment for {need}"
            raise EnvironmentFailed(error("killed", message, code=code))
        if os.waitstatus_to_exitcode(report.status):
            words = output.decode("utf-8", "replace").splitlines()
            raise EnvironmentFailed(installer_failure(program, need, self._source, words, scratch / _NOTES))


def known_environments(folder: Path) -> list[KnownEnvironment]:
    """Return all environments below the folder, the longest unused first."""
    environments: list[KnownEnvironment] = []
    for lock in folder.glob("*.lock"):
        place = lock.with_suffix("")
        record = _record(place)
        with suppress(OSError):
            used_at = (place / _RECORD if record else place if place.exists() else lock).stat().st_mtime
            environments.append(KnownEnvironment(place.name, place, used_at, record))
    return sorted(environments, key=lambda environment: (environment.used_at, environment.digest))


def remove_environment(folder: Path, digest: str) -> bool:
    """Remove an environment that is neither in use nor being created. Return whether it is gone."""
    place = folder / digest
    lock = _locked(place, fcntl.LOCK_EX) if _lock_path(place).exists() else None
    if lock is None:
        return False
    try:
        (place / _RECORD).unlink(missing_ok=True)  # first, so that a partial one does not look complete
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(_scratch_path(place), ignore_errors=True)
        _lock_path(place).unlink(missing_ok=True)
        return not place.exists()
    finally:
        os.close(lock)


def _shared_hold(folder: Path) -> Environment | None:
    """Return the environment if it is complete and not being created or removed."""
    if not (folder / _RECORD).exists():
        return None
    lock = _locked(folder, fcntl.LOCK_SH)
    if lock is None:
        return None
    if _record(folder) is None:
        os.close(lock)
        return None
    with suppress(OSError):
        os.utime(folder / _RECORD)
    return Environment(folder, lock)


async def _alone(folder: Path, log: Log) -> int:
    """Take the exclusive lock, waiting for current holders."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    waiting = False
    while (lock := _locked(folder, fcntl.LOCK_EX)) is None:
        if _record(folder) is not None and (lock := _locked(folder, fcntl.LOCK_SH)) is not None:
            return lock  # another process has created it and is using it
        if not waiting:
            waiting = True
            log("log", f"another process makes the environment {folder}; waiting for it")
        await asyncio.sleep(_LOCK_LOOK_S)
    return lock


def _locked(folder: Path, mode: int) -> int | None:
    """Return a descriptor that holds the environment's lock, or None if another holder prevents it."""
    path = _lock_path(folder)
    while True:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, mode | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except BlockingIOError:
            os.close(lock)
            return None
        except FileNotFoundError:  # removed with its environment in the meantime
            pass
        os.close(lock)


def _lock_path(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.lock"


def _scratch_path(folder: Path) -> Path:
    """Return the installer's temporary folder. If the installer was killed, a later creation or removal removes it."""
    return folder.parent / f"{folder.name}.installing"


def _record(folder: Path) -> Record | None:
    """Return the record of a complete environment; None if it is incomplete or its Python no longer exists."""
    try:
        record = msgspec.json.decode((folder / _RECORD).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return record if (folder / "bin" / "python").exists() else None


def _seal(folder: Path, record: Record) -> None:
    """Make everything durable, then write the record."""
    import ctypes

    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ctypes.CDLL(None).syncfs(place)
        draft = folder / f"{_RECORD}.new"
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(folder / _RECORD)
        os.fsync(place)
    finally:
        os.close(place)


async def _settled(work: Awaitable[T]) -> T:
    """Finish the work even if this task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError
    return task.result()
