"""A forwarding proxy on loopback, for libraries with an HTTP client of their own. It checks each address to which such
a client connects, also after a redirect.

Invariants: a connection goes only to an address that the guard of its route permits. A client without the token of a
route is refused, because other programs of this machine can reach loopback, too. The proxy runs in its own thread and
event loop, so that a large object does not delay a worker's loop.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
import socket
import threading
import time
from typing import cast
from urllib.parse import urlsplit

from arclog.drivers.failure import Failure
from arclog.drivers.http.guard import Guard
from arclog.model.outcome import TaskError, error

_MOST_HEAD_BYTES = 64 * 1024
_HEAD_END = b"\r\n\r\n"
#: Headers for the proxy itself, and the one that is replaced.
_OWN_HEADERS = (b"proxy-authorization:", b"proxy-connection:", b"connection:")


class Route:
    """The permissions of one client, and the error of its last connection."""

    def __init__(self, guard: Guard, connect_timeout_s: float, most_unread: int = 0) -> None:
        self.guard = guard
        self._most_unread = most_unread
        self._received = 0
        self._read = 0
        self.connect_timeout_s = connect_timeout_s
        self.token = secrets.token_hex(16)
        #: why the last connection failed; None if it succeeded
        self.problem: TaskError | None = None

    def begin(self) -> None:
        """Count from zero."""
        self._received = self._read = 0

    def read(self, size: int) -> None:
        """Record that the client's user has read this many bytes of what arrived."""
        self._read += size

    def takes(self, size: int) -> bool:
        """Count bytes that arrived. Return whether the client may have them; it keeps what its user has not read."""
        self._received += size
        if not self._most_unread or self._received - self._read <= self._most_unread:
            return True
        message = f"the server sent more than {self._most_unread} bytes that are not content"
        self.problem = error("limit", message, code="RESPONSE_TOO_LARGE")
        return False

    def take_problem(self) -> TaskError | None:
        """Return the error and clear it."""
        problem, self.problem = self.problem, None
        return problem


class Forwarder:
    """Listens on a free port of loopback, starting with its first route."""

    def __init__(self) -> None:
        self._routes: dict[bytes, Route] = {}
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        #: both ends of all connections; used in the thread only
        self.sides: set[_Side] = set()

    def open_route(self, guard: Guard, connect_timeout_s: float, most_unread: int = 0) -> Route:
        """Add a route; `address` returns its URL for the client. `most_unread` bounds what may arrive of which `Route.read`
        does not know; 0 for no limit.
        """
        route = Route(guard, connect_timeout_s, most_unread)
        with self._lock:
            if self._thread is None:
                self._start()
            self._routes[_authorization(route)] = route
        return route

    def address(self, route: Route) -> str:
        """Return the proxy URL of a route. It contains the token."""
        return f"http://arclog:{route.token}@127.0.0.1:{self._port}"

    def close_route(self, route: Route) -> None:
        """Refuse new connections on a route; open ones continue."""
        self._routes.pop(_authorization(route), None)

    def route_of(self, authorization: bytes) -> Route | None:
        return self._routes.get(authorization)

    def _start(self) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port = listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, listening), name="arclog-forwarder", daemon=True
        )
        self._thread.start()

    def _run(self, loop: asyncio.AbstractEventLoop, listening: socket.socket) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(loop.create_server(lambda: _Client(self), sock=listening))
            loop.run_forever()
            loop.run_until_complete(self._end())
        finally:
            listening.close()
            loop.close()

    async def _end(self) -> None:
        opening = asyncio.all_tasks() - {asyncio.current_task()}
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for side in self.sides:
            side.transport.abort()
        await asyncio.sleep(0)  # sockets are closed in the next iteration of the loop
        await asyncio.get_running_loop().shutdown_default_executor()

    def close(self) -> None:
        """Stop the thread and close all connections."""
        with self._lock:
            self._routes.clear()
            thread, loop, self._thread, self._loop = self._thread, self._loop, None, None
        if thread is not None and loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


class _Side(asyncio.Protocol):
    """One end of a connection. It sends to its peer what it receives."""

    transport: asyncio.Transport

    def __init__(self, forwarder: Forwarder) -> None:
        self.forwarder = forwarder
        self.peer: _Side | None = None
        #: of the end at a server
        self.route: Route | None = None
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.forwarder.sides.add(self)

    def data_received(self, data: bytes) -> None:
        if self.peer is None:
            return
        if self.route is not None and not self.route.takes(len(data)):
            self.transport.abort()
            self.peer.transport.abort()
            return
        self.peer.transport.write(data)

    def pause_writing(self) -> None:
        if self.peer is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None:
            self.peer.transport.resume_reading()

    def eof_received(self) -> bool:
        self.ended = True
        peer = self.peer
        if peer is None or peer.ended:
            return False
        if not peer.transport.is_closing():
            peer.transport.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.forwarder.sides.discard(self)
        if self.peer is not None:
            if exc is None:
                self.peer.transport.close()
            else:
                self.peer.transport.abort()


class _Client(_Side):
    """The end at the library. The first lines that it receives name the destination."""

    def __init__(self, forwarder: Forwarder) -> None:
        super().__init__(forwarder)
        self._head = bytearray()
        self._opening: asyncio.Task[None] | None = None

    def data_received(self, data: bytes) -> None:
        if self.peer is not None:
            self.peer.transport.write(data)
            return
        self._head += data
        end = self._head.find(_HEAD_END)
        if end < 0:
            if len(self._head) > _MOST_HEAD_BYTES:
                self.transport.abort()
            return
        if self._opening is None:
            self.transport.pause_reading()
            self._opening = asyncio.ensure_future(self._open(end + len(_HEAD_END)))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._opening is not None and self.peer is None:
            self._opening.cancel()
        super().connection_lost(exc)

    async def _open(self, end: int) -> None:
        """Connect to the destination in the head, or close. The client treats a close as a failed connection."""
        head = bytes(self._head[:end])
        request, *lines = head[: -len(_HEAD_END)].split(b"\r\n")
        route = next(
            (self.forwarder.route_of(line.partition(b":")[2].strip())
             for line in lines if line.lower().startswith(_OWN_HEADERS[0])), None
        )  # fmt: skip
        place = _destination(request)
        if route is None:
            # This includes a redirect to another host over http: clients send a proxy's credentials only with the first
            # request.
            self.transport.write(b"HTTP/1.1 407 X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        if route is None or place is None:
            self.transport.close()
            return
        host, port, path = place
        try:
            other = await _connected(self.forwarder, route, host, port)
        except Failure as failure:
            route.problem = failure.problem
            self.transport.close()
            return
        route.problem = None
        self.peer, other.peer = other, self
        other.route = route
        if path is None:
            self.transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            method, _, version = request.split(b" ")
            kept = [line for line in lines if not line.lower().startswith(_OWN_HEADERS)]
            # One request per connection, since the next one may have another destination.
            rewritten = [b" ".join((method, path, version)), *kept, b"connection: close"]
            other.transport.write(b"\r\n".join(rewritten) + _HEAD_END)
        behind = bytes(self._head[end:])
        self._head.clear()
        if behind:
            other.transport.write(behind)
        self.transport.resume_reading()


async def _connected(forwarder: Forwarder, route: Route, host: str, port: int) -> _Side:
    """Connect to one of the addresses that the guard permits. Raises Failure."""
    loop = asyncio.get_running_loop()
    until = time.monotonic() + route.connect_timeout_s
    late = error("timeout", f"no connection to {host} within {route.connect_timeout_s:g} s")
    try:
        async with asyncio.timeout(route.connect_timeout_s):
            addresses = await route.guard.addresses(host, port)
    except TimeoutError:
        raise Failure(late) from None
    problem = late
    for count in range(len(addresses), 0, -1):
        try:
            # Leave time for the remaining addresses if this one does not respond.
            async with asyncio.timeout(max(0.001, until - time.monotonic()) / count):
                _, side = await loop.create_connection(lambda: _Side(forwarder), addresses[-count], port)
                return side
        except TimeoutError:
            problem = late
        except OSError as trouble:
            problem = error("connection", f"no connection to {host}: {trouble.strerror or type(trouble).__name__}")
    raise Failure(problem)


def _destination(request: bytes) -> tuple[str, int, bytes | None] | None:
    """Return host, port and path of a request line (no path for a tunnel), or None if it is invalid."""
    try:
        method, target, _ = request.decode("ascii").split(" ")
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if tunnel else target)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not host or (not tunnel and parts.scheme != "http"):
        return None
    if tunnel:
        return (host, port, None) if port else None
    query = f"?{parts.query}" if parts.query else ""
    return host, port or 80, f"{parts.path or '/'}{query}".encode("ascii")


def _authorization(route: Route) -> bytes:
    return b"Basic " + base64.b64encode(f"arclog:{route.token}".encode())
