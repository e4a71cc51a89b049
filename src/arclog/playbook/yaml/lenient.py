"""Reading values that may have any shape: what does not fit is read as nothing, since the walker has told of it."""

from __future__ import annotations

from typing import Any


def as_map(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_text(value: Any, default: str = "") -> str:
    return value if isinstance(value, str) else default


def above_zero(value: Any) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
        return float(value)
    return None


def whole(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default


def priority_of(spec: dict[str, Any]) -> int | None:
    value = spec.get("priority")
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def dig(value: Any, *keys: str) -> Any:
    for key in keys:
        value = as_map(value).get(key)
    return value


def size(value: Any, most: int) -> int:
    """How many values a value holds; counting ends soon after `most`."""
    count = 0
    waiting = [value]
    while waiting and count <= most:
        part = waiting.pop()
        count += 1
        if isinstance(part, dict):
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return count
