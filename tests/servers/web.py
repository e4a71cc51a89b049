"""A web server for tests that does exactly what it is told, also what no server should.

    with Web() as web:
        web.answers("/ok", json={"a": 1})
        web.route("/stall")(stall)
        ... web.url("/ok") ... web.requests

It runs in a thread of its own, so that it serves this process and others alike. With a certificate it speaks TLS, and
HTTP/2 when it is asked to.
"""

from __future__ import annotations

import asyncio
import json as json_text
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.servers.certs import Certificate

_PATIENCE_S = 30
Headers = Mapping[str, str] | Iterable[tuple[str, str]]


@dataclass
class ReceivedRequest:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    protocol: str
    #: number of the connection that it came by, from 1
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)


class Wire:
    """What a route answers with, over HTTP/1.1."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.keep = True

    async def answer(self, status: int = 200, body: bytes = b"", headers: Headers = ()) -> None:
        """A whole, honest answer."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        if "content-length" not in {name.lower() for name, _ in pairs}:
            pairs.append(("Content-Length", str(len(body))))
        await self.head(status, pairs)
        await self.raw(body)

    async def head(self, status: int, headers: Headers = ()) -> None:
        lines = [f"HTTP/1.1 {status} X"]
        lines += [f"{name}: {value}" for name, value in (headers.items() if isinstance(headers, Mapping) else headers)]
        await self.raw("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def gone(self) -> None:
        """Wait until the client closes the connection."""
        while await self._reader.read(65536):
            pass

    def cut(self, *, reset: bool = False) -> None:
        """Close the connection here."""
        self.keep = False
        if reset:
            self._writer.transport.abort()
        else:
            self._writer.close()


class H2Wire:
    """What a route answers with, over HTTP/2."""

    def __init__(self, talk: _H2Talk, stream: int) -> None:
        self._talk = talk
        self._stream = stream
        #: set when the client gave this one request up
        self.dropped = asyncio.Event()

    async def answer(self, status: int = 200, body: bytes = b"", headers: Headers = ()) -> None:
        """A whole, honest answer, as fast as the client takes it."""
        await self.head(status, headers)
        self._talk.add(self._stream, body, end=True)

    async def head(self, status: int, headers: Headers = ()) -> None:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        fields = [(":status", str(status)), *((name.lower(), value) for name, value in pairs)]
        self._talk.state.send_headers(self._stream, fields)
        self._talk.send()

    async def raw(self, data: bytes, *, end: bool = False) -> None:
        """A piece of the body."""
        self._talk.add(self._stream, data, end=end)

    def reset(self) -> None:
        """Break this one answer off."""
        self._talk.state.reset_stream(self._stream)
        self._talk.send()

    def cut(self) -> None:
        self._talk.writer.transport.abort()


class _H2Talk:
    """One HTTP/2 connection: what is still to be sent waits for the client's window."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        from h2.config import H2Configuration
        from h2.connection import H2Connection

        self.writer = writer
        self.state = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.state.initiate_connection()
        self._pending: dict[int, tuple[bytes, bool]] = {}
        self.send()

    def send(self) -> None:
        self.writer.write(self.state.data_to_send())

    def add(self, stream: int, data: bytes, *, end: bool) -> None:
        self._pending[stream] = (self._pending.pop(stream, (b"", False))[0] + data, end)
        self.pump()

    def forget(self, stream: int) -> None:
        self._pending.pop(stream, None)

    def pump(self) -> None:
        """Send what the windows let through."""
        for stream, (data, end) in [*self._pending.items()]:
            at = 0
            while at < len(data):
                room = min(self.state.local_flow_control_window(stream), self.state.max_outbound_frame_size)
                if room <= 0:
                    break
                self.state.send_data(stream, data[at : at + room])
                at += room
            if at < len(data):
                self._pending[stream] = (data[at:], end)
                continue
            del self._pending[stream]
            if end:
                self.state.end_stream(stream)
        self.send()


Route = Callable[[ReceivedRequest, Any], Awaitable[None]]


@dataclass
class Web:
    """The server; a context manager."""

    certificate: Certificate | None = None
    http2: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._problem: BaseException | None = None
        #: set when the first request has come
        self.reached = threading.Event()
        #: set when a route that waited for it saw the client go
        self.left = threading.Event()

    def url(self, path: str = "/", host: str = "") -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://{host or self.host}:{self.port}{path}"

    def route(self, path: str) -> Callable[[Route], Route]:
        """Serve a path (without its query) by this function."""

        def take(function: Route) -> Route:
            self._routes[path] = function
            return function

        return take

    def answers(
        self, path: str, body: bytes = b"", *, status: int = 200, headers: Headers = (), json: Any = None, kind: str = ""
    ) -> None:  # fmt: skip
        """Serve a path by an answer that is always the same."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
        if json is not None:
            body, kind = json_text.dumps(json).encode(), kind or "application/json"
        if kind:
            pairs.append(("Content-Type", kind))

        @self.route(path)
        async def answer(_: ReceivedRequest, wire: Any) -> None:
            await wire.answer(status, body, pairs)

    def stalls(self, path: str, first: bytes = b"") -> None:
        """Say these bytes, then nothing more until the client leaves."""

        @self.route(path)
        async def stall(_: ReceivedRequest, wire: Wire) -> None:
            with suppress(ConnectionError):
                await wire.raw(first)
                await wire.gone()
            self.left.set()
            wire.cut()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_PATIENCE_S), "the server did not start"
        if self._problem:
            raise self._problem
        return self

    def __exit__(self, *_: object) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE_S)
        assert not self._thread.is_alive(), "the server did not stop"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as problem:
            self._problem = problem
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.ensure_future(serve(reader, writer, self.connections))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            # Not in the task itself: one that is cancelled before its first step runs no `finally`.
            task.add_done_callback(lambda _: writer.transport.abort())

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._talk(reader, writer, number)

        server = await asyncio.start_server(connected, self.host, self.port, ssl=self._tls(), backlog=512)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        # asyncio closes no connection that it has accepted and not yet handed over when its server is closed: those first.
        self._loop.remove_reader(server.sockets[0].fileno())
        for _ in range(3):
            await asyncio.sleep(0)
        server.close()
        for task in [*tasks]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tls(self) -> ssl.SSLContext | None:
        if self.certificate is None:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate.chain, self.certificate.key)
        context.set_alpn_protocols(["h2", "http/1.1"] if self.http2 else ["http/1.1"])
        return context

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        tls = writer.get_extra_info("ssl_object")
        if tls is not None and tls.selected_alpn_protocol() == "h2":
            await self._talk_h2(reader, writer, number)
            return
        wire = Wire(reader, writer)
        while wire.keep:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            except asyncio.IncompleteReadError:
                return
            line, *lines = head.rstrip("\r\n").split("\r\n")
            method, target, protocol = line.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self._body(reader, headers)
            await self._route(ReceivedRequest(method, target, headers, body, protocol, number), wire)

    @staticmethod
    async def _body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await reader.readline()).strip(), 16):
                body += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
            return body
        return await reader.readexactly(int(headers.get("content-length", 0)))

    async def _route(self, request: ReceivedRequest, wire: Any) -> None:
        self.requests.append(request)
        self.reached.set()
        route = self._routes.get(request.path)
        if route is None:
            await wire.answer(404, b"no such page", {"Content-Type": "text/plain"})
        else:
            await route(request, wire)

    async def _talk_h2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset

        talk = _H2Talk(writer)
        heads: dict[int, dict[str, str]] = {}
        bodies: dict[int, bytearray] = {}
        wires: dict[int, H2Wire] = {}
        routes: set[asyncio.Task[None]] = set()
        try:
            while data := await reader.read(65536):
                for event in talk.state.receive_data(data):
                    if isinstance(event, RequestReceived):
                        heads[event.stream_id] = {str(name): str(value) for name, value in event.headers}
                        bodies[event.stream_id] = bytearray()
                    elif isinstance(event, DataReceived):
                        bodies[event.stream_id] += event.data
                        talk.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    elif isinstance(event, StreamReset):
                        talk.forget(event.stream_id)
                        wires[event.stream_id].dropped.set()
                    elif isinstance(event, StreamEnded):
                        stream = event.stream_id
                        head = heads[stream]
                        body = bytes(bodies[stream])
                        request = ReceivedRequest(head[":method"], head[":path"], head, body, "HTTP/2", number)
                        wires[stream] = H2Wire(talk, stream)
                        routes.add(asyncio.ensure_future(self._route(request, wires[stream])))
                talk.pump()
                await writer.drain()
        finally:
            for route in routes:
                route.cancel()
            await asyncio.gather(*routes, return_exceptions=True)
