"""Rows from and to text files: CSV, and one JSON value per line (NDJSON).

A file is written under another name, synced, and then renamed, so that it is complete or absent.
"""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import os
import stat
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import msgspec

from arclog.model.refs import LIST, ResultRef
from arclog.ports.results import ResultSink
from arclog.sandbox.child.opened import is_swapped
from arclog.tools.object.folder import TEMPORARY
from arclog.tools.sql.failures import SqlFailure
from arclog.tools.sql.values import to_json
from arclog.tools.transfer.rows import JSON, TEXT, Column, Row, bad_cell, json_cell, misfit

# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_BAD_ROW = "BadRow"
#: Maximum length of a line of an NDJSON or CSV file, and of a cell of a CSV file.
_LINE_BYTES = 64 * 1024 * 1024


def _failure(shown: str, problem: OSError) -> SqlFailure:
    code = errno.errorcode.get(problem.errno or 0)
    reason = problem.strerror or type(problem).__name__
    if isinstance(problem, FileNotFoundError):
        return SqlFailure("not_found", f"{shown}: there is no such file", code)
    if isinstance(problem, PermissionError):
        return SqlFailure("auth", f"{shown}: {reason}; the worker's user is not allowed to do this", code)
    if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return SqlFailure("limit", f"{shown}: {reason}; nothing was kept. Make room and try again", code)
    return SqlFailure("exception", f"{shown}: {reason}", code)


def _opened(path: str, flags: int) -> int:
    """Open a file. A pipe that took its place after the check would wait for a writer forever."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "is not a file")


class CsvForm(msgspec.Struct, frozen=True):
    """The format of a CSV file."""

    delimiter: str = ","
    #: the text that represents NULL
    null: str = ""
    #: the first row names the columns
    header: bool = True


class _TextSource:
    """A file that is read line by line."""

    total: int | None = None

    def __init__(self, shown: str, path: Path) -> None:
        self._shown = shown
        self._path = path
        self._at_a_time = 1
        self._file: IO[Any] | None = None

    def _open(self, mode: str, **how: Any) -> IO[Any]:
        try:
            if self._path.exists() and not self._path.is_file():
                raise SqlFailure("config", f"{self._shown}: is not a file")
            self._file = open(self._path, mode, opener=_opened, **how)  # noqa: SIM115 - `close` closes it
            if is_swapped(self._file.fileno(), self._path):
                raise SqlFailure("config", f"{self._shown}: was replaced while it was opened")
        except OSError as problem:
            raise _failure(self._shown, problem) from None
        return self._file

    @property
    def position(self) -> tuple[int, int] | None:
        """The number of bytes read and the size. Because of buffering it is ahead of the rows."""
        if self._file is None or self._file.closed:
            return None
        file = self._file.fileno()
        return os.lseek(file, 0, os.SEEK_CUR), os.fstat(file).st_size

    def interrupt(self) -> None:
        """Nothing to do; reading a chunk is short."""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class CsvSource(_TextSource):
    """A CSV file whose first row names the columns; without a header they are c1, c2 …. All values are text, or
    NULL.
    """

    def __init__(self, shown: str, path: Path, form: CsvForm) -> None:
        super().__init__(shown, path)
        self._form = form
        self._columns: list[Column] = []
        self._first: list[list[str]] = []
        self._rows: Iterator[list[str]] = iter(())

    def open(self, at_a_time: int) -> list[Column]:
        self._at_a_time = at_a_time
        csv.field_size_limit(_LINE_BYTES)
        file = self._open("r", encoding="utf-8-sig", newline="")
        self._rows = csv.reader(self._lines(file), delimiter=self._form.delimiter, strict=True)
        first = self._read(1, 0)
        if not first:
            raise SqlFailure("exception", f"{self._shown}: is empty; the first row names the columns", _BAD_ROW)
        if self._form.header:
            names = first[0]
        else:
            names, self._first = [f"c{n}" for n in range(1, len(first[0]) + 1)], first
        self._columns = [Column(name, TEXT) for name in names]
        return self._columns

    def _lines(self, file: IO[str]) -> Iterator[str]:
        """Yield lines. One that is too long is refused before it is in memory."""
        readline = file.readline
        while line := readline(_LINE_BYTES):
            if len(line) == _LINE_BYTES:
                raise SqlFailure("limit", f"{self._shown}: has a line of more than {_LINE_BYTES} bytes")
            yield line

    def chunks(self) -> Iterator[list[Row]]:
        done, width, null = 0, len(self._columns), self._form.null
        while rows := self._first or self._read(self._at_a_time, done):
            self._first = []
            chunk = []
            for row in rows:
                done += 1
                if not row and width > 1:
                    continue  # an empty line
                if len(row) != width:
                    message = f"{self._shown}: row {done} has {len(row)} values, the columns are {width}"
                    raise SqlFailure("exception", message, _BAD_ROW)
                chunk.append(tuple([None if value == null else value for value in row]))
            yield chunk

    def _read(self, count: int, done: int) -> list[list[str]]:
        rows: list[list[str]] = []
        try:
            rows.extend(islice(self._rows, count))
        except csv.Error as problem:
            raise SqlFailure("exception", f"{self._shown}: row {done + len(rows) + 1}: {problem}", _BAD_ROW) from None
        except UnicodeDecodeError as problem:
            message = f"{self._shown}: is not UTF-8 text near row {done + len(rows) + 1}: {problem.reason}"
            raise SqlFailure("exception", message, "NotText") from None
        except OSError as problem:
            raise _failure(self._shown, problem) from None
        return rows


class NdjsonSource(_TextSource):
    """A file of JSON objects, one per line. The columns are the keys of the first chunk; a missing key is NULL."""

    def __init__(self, shown: str, path: Path) -> None:
        super().__init__(shown, path)
        self._first: list[dict[str, Any]] = []
        self._columns: list[Column] = []

    def open(self, at_a_time: int) -> list[Column]:
        self._at_a_time = at_a_time
        self._open("rb")
        self._first = self._read(0)
        self._columns = columns_of(self._first)
        return self._columns

    def chunks(self) -> Iterator[list[Row]]:
        done = 0
        while rows := self._first or self._read(done):
            self._first = []
            yield as_rows(rows, self._columns, done, self._shown)
            done += len(rows)

    def _read(self, done: int) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        file = self._file
        while file is not None and len(rows) < self._at_a_time:
            try:
                line = file.readline(_LINE_BYTES)
            except OSError as problem:
                raise _failure(self._shown, problem) from None
            if not line:
                break
            if len(line) == _LINE_BYTES:
                raise SqlFailure(
                    "limit", f"{self._shown}: row {done + len(rows) + 1} is longer than {_LINE_BYTES} bytes"
                )
            if line.isspace():
                continue
            try:
                row = msgspec.json.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
                message = f"{self._shown}: row {done + len(rows) + 1} is not JSON: {problem}"
                raise SqlFailure("exception", message, _BAD_ROW) from None
            if not isinstance(row, dict):
                message = f"{self._shown}: row {done + len(rows) + 1} is not a JSON object"
                raise SqlFailure("exception", message, _BAD_ROW)
            rows.append(row)
        return rows


def columns_of(rows: Sequence[dict[str, Any]]) -> list[Column]:
    """Return the columns of rows that are maps: their keys, in order of appearance."""
    nested: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            nested[name] = nested.get(name, False) or isinstance(value, (list, dict))
    return [Column(name, JSON if deep else "") for name, deep in nested.items()]


def as_rows(rows: Sequence[dict[str, Any]], columns: Sequence[Column], done: int, shown: str) -> list[Row]:
    """Convert maps to tuples. A key without a column is refused, since its values would be lost."""
    names = [column.name for column in columns]
    expected = set(names)
    checked = []
    for number, row in enumerate(rows, start=done + 1):
        if not row.keys() <= expected:
            lost = next(name for name in row if name not in expected)
            message = (
                f"{shown}: row {number} has the key '{lost}', which earlier rows did not have; set a larger chunk_rows"
            )
            raise SqlFailure("exception", message, _BAD_ROW)
        checked.append(tuple([json_cell(row.get(name)) for name in names]))
    return checked


class PathTarget:
    """A file that is put in place when it is complete."""

    def __init__(self, shown: str, path: Path) -> None:
        self._shown = shown
        self._path = path

    @contextmanager
    def _replacing(self) -> Iterator[Path]:
        """Yield a name for the new file, then put the file in place."""
        temporary = ""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=self._path.parent)
            os.close(descriptor)
            yield Path(temporary)
            take_place(Path(temporary), self._path)
        except OSError as problem:
            raise _failure(self._shown, problem) from None
        finally:
            if temporary:
                Path(temporary).unlink(missing_ok=True)


def take_place(temporary: Path, path: Path) -> None:
    """Sync a finished file and rename it."""
    mask = os.umask(0)
    os.umask(mask)
    file = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(file, 0o666 & ~mask)
        os.fsync(file)
    finally:
        os.close(file)
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class _TextTarget(PathTarget, ABC):
    """A file that is written chunk by chunk."""

    def __init__(self, shown: str, path: Path) -> None:
        super().__init__(shown, path)
        self._columns: Sequence[Column] = ()
        self._file: IO[bytes] | None = None
        self._temporary: Path | None = None
        self._done = 0
        self._stopped = threading.Event()

    def open(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        try:
            if self._path.is_dir():
                raise SqlFailure("config", f"{self._shown}: is a folder")
            self._path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(prefix=TEMPORARY, dir=self._path.parent)
            self._temporary = Path(temporary)
            self._file = os.fdopen(descriptor, "wb", buffering=1024 * 1024)
            self._file.write(self._heading())
        except OSError as problem:
            raise _failure(self._shown, problem) from None

    def write(self, rows: list[Row]) -> None:
        try:
            body = self._encoded(rows)
        except UnicodeEncodeError as problem:
            raise bad_cell(rows, self._columns, self._done, nul=True) or misfit(
                self._done + 1, self._columns[0].name, str(problem)
            ) from None
        try:
            if self._file is not None:
                self._file.write(body)
        except OSError as problem:
            raise _failure(self._shown, problem) from None
        self._done += len(rows)

    def commit(self) -> dict[str, Any]:
        if self._file is None or self._temporary is None:
            return {}
        try:
            self._file.close()
            size = self._temporary.stat().st_size
            take_place(self._temporary, self._path)
        except OSError as problem:
            raise _failure(self._shown, problem) from None
        return {"bytes": size}

    def interrupt(self) -> None:
        """Nothing to do; writing a chunk is short."""

    def close(self) -> None:
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                pass  # the file is removed anyway
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)

    def _heading(self) -> bytes:
        return b""

    @abstractmethod
    def _encoded(self, rows: list[Row]) -> bytes:
        """Encode rows for the file."""


class NdjsonTarget(_TextTarget):
    """JSON objects, one per line."""

    def _encoded(self, rows: list[Row]) -> bytes:
        names = [column.name for column in self._columns]
        nested = [column.type == JSON for column in self._columns]
        parts = []
        for row in rows:
            cells = [_native(value) if deep else to_json(value) for value, deep in zip(row, nested, strict=True)]
            parts.append(msgspec.json.encode(dict(zip(names, cells, strict=True))))
        return b"\n".join(parts) + b"\n" if parts else b""


class CsvTarget(_TextTarget):
    """Comma-separated text with a header."""

    def __init__(self, shown: str, path: Path, form: CsvForm) -> None:
        super().__init__(shown, path)
        self._form = form

    def _heading(self) -> bytes:
        return self._lines([tuple(column.name for column in self._columns)]) if self._form.header else b""

    def _encoded(self, rows: list[Row]) -> bytes:
        return self._lines(rows)

    def _lines(self, rows: list[Row]) -> bytes:
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self._form.delimiter, lineterminator="\n").writerows(map(self._cells, rows))
        return text.getvalue().encode()

    def _cells(self, row: Row) -> list[Any]:
        return [self._cell(value) for value in row]

    def _cell(self, value: Any) -> Any:
        if value is None:
            return self._form.null
        if value is True or value is False:
            return "true" if value else "false"
        return value if isinstance(value, (str, int)) else json_cell(to_json(value))


def _native(value: Any) -> Any:
    """Return a cell of a JSON column: the parsed value, or the text if it is not JSON."""
    if not isinstance(value, str):
        return to_json(value)
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return value


# ── stored ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Rows of an earlier task: an inline list, or a stored result, which is read as needed.

_SHOWN = "rows"


class ResultSource:
    """Rows that are maps with the same keys. The source is read in a thread, the result store on the event loop."""

    def __init__(self, rows: Any, results: ResultSink, loop: asyncio.AbstractEventLoop) -> None:
        if isinstance(rows, ResultRef):
            if rows.kind != LIST:
                raise SqlFailure("config", "rows: the stored result is not a list of rows")
            self.total = rows.meta.rows
        elif isinstance(rows, list):
            self.total = len(rows)
        else:
            raise SqlFailure("config", f"rows: a list of maps is needed, this is {type(rows).__name__}")
        self._rows = rows
        self._results = results
        self._loop = loop
        self._columns: list[Column] = []
        self._items: Iterator[Any] = iter(())
        self._reading: AsyncIterator[list[Any]] | None = None
        self._at_a_time = 1
        self._first: list[dict[str, Any]] = []

    def open(self, at_a_time: int) -> list[Column]:
        self._at_a_time = at_a_time
        if isinstance(self._rows, ResultRef):
            self._reading = self._results.read_items(self._rows)
            self._items = chain.from_iterable(self._batches(self._reading))
        else:
            self._items = iter(self._rows)
        self._first = self._next_rows(0)
        self._columns = columns_of(self._first)
        return self._columns

    def chunks(self) -> Iterator[list[Row]]:
        done = 0
        while rows := self._first or self._next_rows(done):
            self._first = []
            yield as_rows(rows, self._columns, done, _SHOWN)
            done += len(rows)

    def interrupt(self) -> None:
        """Nothing to do; reading some items is short."""

    def close(self) -> None:
        """Nothing to close; the event loop owns the reader."""

    def _next_rows(self, done: int) -> list[dict[str, Any]]:
        items = list(islice(self._items, self._at_a_time))
        for number, row in enumerate(items, start=done + 1):
            if not isinstance(row, dict):
                raise SqlFailure("config", f"rows: row {number} is {type(row).__name__}; a map of columns is needed")
        return items

    def _batches(self, reading: AsyncIterator[list[Any]]) -> Iterator[list[Any]]:
        while (batch := self._wait(_next(reading))) is not None:
            yield batch

    def _wait(self, coming: Coroutine[Any, Any, list[Any] | None]) -> list[Any] | None:
        return asyncio.run_coroutine_threadsafe(coming, self._loop).result()


async def _next(reading: AsyncIterator[list[Any]]) -> list[Any] | None:
    async for batch in reading:
        return batch
    return None
