"""HTTP/1.1 requests over kept connections to trusted servers, those of arclog itself.

A worker sends a small request for every report. A general client spends more time on such a request than the worker
spends on the task, and its pool examines all open requests whenever one begins or ends. This client has no cookies,
redirects, proxies or encodings: it writes a request and reads the response.

Invariants: a connection carries one request at a time. It is kept only if its response was read to the end, nothing
followed the response, and neither side wants to close it.

Several server processes may share an address. A response names the process that sent it (`Arclog-Server`), and a
request can name the process that it prefers; any process can answer it. On a new connection, whose process is not known
yet, the request names the preferred one in the same header, and another process refuses it (421).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from arclog.operations.operation import SERVER_HEADER

if TYPE_CHECKING:
    import ssl

#: How long an idle connection is kept. Servers and proxies close idle connections later than this.
KEPT_S = 3.0
#: Maximum number of idle connections to one server.
KEPT = 256
#: With so many idle connections to other processes, no connection is opened for a preferred one.
_ENOUGH = 128
#: Maximum number of connections that are opened for a request in order to reach a preferred process.
_OPENED = 6
#: Size of a body from which no preferred process is looked for: to send it again costs more than another process needs to
#: read the run.
_LARGE = 65_536
#: Maximum length of a response's head, and of a line in a chunked body.
_LONGEST_HEAD = 65_536
_END_OF_HEAD = b"\r\n\r\n"
_NO_BODY = (204, 304)
_MISDIRECTED = 421
_SERVER = SERVER_HEADER.lower()


class RequestFailed(Exception):
    """A request got no response."""


class NotConnected(RequestFailed):
    """No connection could be made; nothing was sent."""


class NotAnswered(RequestFailed):
    """The server sent nothing within the time limit."""


class BrokenOff(RequestFailed):
    """The connection was closed, or the data received is not HTTP."""


class Answer(NamedTuple):
    status: int
    #: names in lower case; the values of a repeated header are joined by commas
    headers: Mapping[str, str]
    body: bytes
    #: the processes that refused the request, which was for another one
    refused_by: tuple[str, ...] = ()

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def server(self) -> str:
        """The process that answered; '' if it has no name."""
        return self.headers.get(_SERVER, "")


class Origin(NamedTuple):
    """The server to connect to."""

    host: str
    port: int
    #: None for http
    trust: ssl.SSLContext | None = None

    @property
    def authority(self) -> str:
        """Host and port, as in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.trust else 80) else f"{host}:{self.port}"


class DirectClient:
    """An HTTP client for one event loop."""

    def __init__(self, *, kept: int = KEPT, kept_s: float = KEPT_S) -> None:
        self._kept = kept
        self._kept_s = kept_s
        #: idle connections; the most recently used one is last
        self._idle: dict[Origin, list[_Wire]] = {}
        #: connections that carry a request
        self._busy: dict[Origin, set[_Wire]] = {}
        #: those behind a proxy that spreads the requests of one connection, so that no process can be preferred
        self._spread: set[Origin] = set()
        #: processes that did not answer a request in time; they are not preferred until they answer another one
        self._silent: set[tuple[Origin, str]] = set()
        self._is_closed = False

    async def request(
        self,
        origin: Origin,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        connect_s: float,
        silence_s: float,
        server: str = "",
    ) -> Answer:
        """Send a request and read the whole response, if possible over a connection to the process `server`. A process to
        which no connection is open may be gone, and is not looked for; nor is one that did not answer in time, or for a
        large body, which would be sent again with each attempt.

        `target` is the encoded path and query. Raises NotConnected if there is no connection after `connect_s`,
        NotAnswered if no data was received or sent for `silence_s`, and BrokenOff.
        """
        opened = 0
        refused_by: list[str] = []
        while True:
            if origin in self._spread or (origin, server) in self._silent or opened >= _OPENED:
                server = ""
            sent = headers
            wire = self._idle_wire(origin, server)
            if wire is None and server and (len(body or b"") > _LARGE or not self._reaches(origin, server)):
                server = ""
                wire = self._idle_wire(origin, server)
            if wire is None:
                wire = await _connected(origin, connect_s)
                opened += 1
                if server:
                    sent = {**headers, SERVER_HEADER: server}
            busy = self._busy.setdefault(origin, set())
            busy.add(wire)
            try:
                answer = await wire.exchange(_request(origin, method, target, sent, body), silence_s)
            except NotAnswered:  # the connection is aborted
                if silent := wire.server or server:
                    self._silent.add((origin, silent))
                raise
            except BaseException:  # also on cancellation: a late response would be read as that of the next request
                wire.abort()
                raise
            finally:
                busy.discard(wire)
            if answer.server:
                if wire.server not in ("", answer.server):
                    self._spread.add(origin)
                wire.server = answer.server
                self._silent.discard((origin, answer.server))
            self._keep(origin, wire)
            if answer.status != _MISDIRECTED or sent is headers:
                return answer._replace(refused_by=tuple(refused_by)) if refused_by else answer
            if answer.server:
                refused_by.append(answer.server)

    def close(self) -> None:
        """Close idle connections. Those in use are closed when their requests end."""
        self._is_closed = True
        for wires in self._idle.values():
            for wire in wires:
                wire.close()
        self._idle.clear()

    def _reaches(self, origin: Origin, server: str) -> bool:
        """Return whether a connection to a process is open."""
        idle, busy = self._idle.get(origin, ()), self._busy.get(origin, ())
        return any(wire.server == server and wire.is_usable(self._kept_s) for wire in idle) or any(
            wire.server == server and wire.is_open for wire in busy
        )

    def _idle_wire(self, origin: Origin, server: str) -> _Wire | None:
        wires = self._idle.get(origin)
        while wires:
            wire = _chosen(wires, server)
            if wire is None:
                return None
            if wire.is_usable(self._kept_s):
                return wire
            wire.close()
        return None

    def _keep(self, origin: Origin, wire: _Wire) -> None:
        wires = self._idle.setdefault(origin, [])
        if self._is_closed or len(wires) >= self._kept or not wire.is_usable(self._kept_s):
            wire.close()
            return
        wires.append(wire)
        # The first one has been unused for longest. It is closed here because no later request might examine it.
        if not wires[0].is_usable(self._kept_s):
            wires.pop(0).close()


def _chosen(wires: list[_Wire], server: str) -> _Wire | None:
    """Remove the most recently used connection to a process and return it; the last one for any process. Without a
    connection to that process, returns None if a new one should be opened.
    """
    if not server or wires[-1].server == server:
        return wires.pop()
    for index in range(len(wires) - 2, -1, -1):
        if wires[index].server == server:
            return wires.pop(index)
    return wires.pop() if len(wires) >= _ENOUGH else None


async def _connected(origin: Origin, connect_s: float) -> _Wire:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(connect_s):
            _, wire = await loop.create_connection(lambda: _Wire(loop), origin.host, origin.port, ssl=origin.trust)
    except TimeoutError:
        raise NotConnected(f"no connection within {connect_s:g} s") from None
    except (OSError, UnicodeError) as problem:  # ssl.SSLError is an OSError
        raise NotConnected(str(problem)) from None
    return wire


def _request(origin: Origin, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", f"Host: {origin.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body is not None or method not in ("GET", "HEAD"):
        lines.append(f"Content-Length: {len(body or b'')}")
    head = "\r\n".join(lines).encode("latin-1")
    if head.count(b"\n") != len(lines) - 1 or b"\0" in head:
        raise ValueError("a request's head has a line break in it")
    return b"".join((head, _END_OF_HEAD, body or b""))


class _Wire(asyncio.Protocol):
    """A connection and the response that is being read from it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        self._received = bytearray()
        self._answer: asyncio.Future[Answer] | None = None
        self._reader: _Reader | None = None
        self._may_stay = True
        self._heard_at = 0.0
        self._unsent = 0
        #: the process that answered the last request; '' if it has no name
        self.server = ""

    # ── called by the client ──────────────────────────────────────────────────────────────────────────────────────────

    async def exchange(self, request: bytes, silence_s: float) -> Answer:
        self._answer, self._reader = self._loop.create_future(), _Reader()
        self._heard_at = self._loop.time()
        self._transport.write(request)
        self._unsent = self._transport.get_write_buffer_size()
        timer = self._loop.call_later(silence_s, self._check_silence, silence_s)
        self._timer = timer
        try:
            return await self._answer
        finally:
            self._timer.cancel()
            self._answer = None

    def is_usable(self, kept_s: float) -> bool:
        return self._may_stay and not self._received and self._loop.time() - self._heard_at < kept_s

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        self._may_stay = False
        self._transport.close()

    def abort(self) -> None:
        self._may_stay = False
        self._transport.abort()

    # ── called by the event loop ──────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._received += data
        if self._answer is None or self._reader is None or self._answer.done():
            self.abort()  # data without a request
            return
        try:
            answer = self._reader.read(self._received)
        except ValueError as problem:
            self._fail(BrokenOff(str(problem)))
            return
        if answer is not None:
            self._may_stay = self._reader.may_stay
            self._answer.set_result(answer)

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def connection_lost(self, exc: Exception | None) -> None:
        self._may_stay = False
        if self._answer is None or self._answer.done():
            return
        answer = self._reader.at_end(self._received) if self._reader is not None and exc is None else None
        if answer is not None:
            self._answer.set_result(answer)
        else:
            self._fail(BrokenOff(str(exc) if exc is not None else "the server closed the connection"))

    def _check_silence(self, silence_s: float) -> None:
        """Fail the request if no data was received or sent for `silence_s`."""
        unsent = self._transport.get_write_buffer_size()
        now = self._loop.time()
        if unsent < self._unsent:
            self._unsent, self._heard_at = unsent, now
        left_s = self._heard_at + silence_s - now
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._check_silence, silence_s)
        else:
            self._fail(NotAnswered(""))

    def _fail(self, error: RequestFailed) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.abort()


class _Reader:
    """Reads one response from the received data. Raises ValueError if the data is not HTTP/1."""

    def __init__(self) -> None:
        self._status = 0
        self._headers: dict[str, str] = {}
        #: None if the body lasts until the connection is closed
        self._length: int | None = None
        self._is_chunked = False
        #: the complete chunks
        self._chunks: list[bytes] = []
        self._is_in_trailer = False
        self.may_stay = False

    def read(self, received: bytearray) -> Answer | None:
        """Return the response if it is complete, and remove it from `received`."""
        while not self._status:
            end = received.find(_END_OF_HEAD)
            if end < 0:
                if len(received) > _LONGEST_HEAD:
                    raise ValueError(f"the head of the answer is longer than {_LONGEST_HEAD} bytes")
                return None
            self._read_head(bytes(received[:end]))
            del received[: end + len(_END_OF_HEAD)]
        if self._is_chunked:
            return self._read_chunks(received)
        if self._length is None or len(received) < self._length:
            return None
        body = bytes(received if len(received) == self._length else received[: self._length])
        del received[: self._length]
        return Answer(self._status, self._headers, body)

    def at_end(self, received: bytearray) -> Answer | None:
        """Return the response if the end of the connection completes it."""
        if not self._status or self._is_chunked or self._length is not None:
            return None
        return Answer(self._status, self._headers, bytes(received))

    def _read_head(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        number = rest[:3]
        if version not in ("HTTP/1.1", "HTTP/1.0") or not (number.isascii() and number.isdigit()) or rest[3:4].strip():
            raise ValueError("the answer is not HTTP/1.1")
        status = int(number)
        if status < 200:
            if status == 101:
                raise ValueError("the server switches to another protocol")
            return  # the response proper follows
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.partition(":")
            if not colon or not name or name != name.strip():
                raise ValueError("a header of the answer is malformed")
            key, text = name.lower(), value.strip(" \t")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._status, self._headers = status, headers
        self.may_stay = version == "HTTP/1.1" and "close" not in headers.get("connection", "").lower()
        self._find_length(status, headers)

    def _find_length(self, status: int, headers: Mapping[str, str]) -> None:
        coding, length = headers.get("transfer-encoding"), headers.get("content-length")
        if status in _NO_BODY:
            self._length = 0
        elif coding is not None:
            if coding.lower() != "chunked":
                raise ValueError(f"the answer has the unknown transfer encoding {coding[:40]!r}")
            self._is_chunked = True
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise ValueError("the answer has a malformed Content-Length")
            self._length = int(length)
        else:
            self.may_stay = False

    def _read_chunks(self, received: bytearray) -> Answer | None:
        while True:
            end = received.find(b"\r\n")
            if end < 0:
                if len(received) > _LONGEST_HEAD:
                    raise ValueError("a line of the answer's chunked body is too long")
                return None
            if self._is_in_trailer:
                del received[: end + 2]
                if end == 0:
                    return Answer(self._status, self._headers, b"".join(self._chunks))
                continue
            size = _size_of_chunk(bytes(received[:end]))
            if size == 0:
                del received[: end + 2]
                self._is_in_trailer = True
                continue
            begin, after = end + 2, end + 2 + size
            if len(received) < after + 2:
                return None
            if received[after : after + 2] != b"\r\n":
                raise ValueError("a chunk of the answer is longer than its declared size")
            self._chunks.append(bytes(received[begin:after]))
            del received[: after + 2]


def _size_of_chunk(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
        raise ValueError("a chunk of the answer has a malformed size")
    return int(digits, 16)
