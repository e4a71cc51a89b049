"""Stored data as templates see it: read when it is used, and only as much of it as is used.

Law: the server has no reader. There only what was extracted into the log is a value; anything else is an error that
says so (its cause is `Unread`), never a silent read.
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


#: Bytes of `false`, and more than `null`, `-0.0`, `""`, `[]` and `{}` have.
_LONGEST_FALSY = 5


class Reader(Protocol):
    """Reads stored data. May block; raises ResultUnavailable."""

    #: `whole` of {kind: file, of: ref} is the path of a local copy
    opens_files: bool

    def whole(self, ref: Mapping[str, Any]) -> Any:
        """The data as JSON values; items of a list may be `Stored` themselves."""

    def item(self, ref: Mapping[str, Any], index: int) -> Any:
        """One item of a list, MISSING when there are fewer."""


class Stored:
    """Stored data, or what stands under some keys of it."""

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
        #: what the log has of it, by path
        self._extracted = extracted or {}
        #: what routing reads and the log does not have, by path: {bytes, items?}, or None when there is no such thing
        self._left_out = left_out or {}

    @property
    def is_whole(self) -> bool:
        return not self.path

    @property
    def is_list(self) -> bool:
        return not self.path and self.ref.get("kind") == "list"

    def length(self) -> int | None:
        """How many items it has, as far as that is known without reading it."""
        if self.is_whole and self.ref.get("kind") == "loop":
            return None if self.ref.get("nested") else int(self.ref["total"])
        if self.is_list:
            rows = self.ref["meta"].get("rows")
            return None if rows is None else int(rows)
        left_out = self._left_out.get(path_text(self.path))
        items = None if left_out is None else left_out.get("items")
        return None if items is None else int(items)

    def lookup(self, key: Any) -> Any:
        """Give what stands under `key`: from the log, else as something that is read later."""
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
            # The whole list may be huge; one item of it is not.
            return self._checked(lambda read: read.item(self.ref, key)) if type(key) is int else MISSING
        item = reach(self.plain(), key, "")
        return MISSING if type(item) is Undefined else item

    def plain(self) -> Any:
        """Read it."""
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
            known = self.length() if self.is_whole else None
            return bool(self.plain() if known is None else known)
        meta = self.ref["meta"]
        if self.is_list or not is_json(meta.get("content_type", "")):
            return bool(meta["rows"] if self.is_list else meta["bytes"])
        # `store: always` and a limit of 0 store what is small, too.
        return meta["bytes"] > _LONGEST_FALSY or bool(self.plain())

    def __eq__(self, other: object) -> bool:
        return bool(self.plain() == (other.plain() if isinstance(other, Stored) else other))

    __hash__ = None  # type: ignore[assignment]  # equal by content, like the data it stands for

    def __repr__(self) -> str:
        return f"Stored({self.ref.get('ref')!r}{path_text(self.path)})"


def counted(value: Expression, count: Expression) -> Expression:
    """The `length` of a value: that of stored data is known where it cannot be read, too."""

    def length(frame: Frame) -> Any:
        result = value(frame)
        known = result.length() if type(result) is Stored else None
        return count(frame) if known is None else known

    return length


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip()
    return kind in ("", "application/json") or kind.endswith("+json")


def path_text(path: tuple[Any, ...]) -> str:
    """A path as events write it: rows[0].id"""
    return "".join(map(step_text, path)).removeprefix(".")


def path_of_text(text: str) -> tuple[str | int, ...]:
    """The inverse of `path_text` for plain keys and indexes, as authors write them in `select`."""
    path: list[str | int] = []
    for part in text.replace("[", ".[").split("."):
        if part.startswith("[") and part.endswith("]") and part[1:-1].removeprefix("-").isdecimal():
            path.append(int(part[1:-1]))
        elif part:
            path.append(part)
    return tuple(path)
