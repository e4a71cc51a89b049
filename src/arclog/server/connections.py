"""Connections of those who never finish asking: a request's head comes within a time and a size, or its connection ends.

Without this anybody could hold a connection for ever by sending a head byte by byte, or fill the memory with one that has
no end. Bodies have limits of their own (`bodies`), and idle connections are uvicorn's.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from arclog.model.settings import Settings

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
#: What stands around the name and the value of a header: a colon, a space, the end of the line.
_AROUND = 4


def connection_of(settings: Settings) -> type[asyncio.Protocol]:
    """The protocol of a server with these settings."""

    class Bounded(_Bounded):
        head_s = settings.number("server.head_timeout_s")
        head_bytes = settings.integer("server.max_head_bytes")

    return Bounded


class _Bounded(HttpToolsProtocol):
    head_s: float
    head_bytes: int

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._deadline: asyncio.TimerHandle | None = None
        self._came = 0
        self._in_body = False
        #: of the head that comes now: its bytes, and how many Host headers it has
        self._head = 0
        self._hosts = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, whatever its type says
        if (cycle is not None and not cycle.response_complete) or self.transport.is_closing():
            return
        # Nothing is under way, and what came is no whole head, or the rest of a body that was answered before it ended.
        self._expect()
        if not self._in_body:
            self._came += len(data)
            if self._came > self.head_bytes:
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._head = self._hosts = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._measure(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._measure(len(name) + len(value) + _AROUND)
        if name.lower() == b"host":
            self._hosts += 1
            if self._hosts > 1:
                raise ValueError("a request has one Host header")  # the parser ends, and uvicorn answers 400
        super().on_header(name, value)

    def _measure(self, size: int) -> None:
        self._head += size
        if self._head > self.head_bytes:
            raise ValueError("the head is too large")

    def send_400_response(self, msg: str) -> None:
        if self._head > self.head_bytes:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self._arrived()
        self._in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_body = False
        super().on_message_complete()

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_s, self.transport.close)

    def _arrived(self) -> None:
        self._came = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
