"""Bodies of requests: JSON, forms, text, multipart, and stored results that are streamed.

Law: text leaves as UTF-8; what cannot be said in UTF-8 is refused and names its key, never altered.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from urllib.parse import quote_from_bytes

import msgspec

from arclog.drivers.failure import Failure, refused, shortened
from arclog.drivers.http.client import Payload
from arclog.model.refs import LIST, ResultRef
from arclog.ports.tool import TaskContext
from arclog.tools.http.config import HttpConfig, Part

#: As browsers write file names into a multipart header.
_QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


def payload_of(config: HttpConfig, context: TaskContext) -> Payload | None:
    """The body that a task describes; None when it has none."""
    given = [
        name
        for name, there in (
            ("json", config.json is not msgspec.UNSET),
            ("form", config.form is not None),
            ("body", config.body is not None),
            ("multipart", config.multipart is not None),
        )
        if there
    ]
    if len(given) > 1:
        raise refused(f"{' and '.join(given)} cannot be combined; a request has one body")
    if not given:
        return None
    match given[0]:
        case "json":
            return _json(config.json, "json")
        case "form":
            content = urlencoded(pairs(config.form or {}, "form"), "form")
            return _bytes(content, "application/x-www-form-urlencoded")
        case "multipart":
            return _multipart(config.multipart or [])
        case _:
            return _plain(config.body, context)


def _json(value: Any, key: str) -> Payload:
    try:
        return _bytes(msgspec.json.encode(value), "application/json")
    except UnicodeEncodeError:
        raise _surrogate(key) from None
    except (TypeError, ValueError, RecursionError) as problem:
        raise refused(f"{key}: {problem}") from None


def _plain(body: Any, context: TaskContext) -> Payload:
    """Text and bytes as they are, anything else as JSON: the same whether it is stored or not."""
    if isinstance(body, ResultRef):
        if body.kind != LIST:
            return Payload(lambda: context.results.read(body), body.meta.bytes, body.meta.content_type)
        # Its bytes are a line for each item; brackets and commas make them one value, a byte longer.
        length = body.meta.bytes + 1 if body.meta.rows else 2
        return Payload(lambda: as_array(context.results.read(body)), length, "application/json")
    if not isinstance(body, str):
        return _json(body, "body")
    return _bytes(encoded(body, "body"), "text/plain; charset=utf-8")


async def as_array(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """A JSON array of one JSON value a line; the last line ends too."""
    yield b"["
    owed = b""
    async for chunk in lines:
        if chunk:
            yield owed + chunk[:-1].replace(b"\n", b",")
            owed = chunk[-1:].replace(b"\n", b",")
    yield b"]" if owed in (b"", b",") else owed + b"]"


def _multipart(parts: list[Part]) -> Payload:
    boundary = os.urandom(16).hex()
    body = bytearray()
    for index, part in enumerate(parts):
        where = f"multipart[{index}]"
        if not isinstance(part.content, str | int | float):
            raise refused(f"{where}.content: it must be text")
        if any(letter in part.content_type for letter in "\r\n\0"):
            raise refused(f"{where}.content_type: it holds a line break or NUL")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{part.name.translate(_QUOTED)}"'
        if part.filename:
            head += f'; filename="{part.filename.translate(_QUOTED)}"'
        kind = part.content_type or ("application/octet-stream" if part.filename else "")
        if kind:
            head += f"\r\nContent-Type: {kind}"
        body += encoded(f"{head}\r\n\r\n", where)
        body += encoded(as_text(part.content, f"{where}.content"), f"{where}.content") + b"\r\n"
    body += f"--{boundary}--\r\n".encode()
    return _bytes(bytes(body), f"multipart/form-data; boundary={boundary}")


def _bytes(content: bytes, content_type: str) -> Payload:
    return Payload(content, len(content), content_type)


def pairs(values: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    """Names and texts of a map: a list repeats its name, null is left out."""
    return [
        (name, as_text(one, f"{key}.{name}"))
        for name, value in values.items()
        for one in (value if isinstance(value, list) else (value,))
        if one is not None
    ]


def urlencoded(found: Iterable[tuple[str, str]], key: str) -> bytes:
    texts = [f"{_quoted(name, key)}={_quoted(value, f'{key}.{name}')}" for name, value in found]
    return "&".join(texts).encode("ascii")


def _quoted(text: str, where: str) -> str:
    return quote_from_bytes(encoded(text, where), safe="*").replace("%20", "+")


def as_text(value: Any, where: str) -> str:
    """A scalar as it is written in a request."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise refused(f"{where}: it must be a text, a number or a boolean, and is a {type(value).__name__}")


def encoded(text: str, where: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise _surrogate(where) from None


def _surrogate(where: str) -> Failure:
    return refused(f"{shortened(where)}: it holds half of a surrogate pair, which UTF-8 cannot say")
