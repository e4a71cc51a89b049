"""The forwarder: what goes through it arrives whole, and nobody gets anywhere that the guard does not know of."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from arclog.drivers.http.forward import Forwarder, Route
from arclog.drivers.http.guard import Guard
from tests.servers.certs import certificate
from tests.servers.web import Web, Wire

_BIG = bytes(range(256)) * 40_000


@pytest.fixture
def forwarder() -> Iterator[Forwarder]:
    made = Forwarder()
    yield made
    made.close()


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        yield web


def login(route: Route) -> str:
    return "Basic " + base64.b64encode(f"arclog:{route.token}".encode()).decode()


@asynccontextmanager
async def connected(
    forwarder: Forwarder, route: Route
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(forwarder.address(route).rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def exchanged(forwarder: Forwarder, route: Route, *lines: str, body: bytes = b"", length: int = -1) -> bytes:
    """The answer to a request, or what of this length it ends with; b'' when the connection was closed."""
    async with connected(forwarder, route) as (reader, writer):
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        try:
            async with asyncio.timeout(30):
                if length < 0:
                    return await reader.read()
                return await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(length)
        except ConnectionError:
            return b""


async def test_a_request_arrives_as_if_it_had_come_straight(forwarder: Forwarder, web: Web) -> None:
    web.answers("/b/k%20x", body=_BIG)
    route = forwarder.open_route(Guard("loopback"), 5)
    where = web.url("/b/k%20x?list-type=2")
    head = (f"PUT {where} HTTP/1.1", f"Host: 127.0.0.1:{web.port}", f"Proxy-Authorization: {login(route)}")
    answer = await exchanged(
        forwarder, route, *head, "X-Mine: 1", f"Content-Length: {len(_BIG)}", body=_BIG, length=len(_BIG)
    )
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(_BIG)
    (request,) = web.requests
    assert (request.method, request.target, request.body) == ("PUT", "/b/k%20x?list-type=2", _BIG)
    assert (request.headers["x-mine"], request.headers["connection"]) == ("1", "close")
    assert "proxy-authorization" not in request.headers


async def test_a_tunnel_carries_both_ways_at_once(forwarder: Forwarder) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        route = forwarder.open_route(Guard("loopback"), 5)
        async with connected(forwarder, route) as (reader, writer):
            writer.write(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\nproxy-authorization: {login(route)}\r\n\r\n".encode())
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\n\r\n"

            async def send() -> None:
                for _ in range(3):
                    writer.write(_BIG)
                    await writer.drain()
                writer.write_eof()

            sending = asyncio.ensure_future(send())
            back = await reader.read()
            await sending
    assert hashlib.sha256(back).digest() == hashlib.sha256(_BIG * 3).digest()


async def test_nobody_gets_through_without_a_token(forwarder: Forwarder, web: Web) -> None:
    web.answers("/x")
    route = forwarder.open_route(Guard("loopback"), 5)
    get = f"GET {web.url('/x')} HTTP/1.1"
    heads = [
        [get, "Host: x"],
        [get, "Proxy-Authorization: Basic YXJjbG9nOng="],
        [f"CONNECT 127.0.0.1:{web.port} HTTP/1.1"],
    ]
    for head in heads:
        assert (await exchanged(forwarder, route, *head)).startswith(b"HTTP/1.1 407 ")
    forwarder.close_route(route)
    assert (await exchanged(forwarder, route, get, f"Proxy-Authorization: {login(route)}")).startswith(b"HTTP/1.1 407 ")
    assert web.requests == []


@pytest.mark.parametrize(
    "to", ["127.0.0.1:{port}", "localhost:{port}", "[::ffff:127.0.0.1]:{port}", "169.254.169.254:80"]
)
@pytest.mark.parametrize("line", ["CONNECT {to} HTTP/1.1", "GET http://{to}/x HTTP/1.1"])
async def test_the_guard_decides(forwarder: Forwarder, web: Web, to: str, line: str) -> None:
    web.answers("/x")
    route = forwarder.open_route(Guard("none", setting="object.allow_networks"), 5)
    line = line.format(to=to.format(port=web.port))
    assert await exchanged(forwarder, route, line, f"Proxy-Authorization: {login(route)}") == b""
    assert web.requests == []
    problem = route.take_problem()
    assert problem is not None
    assert problem.code == "ADDRESS_REFUSED"
    assert "object.allow_networks" in problem.message
    assert route.take_problem() is None


@pytest.mark.parametrize(
    "line", ["GET /x HTTP/1.1", "GET https://127.0.0.1/ HTTP/1.1", "GET ftp://127.0.0.1/ HTTP/1.1", "CONNECT x HTTP/1.1",
             "CONNECT [::1 HTTP/1.1", "x", "CONNECT 127.0.0.1:99999 HTTP/1.1"]
)  # fmt: skip
async def test_requests_that_name_no_place(forwarder: Forwarder, line: str) -> None:
    route = forwarder.open_route(Guard("loopback"), 5)
    assert await exchanged(forwarder, route, line, f"Proxy-Authorization: {login(route)}") == b""


async def test_a_head_without_end_is_cut_off(forwarder: Forwarder) -> None:
    route = forwarder.open_route(Guard("loopback"), 5)
    assert await exchanged(forwarder, route, "GET http://x/ HTTP/1.1", "A: " + "x" * 200_000) == b""


async def test_what_is_open_ends_with_the_forwarder(web: Web) -> None:
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()

    @web.route("/stall")
    async def stall(_: object, wire: Wire) -> None:
        loop.call_soon_threadsafe(gone.set)
        await wire.gone()

    forwarder = Forwarder()
    route = forwarder.open_route(Guard("loopback"), 5)
    get = (f"GET {web.url('/stall')} HTTP/1.1", f"Host: 127.0.0.1:{web.port}", f"Proxy-Authorization: {login(route)}")
    waiting = asyncio.ensure_future(exchanged(forwarder, route, *get))
    await gone.wait()
    await asyncio.to_thread(forwarder.close)
    assert await waiting == b""
    forwarder.close()


async def test_a_library_that_follows_redirects_is_checked_on_each(forwarder: Forwarder, tmp_path: Path) -> None:
    """Over TLS, every connection of the client is a tunnel that the forwarder makes, or does not."""
    import obstore
    from obstore.store import S3Store

    signed = certificate(tmp_path, "127.0.0.1", "127.0.0.2")
    with Web(signed) as web, Web(signed, host="127.0.0.2") as other:
        web.answers("/b/k", status=307, headers={"Location": other.url("/b/k")})
        dates = {"ETag": '"x"', "Last-Modified": "Tue, 15 Nov 1994 12:45:26 GMT"}
        other.answers("/b/k", b"found", headers=dates)

        def store(route: Route) -> S3Store:
            options: Any = {"proxy_url": forwarder.address(route), "root_certificate": signed.authority.read_bytes()}
            return S3Store(
                "b", endpoint=web.url(), region="x", skip_signature=True, client_options=options,
                retry_config={"max_retries": 0},
            )  # fmt: skip

        both, first = (forwarder.open_route(Guard(allowed), 5) for allowed in ("loopback", "127.0.0.1"))
        content = await obstore.get_async(store(both), "k")
        assert bytes(await content.bytes_async()) == b"found"
        with pytest.raises(obstore.exceptions.BaseError):
            await obstore.get_async(store(first), "k")
        assert (len(web.requests), len(other.requests)) == (2, 1)
        problem = first.take_problem()
        assert problem is not None
        assert "127.0.0.2 is loopback" in problem.message
