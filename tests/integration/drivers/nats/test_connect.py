"""Why there is no connection is known, also from servers that hang up, and no secret is part of it."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from arclog.drivers.nats.address import Login, Server
from arclog.drivers.nats.connect import Cause, NotConnected, connect, greeting

LOGIN = Login(user="u", password="canary")
INFO = b'INFO {"server_id":"x","version":"%s","max_payload":1048576,"headers":true,"auth_required":true}\r\n'
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(talk: Talk) -> AsyncIterator[Server]:
    """A server that talks so to each caller."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with listening:
        yield Server("127.0.0.1", listening.sockets[0].getsockname()[1], encrypted=False)


async def refused(server: Server, timeout_s: float = 10.0) -> NotConnected:
    with pytest.raises(NotConnected) as raised:
        await connect(server, LOGIN, trust=ssl.create_default_context, timeout_s=timeout_s, oldest=(2, 9, 0))
    assert "canary" not in str(raised.value)
    return raised.value


def server_that_sends(words: bytes, version: bytes = b"2.10.0") -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO % version)
        await reader.readline()  # CONNECT
        await reader.readline()  # PING
        writer.write(words)
        await writer.drain()

    return talk


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (b"-ERR 'Authorization Violation'\r\n", Cause.LOGIN),
        (b"-ERR 'User Authentication Expired'\r\n", Cause.LOGIN),
        (b"-ERR 'maximum connections exceeded'\r\n", Cause.FULL),
        (b"-ERR 'Secure Connection - TLS Required'\r\n", Cause.TLS),
        (b"-ERR 'something else'\r\n", Cause.REFUSED),
    ],
)
async def test_what_a_server_says_in_place_of_a_greeting(words: bytes, cause: Cause) -> None:
    async with answering(server_that_sends(words)) as server:
        assert (await refused(server)).cause is cause


async def test_a_server_that_hangs_up_is_asked_again_for_its_reason() -> None:
    calls = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            await server_that_sends(b"-ERR 'Authorization Violation'\r\n")(reader, writer)
            return
        writer.write(INFO % b"2.10.0")
        await reader.readline()
        # The connection is reset, and what was said is lost.
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    async with answering(talk) as server:
        assert (await refused(server)).cause is Cause.LOGIN
    assert calls == 3


async def test_a_server_that_always_hangs_up_is_unreachable() -> None:
    calls = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        writer.write(INFO % b"2.10.0")
        await reader.readline()

    async with answering(talk) as server:
        assert (await refused(server)).cause is Cause.UNREACHABLE
    assert calls == 3


async def test_an_old_server_will_not_do() -> None:
    async with answering(server_that_sends(b"PONG\r\n", b"2.8.4")) as server:
        problem = await refused(server)
    assert (problem.cause, str(problem)) == (Cause.VERSION, "2.8.4")


async def test_a_server_that_says_nothing_is_late() -> None:
    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async with answering(talk) as server:
        problem = await refused(server, 0.2)
    assert (problem.cause, str(problem)) == (Cause.LATE, "no connection within 0.2 s")


async def test_something_else_than_nats() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with answering(talk) as server:
        assert (await refused(server)).cause in (Cause.REFUSED, Cause.UNREACHABLE)
        with pytest.raises(ValueError, match="does not start with INFO"):
            await greeting(server)


async def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    problem = await refused(Server("127.0.0.1", port, encrypted=False))
    assert (problem.cause, str(problem)) == (Cause.UNREACHABLE, "Connection refused")


async def test_a_server_introduces_itself() -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version":"2.11.1","jetstream":true}\r\n')

    async with answering(talk) as server:
        info = await greeting(server)
    assert (info.version, info.jetstream) == ("2.11.1", True)
