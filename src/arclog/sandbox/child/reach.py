"""The files that the kinds which open files by themselves (sqlite, transfer, object) may open for a playbook.

Both the worker and its sandboxes use it.
"""

# Stand-alone and light: no pathlib, and the package has another name where it runs.
# ruff: noqa: PTH118, TID252

from __future__ import annotations

import os

from msgspec import Struct
from msgspec.structs import replace

from .sql_errors import Refused

MEMORY = ":memory:"
#: The error for a local file on a worker without a folder for them.
NO_FILES = (
    "tasks of this worker have no local files; to allow them, its operator sets object.file_root to a folder for "
    "files that tasks share"
)


class Reach(Struct, frozen=True):
    """The files of one worker's playbooks. Paths are real and absolute."""

    home: str
    #: includes the home
    hidden: tuple[str, ...]
    #: None means any
    read: tuple[str, ...] | None
    write: tuple[str, ...] | None
    #: the folder that relative paths are relative to; '' is the current one
    base: str = ""
    #: the folder with copies of files for one task, which may use them freely; '' if there is none
    files: str = ""

    def including(self, files: os.PathLike[str] | None) -> Reach:
        """Return a copy that includes the folder of one task's files."""
        return self if files is None else replace(self, files=os.path.realpath(files))

    def has_none(self) -> bool:
        """Return whether tasks may open no file at all."""
        return self.read == ()

    def real(self, path: str) -> str:
        """Return the real path of a file that a task names."""
        return os.path.realpath(os.path.join(self.base, path))

    def refusal(self, path: str, *, write: bool = True) -> str:
        """Return why a file must not be opened, also through a symbolic link; '' if it may be."""
        real = self.real(path)
        if self.files and is_below(real, self.files):
            return ""
        if is_below(real, self.home):
            return f"{path}: lies in arclog's own folder (setting home), which playbooks cannot use"
        if any(is_below(real, own) for own in self.hidden):
            return f"{path}: holds a key, settings or files of other tasks, which playbooks cannot use"
        roots = self.write if write else self.read
        if roots is None or any(is_below(real, root) for root in roots):
            return ""
        if self.has_none():
            return f"{path}: {NO_FILES}"
        allowed = "tasks.allow_write" if write else "tasks.allow_read or tasks.allow_write"
        return (
            f"{path}: is outside the folders that tasks of this worker may use (settings object.file_root, {allowed})"
        )


def is_below(path: str, root: str) -> bool:
    """Return whether a real path is this folder or lies inside of it."""
    return path == root or path.startswith(os.path.join(root, ""))


def not_ours(database: str, reach: Reach, *, write: bool = True) -> str:
    """Return the path of a database file unchanged. Raises Refused if tasks may not open it."""
    if "\0" in database:
        raise Refused("config", "database: a path cannot contain NUL")
    refusal = "" if database in ("", MEMORY) else reach.refusal(database, write=write)
    if refusal:
        raise Refused("config", refusal)
    return database


def located(database: str, reach: Reach, *, write: bool = True) -> str:
    """Return the real path of a database file. Raises Refused if tasks may not open it. This path is checked and then
    opened without following links, so that replacing the file by a link in the meantime has no effect.
    """
    if database in ("", MEMORY) or "\0" in database:
        return not_ours(database, reach)
    real = reach.real(database)
    if refusal := reach.refusal(real, write=write):
        raise Refused("config", refusal.replace(real, database, 1))
    return real
