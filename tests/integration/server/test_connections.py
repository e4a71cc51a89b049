"""Whoever never finishes asking is left, and holds up nobody."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from arclog.engine.views.api import EngineApi
from arclog.server.connections import Connections, send_whole
from tests.servers.arclog import RunningServer, running

PATIENCE_S = 60


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[RunningServer]:
    settings: dict[str, Any] = {
        "server.head_timeout_s": 0.3,
        "server.idle_timeout_s": 5,
        "server.max_head_bytes": 4096,
        "server.body_timeout_s": 0.3,
    }
    async with running(tmp_path, worker=False, **settings) as server:
        yield server


async def opened(server: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = server.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def answer(reader: asyncio.StreamReader) -> bytes:
    """All that the server says before it ends the connection."""
    async with asyncio.timeout(PATIENCE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b"reset"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"G",
        b"GET /health HTTP/1.1\r\nHost: x",
        b"\r\n\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /he",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n\r\n",
        # answered at once, and the body never comes
        b"POST /api/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nx",
    ],
)
async def test_a_head_that_never_ends_ends_the_connection(strict: RunningServer, sent: bytes) -> None:
    reader, writer = await opened(strict)
    writer.write(sent)
    response = await answer(reader)
    writer.close()
    assert response.count(b"HTTP/1.1 ") == sent.count(b"\r\n\r\n") if sent.strip() else response == b""


async def test_a_head_has_a_size(strict: RunningServer) -> None:
    for piece in (b"X-%d: %s\r\n", b"X%d%s"):  # many headers, or one name without end
        reader, writer = await opened(strict)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        for number in range(200):
            writer.write(piece % (number, b"a" * 100))
        response = await answer(reader)
        writer.close()
        assert response[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"reset"), response
        assert b" 200 " not in response


async def test_a_head_that_comes_at_once_has_the_same_size(strict: RunningServer) -> None:
    for head in (b"X-A: %s\r\n" % (b"a" * 5000), b"X-A: %s\r\n" % (b"a" * 50) * 100):
        reader, writer = await opened(strict)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + head + b"\r\n")
        response = await answer(reader)
        writer.close()
        assert response.startswith(b"HTTP/1.1 431 "), response
    reader, writer = await opened(strict)
    writer.write(b"GET /health?%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (b"a" * 5000))
    assert (await answer(reader)).startswith(b"HTTP/1.1 431 ")
    writer.close()


async def test_heads_of_one_connection_are_measured_one_by_one(strict: RunningServer) -> None:
    reader, writer = await opened(strict)
    writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: %s\r\n\r\n" % (b"a" * 3000) * 3)
    response = await answer(reader)
    writer.close()
    assert response.count(b"HTTP/1.1 200 ") == 3


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /he",
        b"POST /api/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\nx",
    ],
)
async def test_a_request_that_has_begun_has_less_time_than_an_idle_connection(tmp_path: Path, sent: bytes) -> None:
    settings: dict[str, Any] = {"server.head_timeout_s": 0.3, "server.idle_timeout_s": 1000}
    async with running(tmp_path, worker=False, **settings) as server:
        reader, writer = await opened(server)
        writer.write(sent)
        assert (await answer(reader)).count(b"HTTP/1.1 ") == 1
        writer.close()


async def test_an_idle_connection_is_closed_after_the_time_of_the_setting(tmp_path: Path) -> None:
    async with running(tmp_path, worker=False, **{"server.idle_timeout_s": 0.2}) as server:
        reader, writer = await opened(server)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with asyncio.timeout(4):  # uvicorn's own limit is 5 s
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()


async def test_three_hundred_who_dawdle_hold_up_nobody(strict: RunningServer) -> None:
    dawdling = [await opened(strict) for _ in range(300)]
    for _, writer in dawdling:
        writer.write(b"POST /api/executions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow")
    async with strict.client() as client:
        assert (await client.get("/api/executions")).status_code == 200
        # Closed on them, without a word; one whose last byte crossed that is reset.
        assert {*await asyncio.gather(*(answer(reader) for reader, _ in dawdling))} <= {b"", b"reset"}
        assert (await client.get("/health")).status_code == 200
    for _, writer in dawdling:
        writer.close()


async def test_an_upload_that_stands_still_is_left(strict: RunningServer) -> None:
    reader, writer = await opened(strict)
    sha256 = "0" * 64
    head = f"POST /api/worker/results?tenant=default&sha256={sha256} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
    writer.write(head.encode() + b"x")
    async with asyncio.timeout(PATIENCE_S):
        assert b" 408 " in await reader.readline()
    writer.close()


async def test_a_body_that_is_too_large_is_refused_after_it_was_sent(tmp_path: Path) -> None:
    """The rest of the body is not a head."""
    settings: dict[str, Any] = {"server.max_head_bytes": 4096}
    async with running(tmp_path, worker=False, **settings) as server, server.client() as client:
        refused = await client.post("/api/executions", content=b" " * (9 << 20))
        assert refused.status_code == 413
        assert (await client.get("/health")).status_code == 200


async def test_a_body_that_goes_on_after_its_answer_is_read_without_haste(tmp_path: Path) -> None:
    """Its connection is as good as before."""
    size = 40 << 20
    async with running(tmp_path, worker=False) as server, asyncio.timeout(PATIENCE_S):
        reader, writer = await opened(server)
        writer.write(b"POST /api/nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % size)
        assert b" 404 " in await reader.readline()
        began = asyncio.get_running_loop().time()
        writer.write(bytes(size))
        await writer.drain()
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        while b"HTTP/1.1 " not in (line := await reader.readline()):
            assert line
        assert b" 200 " in line
        assert asyncio.get_running_loop().time() - began > 0.3
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"POST /api/executions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"POST /api/executions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"POST /api/executions HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked, x\r\n\r\n{}",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: other.example\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET http://127.0.0.1:1/health HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_what_two_could_read_in_two_ways_is_refused(strict: RunningServer, head: bytes) -> None:
    reader, writer = await opened(strict)
    writer.write(head)
    response = await answer(reader)
    writer.close()
    assert b" 200 " not in response.partition(b"\r\n")[0]
    assert b" 5" not in response[:13]


async def test_an_upgrade_is_not_taken(strict: RunningServer) -> None:
    async with strict.client() as client:
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "x" * 22,
        }
        assert (await client.get("/api/executions", headers=headers)).status_code in (200, 400)


async def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    async with running(tmp_path, worker=False, **{"server.max_connections": 8, "server.fair_from": 0.5}) as server:
        host, port = server.url.removeprefix("http://").split(":")
        taken = [
            await asyncio.open_connection(host, int(port), local_addr=("127.0.0.3", 0), happy_eyeballs_delay=None)
            for _ in range(7)
        ]
        closed = 0
        for reader, writer in taken:
            writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            try:
                async with asyncio.timeout(PATIENCE_S):
                    closed += not await reader.read(12)
            except ConnectionResetError:
                closed += 1
        assert closed == 3, "four, half of all, are fewer than are left"
        reader, writer = await opened(server)
        writer.write(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await reader.read(12)).endswith(b"200")
        for _, stream in (*taken, (reader, writer)):
            stream.close()


def test_connections_that_end_leave_room() -> None:
    count = Connections(4, 0.5, shared=("10.0.0.1",))
    assert [count.open("10.0.0.2") for _ in range(4)] == [True, True, False, False]
    assert [count.open("10.0.0.1") for _ in range(3)] == [True, True, False]
    count.close("10.0.0.2")
    assert count.open("10.0.0.3")
    assert not count.open("10.0.0.1")


class RecordingTransport(asyncio.Transport):
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def response_cycle(*, keep_alive: bool = True, write_paused: bool = False) -> tuple[Any, RecordingTransport, list[str]]:
    """Return a request of uvicorn that waits for its response, its transport, and the list of completed responses."""
    transport, completed = RecordingTransport(), list[str]()
    flow = FlowControl(transport)
    flow.write_paused = write_paused
    scope: Any = {"type": "http", "method": "GET", "http_version": "1.1", "path": "/", "headers": []}
    logger = logging.getLogger("uvicorn.error")
    cycle = RequestResponseCycle(
        scope=scope,
        transport=transport,
        flow=flow,
        logger=logger,
        access_logger=logger,
        access_log=False,
        default_headers=[(b"date", b"today")],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: completed.append("completed"),
    )
    return cycle, transport, completed


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("status", [200, 202])
async def test_a_whole_response_is_the_same_as_one_in_parts(keep_alive: bool, status: int) -> None:
    whole, ours, completed = response_cycle(keep_alive=keep_alive)
    lines = b"content-length: 4\r\ncontent-type: text/plain\r\n"
    assert send_whole(ref(whole), status, lines, b"body")
    parts, theirs, completed_of_parts = response_cycle(keep_alive=keep_alive)
    headers = [(b"content-length", b"4"), (b"content-type", b"text/plain")]
    await parts.send({"type": "http.response.start", "status": status, "headers": headers})
    await parts.send({"type": "http.response.body", "body": b"body"})
    assert len(ours.writes) == 1
    assert ours.writes[0] == b"".join(theirs.writes)
    assert ours.is_closed is theirs.is_closed is not keep_alive
    assert completed == completed_of_parts == ["completed"]
    assert (whole.response_started, whole.response_complete) == (parts.response_started, parts.response_complete)
    assert whole.message_event.is_set()


async def test_uvicorn_sends_responses_to_slow_and_lost_clients() -> None:
    slow, transport, completed = response_cycle(write_paused=True)
    assert not send_whole(ref(slow), 200, b"content-length: 4\r\n", b"body")
    lost, _, _ = response_cycle()
    lost.disconnected = True
    assert not send_whole(ref(lost), 200, b"content-length: 4\r\n", b"body")
    assert not transport.writes
    assert not completed
    assert not slow.response_started


async def test_answers_with_and_without_a_body_follow_each_other(strict: RunningServer) -> None:
    reader, writer = await opened(strict)
    requests = [
        (b"GET", b"/api/executions"),
        (b"HEAD", b"/api/executions"),
        (b"GET", b"/api/nothing"),
        (b"GET", b"/health"),
    ]
    for method, path in [*requests, *requests]:
        writer.write(b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % (method, path))
        async with asyncio.timeout(PATIENCE_S):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(0 if method == b"HEAD" else length)
        assert head.startswith(b"HTTP/1.1 ")
        assert bool(body) is (method != b"HEAD")
    writer.close()


async def test_requests_leave_nothing_to_the_garbage_collector(server: RunningServer) -> None:
    """Collections stop the event loop."""
    text = "metadata: {name: short}\nworkflow: [{step: start, tool: {kind: noop}}]"

    async def request() -> None:
        started = await client.post("/api/executions", json={"playbook": text})
        await client.get(f"/api/executions/{started.json()['execution_id']}/head", params={"until": "ended"})

    async with server.client() as client:
        await request()
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                await request()
            kept = [type(thing) for thing in gc.get_objects()]
        finally:
            gc.enable()
    assert kept.count(RequestResponseCycle) <= 2, "those of the latest requests"
    assert kept.count(EngineApi) <= 2
