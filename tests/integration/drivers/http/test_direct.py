"""Requests over kept connections: when one is used again, and what ends one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from arclog.drivers.http.direct import Answer, BrokenOff, DirectClient, NotAnswered, NotConnected, Origin
from tests.servers.web import ReceivedRequest, Web, Wire

_BIG = bytes(range(256)) * 40_000


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as web:
        yield web


@pytest.fixture
async def client() -> AsyncIterator[DirectClient]:
    made = DirectClient(kept_s=60)
    yield made
    made.close()


async def get(client: DirectClient, web: Web, target: str, *, silence_s: float = 30, **more: Any) -> Answer:
    origin = Origin(web.host, web.port)
    method = "GET" if more.get("body") is None else "POST"
    return await client.request(origin, method, target, headers={}, connect_s=30, silence_s=silence_s, **more)


async def test_requests_in_turn_share_a_connection(client: DirectClient, web: Web) -> None:
    web.answers("/a", b"1")
    web.answers("/b", status=404, json={"title": "NotFound"})
    assert (await get(client, web, "/a?x=1")).body == b"1"
    assert (await get(client, web, "/b")).status == 404
    assert (await get(client, web, "/a", body=_BIG)).body == b"1"
    assert [request.connection for request in web.requests] == [1, 1, 1]
    assert web.requests[-1].body == _BIG


async def test_requests_at_the_same_time_have_connections_of_their_own(client: DirectClient, web: Web) -> None:
    web.answers("/a", _BIG)
    answers = await asyncio.gather(*(get(client, web, "/a") for _ in range(20)))
    assert all(answer.body == _BIG for answer in answers)
    assert len({request.connection for request in web.requests}) == 20
    await asyncio.gather(*(get(client, web, "/a") for _ in range(20)))
    assert web.connections == 20


async def test_more_idle_connections_than_are_kept_are_closed(web: Web) -> None:
    client = DirectClient(kept=2)
    web.answers("/a", b"1")
    await asyncio.gather(*(get(client, web, "/a") for _ in range(5)))
    await asyncio.gather(*(get(client, web, "/a") for _ in range(5)))
    assert web.connections == 5 + 3
    client.close()


async def test_a_request_prefers_a_connection_to_its_process(client: DirectClient, web: Web) -> None:
    @web.route("/a")
    async def answer(received: ReceivedRequest, wire: Wire) -> None:
        await wire.answer(200, b"1", {"Arclog-Server": f"p{received.connection}"})

    answers = await asyncio.gather(*(get(client, web, "/a") for _ in range(3)))
    assert sorted(answer.server for answer in answers) == ["p1", "p2", "p3"]
    for server in ("p1", "p3", "p2", "p2", "p1"):
        assert (await get(client, web, "/a", server=server)).server == server
    assert web.connections == 3
    # Without a connection to the process, a new one may reach it.
    assert (await get(client, web, "/a", server="p9")).server == "p4"


async def test_a_process_that_is_not_reached_costs_a_bounded_number_of_connections(web: Web) -> None:
    client = DirectClient(kept_s=60)
    web.answers("/a", b"1", headers={"Arclog-Server": "p"})
    await asyncio.gather(*(get(client, web, "/a") for _ in range(70)))
    opened = web.connections
    await get(client, web, "/a", server="gone")
    assert web.connections == opened
    client.close()


async def test_a_connection_that_was_idle_for_too_long_is_not_used(web: Web) -> None:
    client = DirectClient(kept_s=0.0)
    web.answers("/a", b"1")
    for _ in range(3):
        await get(client, web, "/a")
    assert web.connections == 3
    client.close()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_connection_that_the_server_closed_is_not_used(client: DirectClient, web: Web, reset: bool) -> None:
    closed = asyncio.Event()
    loop = asyncio.get_running_loop()

    @web.route("/a")
    async def answer(received: ReceivedRequest, wire: Wire) -> None:
        await wire.answer(200, b"1")
        if received.connection == 1:
            wire.cut(reset=reset)
            loop.call_soon_threadsafe(closed.set)

    await get(client, web, "/a")
    await closed.wait()
    (wire,) = next(iter(client._idle.values()))
    while wire.is_usable(30):  # noqa: ASYNC110 - a transport has no event for its end
        await asyncio.sleep(0)
    assert (await get(client, web, "/a")).body == b"1"
    assert web.requests[-1].connection == 2


async def test_what_comes_behind_an_answer_is_never_the_next_one(client: DirectClient, web: Web) -> None:
    @web.route("/a")
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\n1HTTP/1.1 200 X\r\nContent-Length: 4\r\n\r\nevil")

    for number in (1, 2, 3):
        assert (await get(client, web, "/a")).body == b"1"
        assert web.requests[-1].connection == number


async def test_a_request_that_is_given_up_takes_its_connection_along(client: DirectClient, web: Web) -> None:
    web.stalls("/stall")
    web.answers("/a", b"1")
    given_up = asyncio.ensure_future(get(client, web, "/stall"))
    await asyncio.to_thread(web.reached.wait, 30)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert await asyncio.to_thread(web.left.wait, 30)
    assert (await get(client, web, "/a")).body == b"1"


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_silence_ends_a_request(client: DirectClient, web: Web, first: bytes) -> None:
    web.stalls("/stall", first)
    with pytest.raises(NotAnswered):
        await get(client, web, "/stall", silence_s=0.05)
    assert await asyncio.to_thread(web.left.wait, 30)


async def test_an_answer_that_keeps_coming_is_waited_for(client: DirectClient, web: Web) -> None:
    """The limit is on silence, not on the whole answer."""
    pieces = 12

    @web.route("/slow")
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        await wire.head(200, {"Content-Length": str(pieces)})
        for _piece in range(pieces):
            await asyncio.sleep(0.05)
            await wire.raw(b"x")

    assert (await get(client, web, "/slow", silence_s=0.5)).body == b"x" * pieces


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_an_answer_that_breaks_off_is_an_error(client: DirectClient, web: Web, first: bytes, reset: bool) -> None:
    @web.route("/a")
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(first)
        wire.cut(reset=reset)

    with pytest.raises(BrokenOff):
        await get(client, web, "/a")


async def test_an_answer_may_end_with_its_connection(client: DirectClient, web: Web) -> None:
    @web.route("/a")
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(b"HTTP/1.1 200 X\r\n\r\n")
        await wire.raw(_BIG)
        wire.cut()

    assert (await get(client, web, "/a")).body == _BIG


async def test_no_connection_is_an_error_of_its_own(client: DirectClient) -> None:
    with pytest.raises(NotConnected):
        await client.request(Origin("127.0.0.1", 1), "GET", "/", headers={}, connect_s=30, silence_s=30)
    with pytest.raises(NotConnected):
        await client.request(Origin("no-such-host.invalid", 80), "GET", "/", headers={}, connect_s=30, silence_s=30)


async def test_a_closed_client_keeps_no_connection(web: Web) -> None:
    client = DirectClient()
    web.answers("/a", b"1")
    await get(client, web, "/a")
    client.close()
    await get(client, web, "/a")
    assert client._idle == {Origin(web.host, web.port): []}
    assert web.connections == 2
