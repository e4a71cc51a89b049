"""Reads the body of a response as the task's data, or as stored content.

Invariants: bytes are counted after decoding, and no more is read than the limit allows. A body is held in memory only
if it has to be parsed; others are streamed. A body that does not match its content type is an error.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple

import msgspec

from arclog.drivers.failure import Failure, shortened
from arclog.model.data.json_data import DEEPEST_INPUT, nested_deeper
from arclog.model.outcome import TaskError, error
from arclog.ports.results import Content, ResultWriter
from arclog.ports.tool import TaskContext
from arclog.tools.http.encodings import cut_short, decoder_of
from arclog.tools.http.failure import bad_body
from arclog.tools.http.kind import HttpConfig

#: Bodies above this size are parsed in a thread, so that other tasks continue.
_PARSE_HERE_BYTES = 256 * 1024
_ITEMS_AT_A_TIME = 1000
_WRITE_BYTES = 256 * 1024
_PROGRESS_BYTES = 1024 * 1024
_JSON = re.compile(r"(application|text)/json|[^/]+/[^/]+\+json")
_TEXT = re.compile(
    r"text/.*|[^/]+/[^/]+\+(xml|yaml)|application/(xml|yaml|x-yaml|javascript|x-javascript|ecmascript|graphql|sql|toml"
    r"|x-ndjson|ndjson|jsonl|json-seq|x-www-form-urlencoded)"
)
#: Permitted character sets. Other codecs of Python (some unpack archives) must not be applied to external data.
_CHARSETS = re.compile(
    r"utf-(8|16|32)(-[bl]e|-sig)?|ascii|iso8859-\d+|cp\d+|koi8-\w|mac-\w+|gb\w+|big5\w*|euc_\w+|iso2022_\w+|shift_jis\w*|hz"
    r"|johab|tis-620|ptcp154|kz1048|hp-roman8"
)


class Body(NamedTuple):
    """The result of reading a body."""

    data: Any = None
    stored: Content | None = None
    problem: TaskError | None = None


class Limits(NamedTuple):
    """The size limits of a body, and of a download."""

    body: int
    download: int


class ContentType(NamedTuple):
    """A parsed Content-Type header."""

    name: str
    charset: str

    @classmethod
    def of(cls, header: str) -> ContentType:
        name, _, parameters = header.partition(";")
        match = re.search(r"charset\s*=\s*\"?([\w.:-]{1,40})", parameters, re.IGNORECASE)
        return cls(name.strip().lower(), match[1] if match else "")

    @property
    def codec(self) -> str:
        """The charset's codec, or UTF-8 if it is unknown or missing."""
        try:
            name = codecs.lookup(self.charset).name
        except LookupError:
            return "utf-8"
        return name if _CHARSETS.fullmatch(name) else "utf-8"


def form_of(config: HttpConfig, kind: ContentType) -> str:
    """Return how a body is read: none, bytes, json, text, or unknown if the server does not name its type."""
    if config.download:
        return "bytes"
    if config.decode != "auto":
        return config.decode
    if not kind.name:
        return "unknown"
    if _JSON.fullmatch(kind.name):
        return "json"
    return "text" if _TEXT.fullmatch(kind.name) else "bytes"


class Reader:
    """Reads one body."""

    def __init__(self, raw: AsyncIterator[bytes], headers: dict[str, str], context: TaskContext) -> None:
        self._raw = raw
        self._headers = headers
        self._context = context
        self._kind = ContentType.of(headers.get("content-type", ""))
        self._inline = context.results.inline_max_bytes

    async def read(self, config: HttpConfig, limits: Limits, *, lenient: bool) -> Body:
        """Read the body as the task asks for. `lenient` means that the response is an error, so its body may have any
        form.
        """
        form = form_of(config, self._kind)
        if form == "none":
            return Body()
        limit, setting = limits.body, "http.max_body_bytes"
        if config.download:
            limit, setting = limits.download, "results.max_bytes"
        async with aclosing(self._chunks(limit, setting)) as chunks:
            if form == "json":
                return await self._json(chunks, lenient=lenient)
            if form == "text":
                return await self._text(chunks)
            if form == "unknown":
                return await self._unknown(chunks)
            return await self._bytes(chunks, self._kind.name or "application/octet-stream", keep_empty=config.download)

    async def _chunks(self, limit: int, setting: str) -> AsyncGenerator[bytes, None]:
        """Yield the decoded bytes of the body, and count them."""
        encoding = self._headers.get("content-encoding", "")
        decoder = decoder_of(encoding)
        total = None if decoder else _length(self._headers)
        if total is not None and total > limit:
            raise _too_large(limit, setting, f"the body says that it has {total:,} bytes")
        seen = reported = 0
        async for raw in self._raw:
            for chunk in decoder.feed(raw) if decoder else (raw,):
                seen += len(chunk)
                if seen > limit:
                    raise _too_large(limit, setting, "the body has more")
                yield chunk
            if seen - reported >= _PROGRESS_BYTES:
                reported = seen
                self._context.progress(seen, total, "bytes")
        if decoder and not decoder.ended:
            raise cut_short(encoding)

    async def _json(self, chunks: AsyncIterator[bytes], *, lenient: bool) -> Body:
        body = bytearray()
        async for chunk in chunks:
            body += chunk
        if not body.strip():
            return Body()
        if len(body) > _PARSE_HERE_BYTES:
            text, value, problem = await asyncio.to_thread(_parsed, bytes(body), self._kind)
        else:
            text, value, problem = _parsed(bytes(body), self._kind)
        if problem:
            shown = text.decode("utf-8", "replace")
            failure = bad_body(f"the body is not usable JSON: {problem}; it begins {shortened(shown)!r}").problem
            kept = await self._kept_text(text)
            return kept if lenient else kept._replace(problem=failure)
        if len(text) <= self._inline:
            return Body(value)
        if isinstance(value, list):
            return Body(stored=await self._stored_list(value))
        return Body(stored=await self._stored_bytes(text, "application/json"))

    async def _kept_text(self, text: bytes) -> Body:
        if len(text) <= self._inline:
            return Body(text.decode("utf-8", "replace"))
        return Body(stored=await self._stored_bytes(text, "text/plain; charset=utf-8"))

    async def _text(self, chunks: AsyncIterator[bytes]) -> Body:
        """Read text and convert it to UTF-8. Invalid bytes are replaced, and this is logged."""
        decode = codecs.getincrementaldecoder(self._kind.codec)("replace").decode
        mend = _Mended(decode)
        async with aclosing(self._as_utf8(chunks, mend)) as texts:
            body = await self._inline_or_stored(texts, "text/plain; charset=utf-8")
        if mend.replaced:
            self._context.log("log", f"the body is not all {self._kind.codec}: invalid bytes were replaced by U+FFFD")
        return body._replace(data=body.data.decode("utf-8") if body.data is not None else None)

    @staticmethod
    async def _as_utf8(chunks: AsyncIterator[bytes], mend: _Mended) -> AsyncGenerator[bytes, None]:
        async for chunk in chunks:
            yield mend.piece(chunk)
        yield mend.piece(b"", final=True)

    async def _unknown(self, chunks: AsyncIterator[bytes]) -> Body:
        """Read a body without a type: small UTF-8 content as text, other content as stored bytes."""
        body = await self._inline_or_stored(chunks, "application/octet-stream")
        if body.data is None:
            return body
        try:
            return Body(body.data.decode("utf-8"))
        except UnicodeDecodeError:
            return Body(stored=await self._stored_bytes(body.data, "application/octet-stream"))

    async def _inline_or_stored(self, chunks: AsyncIterator[bytes], content_type: str) -> Body:
        """Return the bytes if they fit inline, else store them. The data is None for an empty body."""
        begun = bytearray()
        async for chunk in chunks:
            begun += chunk
            if len(begun) > self._inline:
                return Body(stored=await self._stored(chunks, content_type, bytes(begun)))
        return Body(bytes(begun) if begun else None)

    async def _bytes(self, chunks: AsyncIterator[bytes], content_type: str, *, keep_empty: bool) -> Body:
        begun = b""
        async for chunk in chunks:
            begun = chunk
            if begun:
                break
        if not begun and not keep_empty:
            return Body()
        return Body(stored=await self._stored(chunks, content_type, begun))

    async def _stored(self, chunks: AsyncIterator[bytes], content_type: str, begun: bytes = b"") -> Content:
        writer = self._context.results.writer(content_type=content_type)
        gathered = bytearray(begun)

        async def fill() -> None:
            nonlocal gathered
            async for chunk in chunks:
                gathered += chunk
                if len(gathered) >= _WRITE_BYTES:
                    await writer.write(bytes(gathered))
                    gathered = bytearray()
            if gathered:
                await writer.write(bytes(gathered))

        return await _committed(writer, fill)

    async def _stored_bytes(self, content: bytes, content_type: str) -> Content:
        writer = self._context.results.writer(content_type=content_type)
        return await _committed(writer, lambda: writer.write(content))

    async def _stored_list(self, items: list[Any]) -> Content:
        writer = self._context.results.writer(listed=True)

        async def fill() -> None:
            for at in range(0, len(items), _ITEMS_AT_A_TIME):
                await writer.add(items[at : at + _ITEMS_AT_A_TIME])

        return await _committed(writer, fill)


class _Mended:
    """Converts text of any charset to UTF-8, piece by piece."""

    def __init__(self, decode: Callable[[bytes, bool], str]) -> None:
        self._decode = decode
        self.replaced = False

    def piece(self, chunk: bytes, *, final: bool = False) -> bytes:
        text = self._decode(chunk, final)
        self.replaced = self.replaced or "\ufffd" in text
        return text.encode("utf-8", "replace")


async def _committed(writer: ResultWriter, fill: Callable[[], Any]) -> Content:
    """Write and commit content. Nothing is kept if that fails."""
    try:
        await fill()
        return await writer.commit()
    except BaseException:
        await writer.abandon()
        raise


def _parsed(body: bytes, kind: ContentType) -> tuple[bytes, Any, str]:
    """Return the body as UTF-8, its value, and the error if it is invalid."""
    try:
        codec = kind.codec
        if codec not in ("utf-8", "ascii"):
            body = body.decode(codec).encode("utf-8")
        body = body.removeprefix(codecs.BOM_UTF8)
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError) as problem:
        return body, None, str(problem)
    except RecursionError:
        return body, None, f"more than {DEEPEST_INPUT} levels"
    if nested_deeper(value, DEEPEST_INPUT):
        return body, None, f"more than {DEEPEST_INPUT} levels"
    return body, value, ""


def _length(headers: dict[str, str]) -> int | None:
    text = headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def _too_large(limit: int, setting: str, how: str) -> Failure:
    more = "; `download: true` accepts larger bodies" if setting == "http.max_body_bytes" else ""
    return Failure(error("limit", f"{how}, and {limit:,} bytes are taken (setting {setting}){more}", code=setting))
