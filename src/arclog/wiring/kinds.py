"""Finds tool kinds by entry point. Only those that are looked up are imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from arclog.model.errors import SettingsError
from arclog.model.kinds import KindSpec
from arclog.ports.tool import ToolKind

GROUP = "arclog.kinds"


class ToolKinds(Mapping[str, ToolKind]):
    """Installed kinds by name."""

    def __init__(self) -> None:
        self._points: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}
        self._loaded: dict[str, ToolKind] = {}

    def __getitem__(self, name: str) -> ToolKind:
        kind = self._loaded.get(name)
        if kind is None:
            point = self._points[name]
            kind = point.load()
            if not isinstance(kind, ToolKind):
                raise SettingsError(f"entry point {GROUP}:{name} ({point.value}) is not a ToolKind")
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


@cache
def tool_kinds() -> ToolKinds:
    return ToolKinds()


def installed_kinds() -> Mapping[str, KindSpec]:
    """The installed kinds as data."""
    return KindSpecs(tool_kinds())
