"""Filters of encodings and hashes: JSON, base64, hexadecimal digits, URLs. No I/O, and limited, like all filters."""

from __future__ import annotations

import json
import re
from binascii import a2b_base64, b2a_base64
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus, unquote_plus

from arclog.expr.budget import ENTRY, ITEM, LIST, MAP, SLOT, TEXT, Budget, Failure, json_size, text_size
from arclog.expr.convert import plain, text, walked, weigh
from arclog.expr.filters.text import read, whole
from arclog.expr.values import kind_of

_MAX_INDENT = 64
_HASHES = ("md5", "sha1", "sha256", "sha384", "sha512")


def tojson(budget: Budget, value: Any, indent: Any = None) -> str:
    """Write JSON with sorted keys, as Jinja does, but without escaping `<`, `>`, `&` and `'`."""
    step = 0 if indent is None else whole(indent, "indent")
    if not 0 <= step <= _MAX_INDENT:
        raise Failure(f"indent must be between 0 and {_MAX_INDENT}")
    weight = weigh(budget, value, json_size, strict=True, most=budget.bytes)
    # It is written twice: in parts, and as a whole.
    budget.room(TEXT + weight.size * (2 + 2 * step * weight.depth))
    budget.charge(10 + (weight.size >> 2))
    return json.dumps(plain(value), sort_keys=True, indent=indent if indent is None else step)


#: An escape of JSON; a group of its own if it is a surrogate that is not part of a pair.
_ESCAPES = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def fromjson(budget: Budget, value: Any) -> Any:
    """Parse JSON text; the reverse of `tojson`."""
    if not isinstance(value, str):
        raise Failure(f"fromjson reads a string, not a {kind_of(value)}")
    lists, maps = value.count("["), value.count("{")
    entries = value.count(",") + lists + maps
    budget.room(
        text_size(value) + LIST * lists + MAP * maps + (ENTRY if maps else ITEM) * entries + TEXT * _texts(value)
    )
    budget.charge(10 + (len(value) >> 3) + entries)
    if "\\u" in value and any(escape[1] for escape in _ESCAPES.finditer(value)):
        raise Failure("the JSON text has half a character (a lone surrogate)")
    try:
        return json.loads(value, parse_constant=_no_constant)
    except RecursionError:
        raise Failure("the JSON text is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise Failure(f"not JSON: {error.msg} at character {error.pos + 1}") from None


def _texts(value: str) -> int:
    return value.count('"') // 2


def _no_constant(name: str) -> NoReturn:
    raise Failure(f"{name} is not JSON")


def b64encode(budget: Budget, value: Any) -> str:
    """Encode the text's UTF-8 bytes as base64."""
    return b2a_base64(read(budget, value, 8).encode(), newline=False).decode("ascii")


def b64decode(budget: Budget, value: Any) -> str:
    """Decode base64 of UTF-8 text."""
    try:
        # Bytes of UTF-8 may become characters of four bytes each.
        return a2b_base64(read(budget, value, 6).encode("ascii"), strict_mode=True).decode()
    except ValueError:
        raise Failure("not base64 of UTF-8 text") from None


def hexencode(budget: Budget, value: Any) -> str:
    return read(budget, value, 8).encode().hex()


def hexdecode(budget: Budget, value: Any) -> str:
    try:
        return bytes.fromhex(read(budget, value)).decode()
    except ValueError:
        raise Failure("not hexadecimal digits of UTF-8 text") from None


def urlencode(budget: Budget, value: Any) -> str:
    if not isinstance(value, (dict, list)):
        return quote(_percented(budget, value), safe="/")
    pairs: list[str] = []
    entries = [[key, part] for key, part in value.items()] if isinstance(value, dict) else value
    for entry in walked(budget, entries):
        if not isinstance(entry, list) or len(entry) != 2:  # a pair
            raise Failure("urlencode takes a string, a map or a list of pairs")
        key, part = (quote_plus(_percented(budget, half)) for half in entry)
        budget.room(TEXT + SLOT + len(key) + len(part))
        pairs.append(f"{key}={part}")
    budget.room(TEXT + sum(map(len, pairs)) + len(pairs))
    return "&".join(pairs)


def _percented(budget: Budget, value: Any) -> str:
    """Return `value` as text of which each byte in UTF-8 may become three characters."""
    source = text(budget, value)
    # Besides the result, `quote` holds the text in UTF-8 and a list of its encoded bytes.
    budget.room(TEXT + len(source) * (12 if source.isascii() else 48))
    budget.charge(len(source) >> 4)
    return source


def urldecode(budget: Budget, value: Any) -> str:
    try:
        return unquote_plus(read(budget, value, 2), errors="strict")
    except UnicodeDecodeError:
        raise Failure("not percent-encoded UTF-8") from None


def hashed(budget: Budget, value: Any, algorithm: Any = "sha256") -> str:
    import hashlib

    if algorithm not in _HASHES:
        raise Failure(f"hash knows {', '.join(_HASHES)}, not {str(algorithm)[:40]!r}")
    body = read(budget, value, 4).encode()
    return hashlib.new(algorithm, body, usedforsecurity=False).hexdigest()


def hmac_of(budget: Budget, value: Any, key: Any, algorithm: Any = "sha256") -> str:
    import hmac

    if algorithm not in _HASHES:
        raise Failure(f"hmac knows {', '.join(_HASHES)}, not {str(algorithm)[:40]!r}")
    return hmac.new(read(budget, key).encode(), read(budget, value, 4).encode(), algorithm).hexdigest()
