"""Decodes content encodings piece by piece.

Invariants: no call returns more than about a megabyte, so that the caller can stop a decompression bomb long before it
fills the memory. A truncated body is distinguished from a complete one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

from arclog.drivers.failure import Failure
from arclog.model.outcome import error
from arclog.tools.http.failure import bad_body

#: The Accept-Encoding of requests; other encodings are refused.
ACCEPTED = "gzip, deflate, zstd"
#: The maximum number of nested encodings. Only attackers use more.
MOST_ENCODINGS = 2
_PIECE_BYTES = 1024 * 1024
#: zstd returns all output for its input at once: at most 128 KiB for every 4 bytes.
_ZSTD_SLICE_BYTES = 256
#: The maximum window, as required by RFC 9659.
_ZSTD_WINDOW_BYTES = 8 * 1024 * 1024


class Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the content that these bytes decode to."""

    @property
    def ended(self) -> bool:
        """Whether the encoded content is complete."""


class _Zlib:
    """gzip (also with several members) and deflate (also without its header, as some servers send it)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._head = b""
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16) if name == "gzip" else None
        self._begun = False

    @property
    def ended(self) -> bool:
        return self._inner is not None and self._inner.eof if self._begun else True

    def feed(self, data: bytes) -> Iterator[bytes]:
        if not data:
            return
        self._begun = True
        if self._inner is None:
            self._head += data
            if len(self._head) < 2:
                return
            data, self._head = self._head, b""
            wrapped = data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
            self._inner = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
        try:
            yield from self._inflate(data)
        except zlib.error as problem:
            raise bad_body(f"the body is not {self._name}, although its header says so: {problem}") from None

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner is None or self._inner.eof:
                if self._name != "gzip" or not data.startswith(b"\x1f"):
                    return  # padding after the end
                self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)
            piece = self._inner.decompress(data, _PIECE_BYTES)
            if piece:
                yield piece
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail


class _Zstd:
    """One or more zstd frames."""

    def __init__(self) -> None:
        import zstandard

        self._zstd = zstandard
        self._decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
        self._inner = self._decompressor.decompressobj()
        self._begun = False

    @property
    def ended(self) -> bool:
        return self._inner.eof if self._begun else True

    def feed(self, data: bytes) -> Iterator[bytes]:
        try:
            for at in range(0, len(data), _ZSTD_SLICE_BYTES):
                compressed = data[at : at + _ZSTD_SLICE_BYTES]
                while compressed:
                    if self._inner.eof:
                        self._inner = self._decompressor.decompressobj()
                    self._begun = True
                    piece = self._inner.decompress(compressed)
                    compressed = self._inner.unused_data if self._inner.eof else b""
                    if piece:
                        yield piece
        except self._zstd.ZstdError as problem:
            raise bad_body(f"the body is not zstd, although its header says so: {problem}") from None


class _Chain:
    """Nested encodings, the outermost first."""

    def __init__(self, layers: list[Decoder]) -> None:
        self._layers = layers

    @property
    def ended(self) -> bool:
        return all(layer.ended for layer in self._layers)

    def feed(self, data: bytes) -> Iterator[bytes]:
        return self._through(data, 0)

    def _through(self, data: bytes, level: int) -> Iterator[bytes]:
        if level == len(self._layers):
            yield data
            return
        for piece in self._layers[level].feed(data):
            yield from self._through(piece, level + 1)


def decoder_of(header: str) -> Decoder | None:
    """Return the decoder of a Content-Encoding, or None if there is no encoding."""
    names = [name for part in header.split(",") if (name := part.strip().lower()) not in ("", "identity")]
    if not names:
        return None
    if len(names) > MOST_ENCODINGS:
        raise bad_body(
            f"the body is encoded {len(names)} times ({header[:100]}); at most {MOST_ENCODINGS} encodings are decoded"
        )
    return _Chain([_layer(name) for name in reversed(names)])


def _layer(name: str) -> Decoder:
    if name in ("gzip", "x-gzip"):
        return _Zlib("gzip")
    if name == "deflate":
        return _Zlib("deflate")
    if name == "zstd":
        return _Zstd()
    raise bad_body(f"the body is encoded as {name[:40]!r}, which was not requested (Accept-Encoding: {ACCEPTED})")


def cut_short(encoding: str) -> Failure:
    return Failure(error("connection", f"the body was cut: its {encoding} encoding does not end", code="CUT_BODY"))
