"""Payloads: encodes values of tasks as bytes, and decodes received bytes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from arclog.model.outcome import Outcome, error
from arclog.model.refs import ResultRef
from arclog.ports.results import ResultSink
from arclog.ports.tool import TaskContext
from arclog.tools.nats.failure import Failure, refused

_TYPES = {"json": "application/json", "text": "text/plain; charset=utf-8", "base64": "application/octet-stream"}
#: The size of `NATS/1.0` and the line ends around headers.
_FRAME_BYTES = 12


async def encoded(data: Any, encoding: Any, results: ResultSink, most: int) -> bytes:
    """Return the bytes to send, at most `most`."""
    if isinstance(data, ResultRef):
        if data.meta.bytes > most:
            raise too_large(data.meta.bytes, most)
        return b"".join([piece async for piece in results.read(data)])
    how = "auto" if encoding is UNSET else encoding
    if how == "base64":
        try:
            return base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError, TypeError) as problem:
            raise refused(f"data is not base64 text (encoding: base64): {problem}") from None
    if how == "text" and not isinstance(data, str):
        raise refused(f"data must be a text (encoding: text), not {type(data).__name__}")
    try:
        return data.encode() if isinstance(data, str) and how != "json" else msgspec.json.encode(data)
    except UnicodeEncodeError as problem:
        raise refused(f"data contains a lone surrogate at {problem.start}") from None


def decoded(body: bytes, decode: Any, operation: str) -> tuple[Any, str]:
    """Return the decoded value and its form: json, text or base64."""
    how = "auto" if decode is UNSET else decode
    if how == "base64":
        return base64.b64encode(body).decode(), how
    if how == "auto" and not body:
        return None, "json"
    if how in ("auto", "json"):
        try:
            return msgspec.json.decode(body), "json"
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            if how == "json":
                message = f"{operation}: is not one JSON document: {problem}; `decode: auto` returns it unchanged"
                raise Failure(error("exception", message, code="NotJSON")) from None
    try:
        return body.decode(), "text"
    except UnicodeDecodeError as problem:
        if how == "text":
            message = f"{operation}: is not UTF-8 text at byte {problem.start}; `decode: base64` returns it unchanged"
            raise Failure(error("exception", message, code="NotText")) from None
        return base64.b64encode(body).decode(), "base64"


async def outcome_of(body: bytes, decode: Any, about: dict[str, Any], context: TaskContext, operation: str) -> Outcome:
    """Return an outcome with these bytes as data. Large data goes to the result store."""
    data, taken = decoded(body, decode, operation)
    about["as"] = taken
    if len(body) <= context.results.inline_max_bytes:
        return Outcome(result={**about, "data": data}, data_at="data")
    writer = context.results.writer(content_type=_TYPES[taken])
    try:
        await writer.write(body)
        return Outcome(result=about, data_at="data", stored=await writer.commit())
    finally:
        await writer.abandon()


def headers_of(fields: Mapping[str, Any] | None) -> dict[str, str]:
    """Return headers as text; null is left out."""
    headers: dict[str, str] = {}
    for name, value in (fields or {}).items():
        if value is None:
            continue
        if not isinstance(value, str | int | float):
            raise refused(f"header {name}: must be a text or a number, not {type(value).__name__}")
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if any(ord(letter) < 32 and letter != "\t" for letter in text):
            raise refused(f"header {name}: its value contains a line break or another control character")
        if not name or any(not 33 <= ord(letter) <= 126 or letter == ":" for letter in name):
            raise refused("the name of a header is made of visible ASCII characters without `:`")
        headers[name] = text
    return headers


def check_size(body: bytes, headers: Mapping[str, str], most: int) -> None:
    """Check the size of a message with its headers. A server closes the connection if a message is too large."""
    around = sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
    size = len(body) + (around + _FRAME_BYTES if headers else 0)
    if size > most:
        raise too_large(size, most)


def too_large(size: int, most: int) -> Failure:
    message = f"the message has {size:,} bytes, and the server accepts at most {most:,} (its max_payload)"
    return Failure(error("limit", f"{message}; store large data as an object or a result", code="MAX_PAYLOAD"))


def check_name(text: Any, operation: str) -> str:
    """Check and return the name of a stream, a consumer or a bucket, which is one part of a subject."""
    if not text or any(letter in ".*>/\\ " or ord(letter) < 33 or ord(letter) == 127 for letter in text):
        raise refused(f"{operation} must be a name without dots, wildcards, slashes and spaces")
    return str(text)


def check_subject(text: Any, operation: str) -> str:
    """Check and return the subject of a message."""
    parts = str(text or "").split(".")
    if any(not part or any(ord(letter) < 33 or ord(letter) == 127 for letter in part) for part in parts):
        raise refused(f"{operation} must be made of parts with a dot between them, without spaces: orders.new")
    if any(part in ("*", ">") for part in parts):
        raise refused(f"{operation} must not contain a wildcard: a message has one subject")
    return str(text)
