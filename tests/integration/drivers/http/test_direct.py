"""Requests over kept connections: when one is used again, and what ends one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
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
    # Nothing shows that this process is there.
    assert (await get(client, web, "/a", server="p9")).server in ("p1", "p2", "p3")
    assert web.connections == 3


async def test_a_process_that_is_not_reached_costs_a_bounded_number_of_connections(web: Web) -> None:
    client = DirectClient(kept_s=60)
    web.answers("/a", b"1", headers={"Arclog-Server": "p"})
    await asyncio.gather(*(get(client, web, "/a") for _ in range(140)))
    opened = web.connections
    await get(client, web, "/a", server="gone")
    assert web.connections == opened
    client.close()


class Processes:
    """Several processes at one address. Each refuses what is for another one."""

    def __init__(self, web: Web, connections: Sequence[str], cut: str = "", *, are_refusals_named: bool = True) -> None:
        """`connections` are the processes that the connections reach, in order; those to `cut` are closed after an answer."""
        self._web = web
        #: the process of each request, and the one that it named
        self.preferences: list[str] = []
        self._has_begun, self._may_end = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        @web.route("/a")
        async def answer(received: ReceivedRequest, wire: Wire) -> None:
            process = connections[received.connection - 1]
            preferred = received.headers.get("arclog-server", "")
            self.preferences.append(f"{process}:{preferred}")
            is_refused = preferred not in ("", process)
            name = {"Arclog-Server": process} if are_refusals_named or not is_refused else {}
            await wire.answer(421 if is_refused else 200, process.encode(), name)

        @web.route("/waits")
        async def wait(received: ReceivedRequest, wire: Wire) -> None:
            loop.call_soon_threadsafe(self._has_begun.set)
            await asyncio.to_thread(self._may_end.wait, 30)
            if connections[received.connection - 1] == cut:
                wire.cut()
            else:
                await wire.answer(200, b"")

    @asynccontextmanager
    async def busy(self, client: DirectClient) -> AsyncIterator[str]:
        """Inside, a request waits at the process of the first connection, which has answered before."""
        server = (await get(client, self._web, "/a")).server
        waiting = asyncio.ensure_future(get(client, self._web, "/waits"))
        await self._has_begun.wait()
        try:
            yield server
        finally:
            self._may_end.set()
            await asyncio.wait([waiting])
            waiting.exception()


async def test_another_process_refuses_a_request_on_a_new_connection(client: DirectClient, web: Web) -> None:
    processes = Processes(web, ["a", "b", "b", "a"])
    async with processes.busy(client) as server:
        assert server == "a"
        answer = await get(client, web, "/a", server="a", body=b"{}")
        assert (answer.status, answer.body, answer.refused_by) == (200, b"a", ("b", "b"))
        # The other connections are kept, and their processes are known now.
        answer = await get(client, web, "/a", server="b", body=b"{}")
        assert (answer.body, answer.refused_by) == (b"b", ())
    assert processes.preferences == ["a:", "b:a", "b:a", "a:a", "b:"]


async def test_any_process_answers_if_the_preferred_one_is_not_reached(client: DirectClient, web: Web) -> None:
    processes = Processes(web, ["a", *"bcdefgh"])
    async with processes.busy(client):
        answer = await get(client, web, "/a", server="a")
        assert (answer.status, answer.body) == (200, b"g"), "over a connection that is open already"
        assert answer.refused_by == ("b", "c", "d", "e", "f", "g")
        assert processes.preferences[-1] == "g:"


async def test_a_process_that_is_gone_is_not_looked_for(client: DirectClient, web: Web) -> None:
    """A connection to it could be taken by its listening socket, which nobody reads until a process replaces it."""
    processes = Processes(web, ["a", "b"], cut="a")
    async with processes.busy(client):
        assert (await get(client, web, "/a")).body == b"b"
    assert (await get(client, web, "/a", server="a")).body == b"b"
    assert processes.preferences == ["a:", "b:", "b:"]


async def test_a_process_that_does_not_answer_is_not_looked_for_until_it_does(client: DirectClient, web: Web) -> None:
    """A new connection to it would be accepted by the kernel, and the request would wait there."""
    processes = Processes(web, ["a", "a", "b", "a", "c", "a"])
    async with processes.busy(client):
        with pytest.raises(NotAnswered):
            await get(client, web, "/waits", server="a", silence_s=0.2)
        assert (await get(client, web, "/a", server="a")).body == b"b"
        assert processes.preferences == ["a:", "b:"]
        # Over a fourth connection, while the third one is busy, it answers again.
        both = [asyncio.ensure_future(get(client, web, target)) for target in ("/waits", "/a")]
        assert (await both[1]).body == b"a"
        waiting = asyncio.ensure_future(get(client, web, "/waits", server="a"))
        await asyncio.sleep(0)
        answer = await get(client, web, "/a", server="a")
        assert (answer.body, answer.refused_by) == (b"a", ("c",))
    await asyncio.wait([waiting, *both])


async def test_no_process_is_looked_for_with_a_large_body(client: DirectClient, web: Web) -> None:
    """It would be sent again with each attempt."""
    processes = Processes(web, ["a", "b"])
    async with processes.busy(client):
        assert (await get(client, web, "/a", server="a", body=bytes(100_000))).body == b"b"
    assert processes.preferences == ["a:", "b:"]


async def test_a_refusal_that_lost_its_name_is_not_the_answer(client: DirectClient, web: Web) -> None:
    """A proxy may remove unknown headers from errors."""
    processes = Processes(web, ["a", *"bbbbbb"], are_refusals_named=False)
    async with processes.busy(client):
        answer = await get(client, web, "/a", server="a")
    assert (answer.status, answer.body, answer.refused_by) == (200, b"b", ())


async def test_no_process_is_preferred_behind_a_proxy_that_spreads_requests(client: DirectClient, web: Web) -> None:
    count = 0

    @web.route("/a")
    async def answer(received: ReceivedRequest, wire: Wire) -> None:
        nonlocal count
        count += 1
        await wire.answer(200, b"1", {"Arclog-Server": f"p{count % 2}"})

    for _ in range(2):  # answers of two processes on one connection
        await get(client, web, "/a")
    for _ in range(3):
        assert (await get(client, web, "/a", server="gone")).status == 200
    assert web.connections == 1


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
