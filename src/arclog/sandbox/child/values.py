"""What may leave a python task: JSON and nothing else. What is refused is named with its path.

The common case is checked at C speed by the set of types in each container; only a refusal walks item by item.
"""

from __future__ import annotations

import json
import math
from typing import Any

#: Deeper values would meet the recursion limit of some reader later on.
MAX_DEPTH = 200
_KEY_MAX = 60

_LEAVES = frozenset({str, int, float, bool, type(None)})
_REMEDIES = {
    "datetime": "with .isoformat()",
    "date": "with .isoformat()",
    "time": "with .isoformat()",
    "timedelta": "with .total_seconds()",
    "Decimal": "with str()",
    "UUID": "with str()",
    "Path": "with str()",
    "PosixPath": "with str()",
    "bytes": "with .decode() or base64",
    "bytearray": "with .decode() or base64",
    "set": "with sorted() or list()",
    "frozenset": "with sorted() or list()",
    "generator": "with list()",
    "map": "with list()",
    "filter": "with list()",
    "zip": "with list()",
    "range": "with list()",
    "dict_keys": "with list()",
    "dict_values": "with list()",
    "ndarray": "with .tolist()",
    "DataFrame": "with .to_dict('records')",
    "Series": "with .tolist()",
    "complex": "with str()",
    "coroutine": "by awaiting it",
}

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode


class NotJSON(Exception):
    """The value, or something in it, is not JSON; the message says where and what to do."""


def encoded(value: Any, path: str = "result") -> bytes:
    """The value as JSON text, or NotJSON; `path` is how a refusal calls it."""
    if _plain(value, 0):
        try:
            return _encode(value).encode()
        except (ValueError, UnicodeEncodeError):
            pass
    _find(value, path, ())
    try:
        return _encode(value).encode()
    except (ValueError, TypeError) as problem:
        raise NotJSON(f"{path}: {problem}") from None


def _plain(value: Any, depth: int) -> bool:
    """True when nothing but plain JSON types is inside; floats and text are left to the encoder."""
    kind = type(value)
    if kind in _LEAVES:
        return True
    if depth > MAX_DEPTH:
        return False
    if kind is dict:
        if not {str}.issuperset(map(type, value)):
            return False
        items = value.values()
    elif kind is list or kind is tuple:
        items = value
    else:
        return False
    if _LEAVES.issuperset(map(type, items)):
        return True
    return all(_plain(item, depth + 1) for item in items)


def _find(value: Any, path: str, above: tuple[int, ...]) -> None:
    """Raise NotJSON for the first thing that is not JSON; subclasses of the plain types pass."""
    if not isinstance(value, dict | list | tuple):
        _check_leaf(value, path)
        return
    if id(value) in above:
        raise NotJSON(f"{path}: the {type(value).__name__} contains itself, which JSON cannot say")
    if len(above) >= MAX_DEPTH:
        raise NotJSON(f"{path[:200]}…: nested deeper than {MAX_DEPTH} levels; return a flatter value")
    within = (*above, id(value))
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise NotJSON(
                    f"{path}: the key {_short(key)} is {_article(type(key).__name__)}, and JSON keys are strings; "
                    "convert it, e.g. with str()"
                )
            _check_text(key, f"{path}: the key {_short(key)}")
            _find(item, _member(path, key), within)
    else:
        for index, item in enumerate(value):
            _find(item, f"{path}[{index}]", within)


def _check_leaf(value: object, path: str) -> None:
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise NotJSON(f"{path}: {value!r} is not JSON; return None or a string instead")
    elif value is not None and not isinstance(value, int):
        raise NotJSON(f"{path}: {_refusal(value)}")


def _check_text(text: str, path: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        code = ord(text[problem.start])
        raise NotJSON(
            f"{path}: the text holds a lone surrogate (\\u{code:04x} at {problem.start}), which no JSON text can; "
            "decode its source with errors='replace'"
        ) from None


def _refusal(value: object) -> str:
    name = type(value).__name__
    remedy = _REMEDIES.get(name)
    if remedy is None and hasattr(value, "__dataclass_fields__"):
        remedy = "with dataclasses.asdict()"
    if remedy is None and callable(value):
        return f"{name} is not JSON; return what it gives when called"
    return f"{name} is not JSON; convert it, e.g. {remedy or 'to a dict, a list or a string'}"


def _member(path: str, key: str) -> str:
    return f"{path}.{key}" if key.isidentifier() else f"{path}[{_short(key)}]"


def _short(key: object) -> str:
    text = ascii(key)
    return text if len(text) <= _KEY_MAX else text[: _KEY_MAX - 3] + "..."


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "aeio" else f"a {name}"
