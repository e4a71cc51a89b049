"""How layers are laid over each other, everywhere: scalars inner wins, maps merge deeply, lists replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def deep_merge(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> dict[str, Any]:
    """`inner` laid over `outer`; neither is changed."""
    merged = dict(outer)
    for key, value in inner.items():
        below = merged.get(key)
        merged[key] = deep_merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged
