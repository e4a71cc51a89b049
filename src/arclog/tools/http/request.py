"""Builds a request from a task's config, and the next one from a redirect.

Invariants: values of a task are encoded exactly once, or refused with the name of the key; no value can become a second
header or request. On a redirect to another origin only harmless headers are sent.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from urllib.parse import quote_from_bytes

import httpx2
import msgspec

from arclog import __version__
from arclog.drivers.failure import Failure, refused, shortened
from arclog.drivers.http.client import Message, Payload, Target, target_of
from arclog.model.outcome import error
from arclog.model.refs import LIST, ResultRef
from arclog.ports.secrets import Credential
from arclog.ports.tool import TaskContext
from arclog.tools.http.encodings import ACCEPTED
from arclog.tools.http.kind import HttpConfig, Part

# ── payload ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Bodies of requests: JSON, forms, text, multipart, and stored results, which are streamed.
#
# Invariant: text is sent as UTF-8. Text that cannot be encoded is refused with the name of its key, never altered.

#: Escapes for names in a multipart header, as browsers use them.
_QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})


def payload_of(config: HttpConfig, context: TaskContext) -> Payload | None:
    """Return the body of a task's request, or None if it has none."""
    bodies = [
        name
        for name, there in (
            ("json", config.json is not msgspec.UNSET),
            ("form", config.form is not None),
            ("body", config.body is not None),
            ("multipart", config.multipart is not None),
        )
        if there
    ]
    if len(bodies) > 1:
        raise refused(f"{' and '.join(bodies)} cannot be combined; a request has one body")
    if not bodies:
        return None
    match bodies[0]:
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
    """Return a body: text and bytes unchanged, other values as JSON, whether they are stored or not."""
    if isinstance(body, ResultRef):
        if body.kind != LIST:
            return Payload(lambda: context.results.read(body), body.meta.bytes, body.meta.content_type)
        # The stored bytes have one line for each item. Brackets and commas make them one JSON value, one byte longer.
        length = body.meta.bytes + 1 if body.meta.rows else 2
        return Payload(lambda: as_array(context.results.read(body)), length, "application/json")
    if not isinstance(body, str):
        return _json(body, "body")
    return _bytes(encoded(body, "body"), "text/plain; charset=utf-8")


async def as_array(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a JSON array, given one JSON value per line. The last line ends with a newline, too."""
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
            raise refused(f"{where}.content_type: it contains a line break or NUL")
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
    """Return names and texts of a map. A list repeats its name; null is left out."""
    return [
        (name, as_text(item, f"{key}.{name}"))
        for name, value in values.items()
        for item in (value if isinstance(value, list) else (value,))
        if item is not None
    ]


def urlencoded(fields: Iterable[tuple[str, str]], key: str) -> bytes:
    texts = [f"{_quoted(name, key)}={_quoted(value, f'{key}.{name}')}" for name, value in fields]
    return "&".join(texts).encode("ascii")


def _quoted(text: str, where: str) -> str:
    return quote_from_bytes(encoded(text, where), safe="*").replace("%20", "+")


def as_text(value: Any, where: str) -> str:
    """Return a scalar in the form in which requests have it."""
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
    return refused(f"{shortened(where)}: it contains a lone surrogate, which UTF-8 cannot encode")


# ── request ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
#: Headers that frame the message; tasks cannot set them.
_FRAMING = frozenset(
    {"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
#: Headers that may be sent to another origin; any other may be a credential.
_HARMLESS = frozenset(
    {"accept", "accept-encoding", "accept-language", "content-language", "content-length", "content-type",
     "if-modified-since", "if-none-match", "range", "user-agent"}
)  # fmt: skip
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_WITH_A_BODY = frozenset({"POST", "PUT", "PATCH"})
#: The field with the token, by kind of credential.
_TOKENS = {"bearer": "token", "oauth2": "access_token", "secret": "value", "env": "value", "file": "value",
           "secret_manager": "value"}  # fmt: skip


def first_message(config: HttpConfig, context: TaskContext) -> Message:
    """Return the request of a task."""
    method = config.method.upper()
    if not _TOKEN.fullmatch(method) or method == "CONNECT":
        raise refused(f"method: {shortened(config.method)!r} is not a request method")
    target = target_of(config.url)
    added = urlencoded(pairs(config.params, "params"), "params") if config.params else b""
    if added:
        sign = "&" if b"?" in target.path else "?"
        query = sign + added.decode("ascii")
        target = target._replace(path=target.path + query.encode("ascii"), text=target.text + query)
    headers = {"accept": "*/*", "accept-encoding": ACCEPTED, "user-agent": f"arclog/{__version__}"}
    payload = payload_of(config, context)
    if payload is not None:
        headers["content-type"] = payload.content_type
    own_headers = _headers(config.headers)
    if context.auth is not None:
        if "authorization" in own_headers:
            raise refused("headers: Authorization is set, and auth provides one as well; remove one of them")
        headers["authorization"] = _authorization(context.auth)
    headers.update(own_headers)
    if payload is not None or method in _WITH_A_BODY:
        headers["content-length"] = str(payload.length if payload else 0)
    return Message(method, target, _addressed(target, headers), payload)


def next_message(sent: Message, status: int, headers: Mapping[str, str]) -> Message | None:
    """Return the request for a redirect, or None if the response does not redirect."""
    location = headers.get("location", "")
    if status not in _REDIRECTS or not location:
        return None
    try:
        url = httpx2.URL(sent.target.text).join(location).copy_with(username=None, password=None)
        target = target_of(str(url))
    except (httpx2.InvalidURL, UnicodeError, Failure) as problem:
        message = f"{described(sent)} redirects to {shortened(location)!r}, which is not followed: {problem}"
        raise Failure(error("server_error", message, code="BAD_REDIRECT", retryable=False)) from None
    kept = {name: value for name, value in sent.headers.items() if name != "host"}
    if target.origin != sent.target.origin:
        kept = {name: value for name, value in kept.items() if name in _HARMLESS}
    method, payload = sent.method, sent.payload
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, payload = "GET", None
        kept = {name: value for name, value in kept.items() if not name.startswith("content-")}
    return Message(method, target, _addressed(target, kept), payload)


def described(message: Message) -> str:
    """Return a request's name for error messages."""
    return f"{message.method} {shortened(message.target.text)}"


def _addressed(target: Target, headers: dict[str, str]) -> dict[str, str]:
    """Add the Host header in the first place, where servers expect it."""
    return headers if "host" in headers else {"host": target.authority, **headers}


def _headers(fields: Mapping[str, Any]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in fields.items():
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise refused(f"headers: {shortened(name)!r} cannot be the name of a header")
        if lower in _FRAMING:
            raise refused(f"headers: {name} is set by the client itself; leave it out")
        if lower in headers:
            raise refused(f"headers: {name} is set twice")
        if value is None:
            continue
        text = as_text(value, f"headers.{name}").strip(" \t")
        if _UNPRINTABLE.search(text):
            raise refused(f"headers.{name}: it contains a line break, NUL or another control character")
        encoded(text, f"headers.{name}")
        headers[lower] = text
    return headers


def _authorization(credential: Credential) -> str:
    """Return the Authorization header of a credential. No message contains a part of it."""
    fields = credential.fields
    if credential.kind == "basic":
        pair = f"{fields.get('username', '')}:{fields.get('password', '')}"
        return "Basic " + base64.b64encode(encoded(pair, f"auth {credential.name}")).decode("ascii")
    field = _TOKENS.get(credential.kind)
    if field is None:
        raise refused(f"auth: {credential.name} is a {credential.kind}, which cannot authorise a request")
    token = str(fields.get(field) or "")
    if not token:
        raise refused(f"auth: {credential.name} has no {field}")
    if _UNPRINTABLE.search(token) or not token.isascii():
        raise refused(
            f"auth: {credential.name} contains characters that a header must not contain (a line break at its end?)"
        )
    return f"Bearer {token}"
