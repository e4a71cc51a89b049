"""Local copies of files that other tasks stored, for one attempt of a task whose config names them.

A copy is made when a template reads `{{ task.files.name }}`, in a folder that the task may read. The folder is removed
when the attempt ends.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import ValidationError

from arclog.model.data.lazy import pattern
from arclog.model.errors import RequestRejected, ResultUnavailable
from arclog.model.refs import FILE, ResultRef, as_ref, parse_ref
from arclog.worker.reading import StoredReader, SyncReader
from arclog.worker.storing import TaskResults

_LONGEST_NAME = 200
_NOT_IN_NAMES = pattern(r"[/\x00-\x1f\x7f]")


class LocalFiles:
    """The `expr.Reader` of one attempt's config."""

    opens_files = True

    def __init__(
        self, reader: StoredReader, results: TaskResults, sync_reader: SyncReader, scratch: Path, no_path: str = ""
    ) -> None:
        """`no_path` is the reason why the task cannot use a path; '' if it can."""
        self._reader = reader
        self._results = results
        self._sync_reader = sync_reader
        self._scratch = scratch
        self._no_path = no_path
        self._copies: dict[tuple[str, str], str] = {}
        #: the folder of the copies; None until the first copy
        self.folder: Path | None = None

    def whole(self, ref: Mapping[str, Any]) -> Any:
        if ref["kind"] != FILE:
            return self._reader.whole(ref)
        if self._no_path:
            raise ResultUnavailable(self._no_path)
        known = file_ref(ref)
        key = known.ref, known.meta.file
        if key not in self._copies:
            self._copies[key] = self._sync_reader.wait(self._copied(known))
        return self._copies[key]

    def item(self, ref: Mapping[str, Any], index: int) -> Any:
        return self._reader.item(ref, index)

    def remove(self) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    async def _copied(self, ref: ResultRef) -> str:
        if self.folder is None:
            self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder = Path(tempfile.mkdtemp(prefix="files-", dir=self._scratch))
        place = self.folder / str(len(self._copies) + 1)
        place.mkdir(mode=0o700)
        path = place / _plain(ref.meta.file)
        try:
            with path.open("xb") as file:
                async for chunk in self._results.read(ref):
                    file.write(chunk)
        except OSError as problem:
            raise ResultUnavailable(f"{ref.ref} cannot be copied to {path}: {problem.strerror}") from problem
        return str(path)


def file_ref(ref: Mapping[str, Any]) -> ResultRef:
    """Return the reference of a file's content. Raises ResultUnavailable."""
    try:
        known = as_ref(ref["of"])
        parse_ref(known.ref)
    except (ValidationError, RequestRejected) as problem:
        raise ResultUnavailable(f"the log has no reference of a stored file there: {problem}") from None
    return known


def _plain(name: str) -> str:
    """Return a file name that cannot leave its folder, whatever the log contains."""
    plain = _NOT_IN_NAMES.sub("_", name)[-_LONGEST_NAME:]
    return "file" if plain in ("", ".", "..") else plain
