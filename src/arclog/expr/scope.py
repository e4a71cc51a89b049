"""The names that a template sees: layers of mappings, the first that has a name wins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from arclog.expr.budget import Meter
from arclog.expr.values import MISSING

_NONE: Mapping[str, str] = {}


class Scope(Mapping[str, Any]):
    """A read-only stack of mappings from name to JSON value or `Lookup`."""

    __slots__ = ("absent", "layers", "meter")

    def __init__(
        self, *layers: Mapping[str, Any], absent: Mapping[str, str] = _NONE, meter: Meter | None = None
    ) -> None:
        self.layers = layers
        #: names of steps and tasks with what to say of one that has not run
        self.absent = absent
        #: counts what the evaluations in this scope cost together
        self.meter = meter

    def get(self, key: str, default: Any = None) -> Any:
        """Find a name, first layer first."""
        for layer in self.layers:
            value = layer.get(key, MISSING)
            if value is not MISSING:
                return value
        return default

    def __getitem__(self, key: str) -> Any:
        value = self.get(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return any(key in layer for layer in self.layers)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key for layer in self.layers for key in layer))

    def __len__(self) -> int:
        return len(set().union(*self.layers))

    def __repr__(self) -> str:
        return f"Scope({', '.join(map(repr, self))})"
