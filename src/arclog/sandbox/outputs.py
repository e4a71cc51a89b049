"""Stores the files that a task names in `outputs`, after it has succeeded.

Invariant: a file is read only from the task's own folders, whatever links the task created. Its path is resolved, must
lie in the working directory or the scratch folder, and is then opened part by part without following links. Arclog's
home, its keys and the folders of other tasks stay closed even inside a working directory. All files are opened before
the first is stored, and the outcome has all of them or none.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from arclog.model.config.kinds import OUTPUT_NAME
from arclog.model.config.settings import Settings
from arclog.model.data.lazy import pattern
from arclog.model.errors import ResultUnavailable
from arclog.model.outcome import TaskError, error, result_error
from arclog.ports.results import Content, ResultSink, StoredFile
from arclog.sandbox.confinement_settings import closed_to_outputs
from arclog.sandbox.folders import TaskFolders

if TYPE_CHECKING:
    from mimetypes import MimeTypes

_CHUNK = 1024 * 1024
_SCRATCH = pattern(r"\$(?:ARCLOG_SCRATCH|\{ARCLOG_SCRATCH\})(?=/|$)")
_ANY_TYPE = "application/octet-stream"
_ALLOWED = "write it to the working directory or to $ARCLOG_SCRATCH"
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Non-blocking: opening a pipe would wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OutputsFailed(Exception):
    """The files of a task cannot be stored."""

    def __init__(self, problem: TaskError) -> None:
        self.problem = problem
        super().__init__(problem.message)


class OutputRules(Struct, frozen=True):
    """The rules for the output files of a worker's tasks."""

    #: real paths inside a working directory that tasks cannot see
    closed: tuple[str, ...] = ()
    max_files: int = 1_000
    #: for all files of one task together
    max_bytes: int = 1 << 40


def output_rules(settings: Settings, scratch: Path) -> OutputRules:
    return OutputRules(
        closed_to_outputs(settings, scratch),
        settings.integer("outputs.max_files"),
        settings.integer("outputs.max_bytes"),
    )


class OutputFolders(Struct, frozen=True):
    """The folders in which the files of one task may be."""

    folders: TaskFolders
    #: the base of relative paths
    base: Path
    rules: OutputRules = OutputRules()


async def stored_outputs(
    outputs: Mapping[str, Any], places: OutputFolders, results: ResultSink
) -> dict[str, StoredFile]:
    """Store the files, by name. Raises OutputsFailed."""
    if len(outputs) > places.rules.max_files:
        message = f"outputs names {len(outputs):,} files, and a task may have {places.rules.max_files:,} (outputs.max_files); pack them into one"
        raise OutputsFailed(error("limit", message, code="OUTPUTS"))
    with ExitStack() as stack:
        files: dict[str, tuple[str, BinaryIO]] = {}
        for name, path in outputs.items():
            files[name] = path, stack.enter_context(_opened(name, path, places))
        total = sum(os.fstat(file.fileno()).st_size for _, file in files.values())
        if total > places.rules.max_bytes:
            message = f"the files of outputs have {total:,} bytes together, and a task may have {places.rules.max_bytes:,} (outputs.max_bytes)"
            raise OutputsFailed(error("limit", message, code="OUTPUTS"))
        stored: dict[str, StoredFile] = {}
        for name, (path, file) in files.items():
            try:
                content = await _written(file, content_type(path), results)
            except ResultUnavailable as problem:
                refused = result_error(problem)
                raise OutputsFailed(replace(refused, message=f"{_where(name, path)}: {refused.message}")) from problem
            except OSError as problem:
                raise _failed(name, path, f"cannot be read: {problem.strerror}") from problem
            stored[name] = StoredFile(content, Path(path).name)
        return stored


async def _written(file: BinaryIO, content_type: str, results: ResultSink) -> Content:
    writer = results.writer(content_type=content_type)
    try:
        while chunk := await asyncio.to_thread(file.read, _CHUNK):
            await writer.write(chunk)
        return await writer.commit()
    except BaseException:
        await writer.abandon()
        raise


def _opened(name: str, path: Any, places: OutputFolders) -> BinaryIO:
    """Open an output file for reading. Raises OutputsFailed."""
    if not OUTPUT_NAME.fullmatch(name):
        message = f"outputs: {name[:80]!r} is not a valid name: use up to 64 letters, digits and _, and do not start with a digit"
        raise OutputsFailed(error("config", message, code="OUTPUTS"))
    if not isinstance(path, str) or not path or "\0" in path:
        message = f"outputs.{name} must be the path of a file, not {path!r}"
        raise OutputsFailed(error("config", message, code="OUTPUTS"))
    folders = places.folders
    # An absolute path replaces the base.
    expanded = Path(_SCRATCH.sub(lambda _: str(folders.scratch), path, count=1))
    real = Path(os.path.realpath(places.base / expanded))
    scratch, workdir = (Path(os.path.realpath(folder)) for folder in (folders.scratch, folders.workdir))
    own = folders.fresh or real.is_relative_to(scratch)
    root = next((folder for folder in (scratch, workdir) if real.is_relative_to(folder)), None)
    if root is None:
        raise _failed(name, path, f"leads out of the task's folders; {_ALLOWED}")
    if not own and any(real.is_relative_to(closed) for closed in places.rules.closed):
        raise _failed(name, path, f"lies in a folder that tasks cannot read; {_ALLOWED}")
    try:
        return _walked(root, real.relative_to(root).parts)
    except FileNotFoundError:
        raise _failed(name, path, "the task wrote no such file; write it there, or correct the path") from None
    except IsADirectoryError:
        raise _failed(name, path, "is a folder; name a file, or pack the folder into one") from None
    except OSError as problem:
        raise _failed(name, path, f"cannot be read: {problem.strerror}") from None


def _walked(root: Path, parts: tuple[str, ...]) -> BinaryIO:
    """Open a file below a folder, following no link. Raises OSError."""
    if not parts:
        raise IsADirectoryError
    at = os.open(root, _STEP)
    try:
        for part in parts[:-1]:
            below = os.open(part, _STEP, dir_fd=at)
            os.close(at)
            at = below
        file = os.open(parts[-1], _FILE, dir_fd=at)
    finally:
        with suppress(OSError):
            os.close(at)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(file, "rb", buffering=0)
    os.close(file)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError
    raise OSError(0, "it is not a plain file")


def content_type(path: str) -> str:
    """Return the content type of a file, by its name."""
    kind, encoding = _known_types().guess_type(Path(path).name)
    return kind if kind and not encoding else _ANY_TYPE


@cache
def _known_types() -> MimeTypes:
    """Return the types that Python itself knows; those of the machine are ignored."""
    from mimetypes import MimeTypes  # few tasks have outputs

    return MimeTypes()


def _where(name: str, path: str) -> str:
    return f"outputs.{name}: {path[:300]}"


def _failed(name: str, path: str, why: str) -> OutputsFailed:
    return OutputsFailed(error("config", f"{_where(name, path)} {why}", code="OUTPUTS"))
