"""Cached environments of packages: one folder for each set of requirements, shared by all processes with the same home.

Invariant: an environment is complete when its record exists, and the record is written last. Creating or removing one
takes an exclusive lock, using it a shared one. (It is created in place, not renamed: programs in an environment contain
its path.) The kernel releases the locks of a process that dies, so a dead process blocks no other.

Invariant: record and lock lie beside the folder of the environment, where no code of a package can write. Whatever is
in the folder is untrusted: this process opens nothing in it, and removes it without following links.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import re
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
from arclog.model.errors import SettingsError
from arclog.model.outcome import error
from arclog.sandbox.confinement_settings import Confinement, while_building
from arclog.sandbox.installation import EnvironmentFailed, Installation, Log, removed
from arclog.sandbox.installers import Installer, InstallFolders, installer, source_of
from arclog.sandbox.launcher import Launcher

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
#: Changes when environments of earlier releases must not be used: those before 2 were built unconfined, and their
#: record lies where packages could write it.
_LAYOUT = 2


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
    facts = (_LAYOUT, lines, sys.version, sys.implementation.cache_tag, sysconfig.get_platform())
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


# ── environments ──────────────────────────────────────────────────────────────────────────────────────────────────────

_LOCK_LOOK_S = 0.1

T = TypeVar("T")


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
        self,
        settings: Settings,
        folder: Path,
        launcher: Launcher,
        confinement: Confinement | None,
        program: Installer | None = None,
    ) -> None:
        """`launcher` starts the installer's processes; `confinement` is that of tasks; `program` is searched for on
        first use.
        """
        self._settings = settings
        self._folder = folder
        self._launcher = launcher
        self._confinement = confinement
        self._source = source_of(settings)
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
                await _settled(asyncio.to_thread(_remove, folder))
                _lock_path(folder).unlink(missing_ok=True)
                raise
        finally:
            os.close(lock)

    async def _fill(self, folder: Path, need: RequirementSet, program: Installer, log: Log) -> None:
        began = time.monotonic()
        log("log", f"resolving {need} with {program.name} into {folder}")
        try:
            confinement = None if self._confinement is None else while_building(self._confinement, self._settings)
        except SettingsError as problem:
            raise EnvironmentFailed(error("config", str(problem))) from None
        installation = Installation(
            self._settings, self._launcher, program, self._source, need.requirements, str(need), confinement
        )
        await _settled(asyncio.to_thread(_remove, folder))
        folders = InstallFolders(folder, _scratch_path(folder))
        try:
            await installation.run(folders, log)
        finally:
            await _settled(asyncio.to_thread(removed, folders.scratch))
        if not _has_python(folder):
            message = f"the packages of {need} leave no Python in their environment"
            raise EnvironmentFailed(error("config", message, code="REQUIREMENTS"))
        record = Record(need.requirements, time.time(), program.name)
        try:
            await _settled(asyncio.to_thread(_seal, folder, record))
        except OSError as problem:
            raise EnvironmentFailed(error("limit", f"{folder} cannot be written: {problem}")) from None
        log("log", f"the environment is ready after {time.monotonic() - began:.1f} s")


def known_environments(folder: Path) -> list[KnownEnvironment]:
    """Return all environments below the folder, the longest unused first."""
    environments: list[KnownEnvironment] = []
    for lock in folder.glob("*.lock"):
        place = lock.with_suffix("")
        record = _record(place)
        with suppress(OSError):
            used_at = (_record_path(place) if record else place if place.exists() else lock).stat().st_mtime
            environments.append(KnownEnvironment(place.name, place, used_at, record))
    return sorted(environments, key=lambda environment: (environment.used_at, environment.digest))


def remove_environment(folder: Path, digest: str) -> bool:
    """Remove an environment that is neither in use nor being created. Return whether it is gone."""
    place = folder / digest
    lock = _locked(place, fcntl.LOCK_EX) if _lock_path(place).exists() else None
    if lock is None:
        return False
    try:
        is_gone = _remove(place)
        removed(_scratch_path(place))
        _lock_path(place).unlink(missing_ok=True)
    finally:
        os.close(lock)
    return is_gone


def _shared_hold(folder: Path) -> Environment | None:
    """Return the environment if it is complete and not being created or removed."""
    if not _record_path(folder).exists():
        return None
    lock = _locked(folder, fcntl.LOCK_SH)
    if lock is None:
        return None
    if _record(folder) is None:
        os.close(lock)
        return None
    with suppress(OSError):
        os.utime(_record_path(folder))
    return Environment(folder, lock)


async def _alone(folder: Path, log: Log) -> int:
    """Take the exclusive lock, waiting for current holders."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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


def _record_path(folder: Path) -> Path:
    return folder.parent / f"{folder.name}.json"


def _record(folder: Path) -> Record | None:
    """Return the record of a complete environment; None if it is incomplete or its Python no longer exists."""
    try:
        record = msgspec.json.decode(_record_path(folder).read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return record if _has_python(folder) else None


def _has_python(folder: Path) -> bool:
    return os.path.exists(folder / "bin" / "python")  # noqa: PTH110 - never raises, whatever packages put there


def _seal(folder: Path, record: Record) -> None:
    """Make everything durable, then write the record."""
    import ctypes

    # No other user of the machine starts what a package left here, such as a program with the setuid bit.
    folder.chmod(0o700)
    place = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        ctypes.CDLL(None).syncfs(place)
        path = _record_path(folder)
        draft = path.with_suffix(".new")
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(record))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(path)
        os.fsync(place)
    finally:
        os.close(place)


def _remove(folder: Path) -> bool:
    """Remove an environment and its record. Return whether it is gone."""
    _record_path(folder).unlink(missing_ok=True)  # first, so that a partial one does not look complete
    return removed(folder)


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
