"""Limits on connections: the head of a request must arrive within a time and a size, or the connection is closed.

Without this, a client could hold a connection forever by sending a head byte by byte, or fill the memory with one that
does not end. Bodies have their own limits (`server.call`). uvicorn closes idle connections
(`server.idle_timeout_s`).

Open connections are counted (`server.max_connections`): one address cannot take all of them. From the share
`server.fair_from` on, an address may have at most as many connections as are left for others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any
from weakref import ref

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from arclog.drivers.addresses import neighbourhood
from arclog.model.config.settings import Settings

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
#: Bytes per second that are read from a body whose request was answered before it ended. Most senders read the answer
#: only when they have sent everything.
_AFTER_ANSWER = 64 * 1024 * 1024
#: Bytes of a header besides its name and value: colon, space, line end.
_AROUND = 4
_HOST_BYTES = len(b"host")


#: Key in a request's scope that is set when the whole body has arrived, so that reading it does not wait.
BODY_IS_HERE = "arclog.body_is_here"
#: Key in a request's scope: `send_whole` for this request.
SEND_WHOLE = "arclog.send_whole"


class Connections:
    """Counts open connections by address."""

    def __init__(self, most: int, fair_from: float, shared: Collection[str] = ()) -> None:
        """`shared` are addresses of proxies, which serve many clients and so are not limited to a share."""
        self._most = most
        self._fair_from = most * fair_from
        self._shared = frozenset(shared)
        self._now = 0
        self._from: Counter[str] = Counter()

    def open(self, address: str) -> bool:
        """Count one more connection; returns False, without counting it, when the limit is reached."""
        if self._now >= self._most:
            return False
        where = neighbourhood(address)
        if self._now >= self._fair_from and address not in self._shared and self._from[where] >= self._most - self._now:
            return False
        self._now += 1
        self._from[where] += 1
        return True

    def close(self, address: str) -> None:
        where = neighbourhood(address)
        self._now -= 1
        self._from[where] -= 1
        if not self._from[where]:
            del self._from[where]


def connections_of(settings: Settings) -> Connections:
    """The count of a server with these settings."""
    most = settings.integer("server.max_connections")
    proxies = settings.text("server.trusted_proxies").replace(" ", "").split(",")
    return Connections(most, settings.number("server.fair_from"), proxies)


def connection_of(settings: Settings) -> type[BoundedConnection]:
    """The protocol of a server with these settings."""

    class Bounded(BoundedConnection):
        opened = connections_of(settings)
        head_s = settings.number("server.head_timeout_s")
        head_bytes = settings.integer("server.max_head_bytes")

    return Bounded


def send_whole(of: ref[RequestResponseCycle], status: int, headers: bytes, body: bytes) -> bool:
    """Write a whole response at once, as uvicorn would in two parts: one system call, one packet. `headers` are encoded lines
    with the length of the body. Returns False, without effect, if the client reads slowly or is gone: such responses are
    left to uvicorn.
    """
    cycle = of()
    if cycle is None or cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
        return False
    cycle.response_started = True
    cycle.waiting_for_100_continue = False
    more = b"".join([b"%s: %s\r\n" % header for header in cycle.default_headers])
    end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
    cycle.transport.write(b"".join((STATUS_LINE[status], more, headers, end, body)))
    cycle.response_complete = True
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


class BoundedConnection(HttpToolsProtocol):
    """A connection with these limits."""

    opened: Connections
    head_s: float
    head_bytes: int
    #: whether each connection is closed after its next response
    is_leaving = False

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        #: the address of the client; None if the connection was refused
        self._address: str | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._came = 0
        self._in_head = self._in_body = False
        #: of the head that is being read: its bytes, and the number of Host headers
        self._head = 0
        self._hosts = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if self.opened.open(address):
            self._address = address
            self._expect()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._address is not None:
            self.opened.close(self._address)
            self._address = None
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_body = self._in_body
        if was_in_body and not self.is_under_way():
            # The request was refused after its beginning; the rest is read slowly.
            self.transport.pause_reading()
            self.loop.call_later(len(data) / _AFTER_ANSWER, self._read_on)
        super().data_received(data)
        if self.is_under_way() or self.transport.is_closing():
            return
        # No request is in progress, and what arrived is an incomplete head, or the rest of a body that was answered
        # before it ended.
        self._expect()
        if not self._in_body and not was_in_body:
            self._came += len(data)
            if self._came > self.head_bytes:
                self.transport.write(_TOO_LARGE)
                self.transport.close()

    def on_message_begin(self) -> None:
        self._head = self._hosts = 0
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        if self._head > self.head_bytes:
            raise ValueError("the head is too large")
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head += len(name) + len(value) + _AROUND
        if self._head > self.head_bytes:
            raise ValueError("the head is too large")
        if len(name) == _HOST_BYTES and name.lower() == b"host":
            self._hosts += 1
            if self._hosts > 1:
                raise ValueError("a request has one Host header")  # the parser ends, and uvicorn answers 400
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        if self._head > self.head_bytes:
            self.transport.write(_TOO_LARGE)
            self.transport.close()
        else:
            super().send_400_response(msg)

    def on_headers_complete(self) -> None:
        self._arrived()
        self._in_head, self._in_body = False, True
        super().on_headers_complete()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and cycle.scope is self.scope:  # not for a request that changes the protocol
            if self.is_leaving:
                self.scope["headers"] = [*self.scope["headers"], (b"connection", b"close")]  # copied to the response
                cycle.keep_alive = False
            # A reference from the scope to its cycle would leave a garbage collection to free both.
            self.scope[SEND_WHOLE] = partial(send_whole, ref(cycle))  # type: ignore[literal-required]  # as above

    def on_message_complete(self) -> None:
        self._in_body = False
        self.scope[BODY_IS_HERE] = True  # type: ignore[literal-required]  # ASGI leaves room for such keys
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if (self._in_head or self._in_body) and not self.is_under_way():
            self._expect()  # the beginning of the next request, or the rest of this one

    def is_under_way(self) -> bool:
        """Return whether a request waits for its response."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request, despite its type
        return cycle is not None and not cycle.response_complete

    def _read_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.head_s, self.transport.close)

    def _arrived(self) -> None:
        self._came = 0
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
