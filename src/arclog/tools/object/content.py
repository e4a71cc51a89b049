"""Content of objects: encodes the content of a `put`, and decodes the bytes of a `get`.

Small text and JSON become plain data. Large or binary content goes to the result store, piece by piece.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Struct

from arclog.model.refs import LIST, ResultRef
from arclog.ports.results import Content, ResultSink
from arclog.tools.object.location import Pieces, refuse

JSON = "application/json"
NDJSON = "application/x-ndjson"
TEXT = "text/plain; charset=utf-8"
BINARY = "application/octet-stream"


class Read(Struct):
    """The result of reading an object: plain data, or content in the result store."""

    data: Any = None
    stored: Content | None = None


class Outgoing:
    """The content of a put, hashed while it is sent."""

    def __init__(self, content: Any, encoding: str, results: ResultSink) -> None:
        self._hash = hashlib.sha256()
        self.size: int | None
        if isinstance(content, ResultRef):
            self.content_type = NDJSON if content.kind == LIST else content.meta.content_type
            self.size = content.meta.bytes
            self._source = results.read(content)
        else:
            body, self.content_type = _encoded(content, encoding)
            self.size = len(body)
            self._source = _once(body)

    async def pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._source:
            self._hash.update(piece)
            yield piece

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def _encoded(content: Any, encoding: str) -> tuple[bytes, str]:
    if encoding == "base64":
        if not isinstance(content, str):
            raise refuse("config", f"content must be a base64 text (encoding: base64), not {type(content).__name__}")
        try:
            return base64.b64decode(content, validate=True), BINARY
        except (binascii.Error, ValueError) as problem:
            raise refuse("config", f"content is not base64: {problem}") from problem
    try:
        if isinstance(content, str):
            return content.encode(), TEXT
        return msgspec.json.encode(content), JSON
    except UnicodeEncodeError as problem:
        raise refuse("config", f"content holds half a character (a lone surrogate) at {problem.start}") from problem


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body


async def read(pieces: Pieces, size: int, content_type: str | None, decode: str, results: ResultSink, url: str) -> Read:
    """Decode the bytes as data, or store them if they are large or not text."""
    how = _how(content_type) if decode == "auto" else decode
    if how == "bytes" or size > results.inline_max_bytes:
        if how == "json":
            content_type = JSON
        elif how == "text" and not (content_type or "").startswith("text/"):
            content_type = TEXT
        return Read(stored=await _stored(pieces, content_type or BINARY, results))
    body = b"".join([piece async for piece in pieces])
    if how == "json":
        try:
            return Read(msgspec.json.decode(body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise refuse(
                "exception", f"{url}: is not one JSON document: {problem}; decode: text takes it as it is", "NotJSON"
            ) from problem
    try:
        return Read(body.decode())
    except UnicodeDecodeError as problem:
        if how == "text":
            raise refuse(
                "exception",
                f"{url}: is not UTF-8 text at byte {problem.start}; decode: bytes takes it as it is",
                "NotText",
            ) from problem
        return Read(stored=await _stored(_once(body), content_type or BINARY, results))


def _how(content_type: str | None) -> str:
    """Return how content of this type is read: as json, text, bytes, or by a guess (text if it is valid)."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind == JSON or kind.endswith("+json"):
        return "json"
    if kind.startswith("text/") or kind in (NDJSON, "application/xml", "application/yaml"):
        return "text"
    return "guess" if kind in ("", BINARY, "binary/octet-stream") else "bytes"


async def _stored(pieces: Pieces, content_type: str, results: ResultSink) -> Content:
    writer = results.writer(content_type=content_type)
    try:
        async for piece in pieces:
            await writer.write(piece)
        return await writer.commit()
    finally:
        await writer.abandon()
