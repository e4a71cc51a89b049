"""Stored data in templates: read when it is used, and only the parts that are used.

Invariant: the server has no reader. There, only parts that were extracted into the log have a value; using any other
part is an error (with the cause `Unread`), never a silent read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from arclog.expr.budget import Failure
from arclog.expr.compiler.access import reach
from arclog.expr.frame import Expression, Frame
from arclog.expr.values import MISSING, Undefined, step_text
from arclog.model.errors import ResultUnavailable


class Unread(Exception):
    """A template needs stored data where none can be read."""


#: Bytes of `false`, the longest falsy value in JSON.
_LONGEST_FALSY = 5


class Reader(Protocol):
    """Reads stored data. May block; raises ResultUnavailable."""

    #: whether `whole` of {kind: file, of: ref} returns the path of a local copy
    opens_files: bool

    def whole(self, ref: Mapping[str, Any]) -> Any:
        """Return the data as JSON values; items of a list may be `Stored` themselves."""

    def item(self, ref: Mapping[str, Any], index: int) -> Any:
        """Return one item of a list; MISSING if there are fewer."""


class Stored:
    """Stored data, or a part of it under some keys."""

    __slots__ = ("_extracted", "_left_out", "_read", "path", "ref")

    def __init__(
        self,
        ref: Mapping[str, Any],
        read: Reader | None = None,
        extracted: Mapping[str, Any] | None = None,
        left_out: Mapping[str, Any] | None = None,
        path: tuple[Any, ...] = (),
    ) -> None:
        self.ref = ref
        self.path = path
        self._read = read
        #: the extracted parts in the log, by path
        self._extracted = extracted or {}
        #: parts that routing reads and the log does not have, by path: {bytes, items?}, or None if there is no such
        #: part
        self._left_out = left_out or {}

    @property
    def is_whole(self) -> bool:
        return not self.path

    @property
    def is_list(self) -> bool:
        return not self.path and self.ref.get("kind") == "list"

    def length(self) -> int | None:
        """Return the number of items, if it is known without reading the data."""
        if self.is_whole and self.ref.get("kind") == "loop":
            return None if self.ref.get("nested") else int(self.ref["total"])
        if self.is_list:
            rows = self.ref["meta"].get("rows")
            return None if rows is None else int(rows)
        left_out = self._left_out.get(path_text(self.path))
        items = None if left_out is None else left_out.get("items")
        return None if items is None else int(items)

    def lookup(self, key: Any) -> Any:
        """Return the value under `key`: from the log, else as a part that is read later."""
        own = path_text(self.path)
        if own in self._extracted:
            item = reach(self._extracted[own], key, "")
            return MISSING if type(item) is Undefined else item
        path = (*self.path, key)
        name = path_text(path)
        if name in self._extracted:
            return self._extracted[name]
        if name in self._left_out and self._left_out[name] is None:
            return MISSING
        if self._read is None:
            return Stored(self.ref, None, self._extracted, self._left_out, path)
        if self.is_list:
            # The whole list may be huge; one item is not.
            return self._checked(lambda read: read.item(self.ref, key)) if type(key) is int else MISSING
        item = reach(self.plain(), key, "")
        return MISSING if type(item) is Undefined else item

    def plain(self) -> Any:
        """Read the data."""
        name = path_text(self.path)
        if name in self._extracted:
            return self._extracted[name]
        if self._read is None:
            raise Failure(self._why_not(name)) from Unread(name)
        value = self._checked(lambda read: read.whole(self.ref))
        for key in self.path:
            value = reach(value, key, "")
        return value

    def _checked(self, read: Any) -> Any:
        try:
            return read(self._read)
        except ResultUnavailable as problem:
            raise Failure(str(problem)) from problem

    def _why_not(self, name: str) -> str:
        left_out = self._left_out.get(name)
        subject = f"its part {name}" if name else "the data"
        how_large = "" if left_out is None else f", {left_out['bytes']} bytes,"
        return (
            f"{subject}{how_large} is stored outside the log ({self.ref.get('ref')}), and is too large for the server "
            "to read; read it in a task, or name a smaller part of it"
        )

    def __bool__(self) -> bool:
        if not self.is_whole or "meta" not in self.ref:
            length = self.length() if self.is_whole else None
            return bool(self.plain() if length is None else length)
        meta = self.ref["meta"]
        if self.is_list or not is_json(meta.get("content_type", "")):
            return bool(meta["rows"] if self.is_list else meta["bytes"])
        # `store: always` and a limit of 0 store small values, too.
        return meta["bytes"] > _LONGEST_FALSY or bool(self.plain())

    def __eq__(self, other: object) -> bool:
        return bool(self.plain() == (other.plain() if isinstance(other, Stored) else other))

    __hash__ = None  # type: ignore[assignment]  # equal by content, like the data it stands for

    def __repr__(self) -> str:
        return f"Stored({self.ref.get('ref')!r}{path_text(self.path)})"


def counted(value: Expression, count: Expression) -> Expression:
    """Return the `length` of a value. That of stored data is known even where the data cannot be read."""

    def length(frame: Frame) -> Any:
        result = value(frame)
        size = result.length() if type(result) is Stored else None
        return count(frame) if size is None else size

    return length


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip()
    return kind in ("", "application/json") or kind.endswith("+json")


def path_text(path: tuple[Any, ...]) -> str:
    """Format a path as in events: rows[0].id"""
    return "".join(map(step_text, path)).removeprefix(".")


def path_of_text(text: str) -> tuple[str | int, ...]:
    """Parse a path with plain keys and indexes, as authors write it in `select`; the inverse of `path_text`."""
    path: list[str | int] = []
    for part in text.replace("[", ".[").split("."):
        if part.startswith("[") and part.endswith("]") and part[1:-1].removeprefix("-").isdecimal():
            path.append(int(part[1:-1]))
        elif part:
            path.append(part)
    return tuple(path)
