"""Files in the folders of playbooks, read when a task names them. Symbolic links that leave the folder are refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping

from arclog.model.config.kinds import KindSpec
from arclog.model.config.settings import Settings
from arclog.playbook.files import FileRefused
from arclog.sandbox.child.opened import is_swapped


class FilesBeside(Mapping[str, str]):
    """The texts of the files next to playbooks, by path."""

    def __init__(self, settings: Settings) -> None:
        self._most = settings.integer("playbook.max_file_bytes")
        self._folders: list[str] = []
        #: files read so far: path → text
        self.taken: dict[str, str] = {}

    def of(self, playbook: str) -> FilesBeside:
        """Return a copy that includes the folder of one more playbook; unchanged for one from standard input."""
        if playbook not in ("", "-", "<stdin>"):
            self._folders.append(os.path.realpath(os.path.dirname(playbook) or "."))  # noqa: PTH120 - pathlib costs a start 2 ms
        return self

    def __getitem__(self, path: str) -> str:
        if path in self.taken:
            return self.taken[path]
        try:
            if not self._is_inside(path):
                raise KeyError(path)
            body = self._read(path)
        except OSError as error:
            raise FileRefused(f"file {path!r} cannot be read: {error.strerror}") from None
        if len(body) > self._most:
            raise FileRefused(f"file {path!r} has more than {self._most:,} bytes (setting playbook.max_file_bytes)")
        try:
            self.taken[path] = body.decode()
        except UnicodeDecodeError as error:
            raise FileRefused(f"file {path!r} is not UTF-8: byte {error.start}") from None
        return self.taken[path]

    def _read(self, path: str) -> bytes:
        """Return the first bytes of a file. A link or pipe that replaced it since the check is not followed."""
        real = os.path.realpath(path)
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as source:  # noqa: PTH123 - pathlib costs a start 2 ms
            if is_swapped(descriptor, real) or not self._is_inside(real):
                raise FileRefused(f"file {path!r} was replaced while it was read")
            return source.read(self._most + 1)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and (path in self.taken or self._is_inside(path))

    def __iter__(self) -> Iterator[str]:
        return iter(self.taken)

    def __len__(self) -> int:
        return len(self.taken)

    def _is_inside(self, path: str) -> bool:
        """Return whether a path is a regular file, and no link leads out of the folder of a playbook."""
        real = os.path.realpath(path)
        inside = any(real.startswith(folder.rstrip("/") + "/") for folder in self._folders)
        if not inside and os.path.isfile(real):  # noqa: PTH113
            raise FileRefused(f"file {path!r} leads out of the playbook's folder, to {real}")
        return inside and os.path.isfile(real)  # noqa: PTH113


#: The most playbooks that one playbook may include.
_MOST_CALLED = 1000


def called_playbooks(
    text: str,
    file: str,
    settings: Settings,
    files: FilesBeside,
    kinds: Mapping[str, KindSpec],
    read: Callable[[str], str],
) -> dict[str, str]:
    """Return the texts, by path, of the playbooks that this one and its callees call by file; `read` reads one. The
    files that their tasks use are read from `files`.
    """
    from arclog.engine.runs.catalog import called_files
    from arclog.plan.build import build
    from arclog.playbook.files import beside

    texts: dict[str, str] = {}
    pending = [(file, text)]
    while pending:
        name, source = pending.pop()
        plan = build(source, name, kinds, settings, files.of(name)).plan
        for called in () if plan is None else called_files(plan):
            where = beside(name, called)
            if where not in texts and len(texts) < _MOST_CALLED:
                texts[where] = read(where)
                pending.append((where, texts[where]))
    return texts
