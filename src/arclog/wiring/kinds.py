"""Finds tool kinds by entry point. Only those that are looked up are imported.

The entry points are read from the files that installers write, since `importlib.metadata` costs 20 ms of imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from arclog.model.config.kinds import KindSpec
from arclog.model.data.lazy import pattern
from arclog.model.errors import SettingsError
from arclog.ports.tool import ToolKind

GROUP = "arclog.kinds"
_KIND = pattern(r"""\bkind["']?:\s*["']?([\w.-]+)""")


class ToolKinds(Mapping[str, ToolKind]):
    """Installed kinds by name, and those of the calling program."""

    def __init__(self, own: Sequence[ToolKind | type[Any]] = ()) -> None:
        self._points = dict(_declared())
        self._loaded: dict[str, ToolKind] = {}
        for kind in own:
            if not isinstance(kind, ToolKind):
                raise SettingsError(f"{kind!r} is not a kind; make one with arclog.kind")
            if kind.spec.name in self._points:
                raise SettingsError(f"there is a kind {kind.spec.name} already; give yours another name")
            self._points[kind.spec.name] = ""
            self._loaded[kind.spec.name] = kind

    def __getitem__(self, name: str) -> ToolKind:
        kind = self._loaded.get(name)
        if kind is None:
            module, _, attribute = self._points[name].partition(":")
            kind = getattr(import_module(module), attribute, None)
            if not isinstance(kind, ToolKind):
                raise SettingsError(f"entry point {name} of {GROUP} ({module}:{attribute}) is not a ToolKind")
            self._loaded[name] = kind
        return kind

    def __contains__(self, name: object) -> bool:
        return name in self._points

    def __iter__(self) -> Iterator[str]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)


class KindSpecs(Mapping[str, KindSpec]):
    """The same kinds as the data that compiling needs."""

    def __init__(self, kinds: ToolKinds) -> None:
        self._kinds = kinds

    def __getitem__(self, name: str) -> KindSpec:
        return self._kinds[name].spec

    def __contains__(self, name: object) -> bool:
        return name in self._kinds

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


def _declared() -> Iterator[tuple[str, str]]:
    """(kind, 'module:attribute') of every installed distribution; the first on the path wins, as for imports."""
    names = set()
    for folder in dict.fromkeys(sys.path):
        for text in _entry_points(folder or "."):
            if f"[{GROUP}]" not in text:
                continue
            for line in text.partition(f"[{GROUP}]")[2].partition("\n[")[0].splitlines():
                name, equals, value = (part.strip() for part in line.partition("="))
                if equals and name not in names:
                    names.add(name)
                    yield name, value


def _entry_points(folder: str) -> Iterator[str]:
    """The texts of the entry points of the distributions in a folder. Written without pathlib, which takes 2 ms for it."""
    with suppress(OSError):  # an archive, or a folder that does not exist
        for name in sorted(os.listdir(folder)):  # noqa: PTH208 - see above
            path = f"{folder}/{name}/entry_points.txt"
            if name.endswith(".dist-info") and os.path.exists(path):  # noqa: PTH110 - see above
                with open(path, encoding="utf-8") as file:  # noqa: PTH123 - see above
                    yield file.read()


@cache
def tool_kinds() -> ToolKinds:
    return ToolKinds()


def kinds_named_in(text: str, kinds: ToolKinds) -> set[str]:
    """Kinds that a playbook's text seems to name. A guess, for work that may begin before the playbook is compiled."""
    words = {match[1] for match in _KIND.finditer(text)}
    return {name for name in kinds if any(_names(word, name) for word in words)}


def _names(word: str, kind: str) -> bool:
    """Whether a word is the name of a kind, alone or before a character that names do not have."""
    rest = word.removeprefix(kind)
    return word.startswith(kind) and not (rest[:1].isalnum() or rest[:1] == "_")


def installed_kinds() -> Mapping[str, KindSpec]:
    """The installed kinds as data."""
    return KindSpecs(tool_kinds())
