"""What is read piece by piece goes on where it was when the server goes away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from arclog.client import AsyncClient, Client
from arclog.model.config.settings import Settings
from arclog.model.errors import NotFound, RequestTooLarge, ResultUnavailable, ServerUnavailable
from tests.servers.web import ReceivedRequest, Web, Wire

ID = "380452616754167808"
REF = f"noetl://execution/{ID}/result/start.many/{'0' * 64}"
BODY = bytes(range(256)) * 40
RUN = f"/api/executions/{ID}"


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        yield server


def serve_cut(web: Web, pieces: int, most: int = 1 << 40) -> None:
    """Serve BODY by ranges of at most so many bytes, but never more than one piece before the connection breaks."""
    stored = {"ref": REF, "execution_id": ID, "name": "many", "step": "start", "run": 1, "task": "many", "kind": "data"}
    stored |= {"content_type": "text/plain", "bytes": len(BODY), "rows": None, "sha256": "0" * 64, "scope": "step"}
    web.answers("/api/result", json={**stored, "stored_at": "", "expires_at": None, "removed_at": None, "seq": 1})

    @web.route("/api/result/resolve")
    async def answer(request: ReceivedRequest, wire: Wire) -> None:
        first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        part = BODY[int(first) : int(last) + 1]
        if len(part) > most:
            body = json.dumps({"title": "RequestTooLarge", "detail": "too much"}).encode()
            await wire.answer(413, body, {"Content-Type": "application/problem+json"})
            return
        await wire.head(206, {"Content-Length": str(len(part))})
        piece = len(BODY) // pieces + 1
        await wire.raw(part[:piece])
        if len(part) > piece:
            wire.cut()


async def test_content_that_breaks_off_is_read_on_from_there(web: Web) -> None:
    serve_cut(web, 5)
    async with AsyncClient(web.url("")) as client:
        assert b"".join([chunk async for chunk in client.content(REF)]) == BODY
        assert len(web.requests) == 1 + 5
        assert b"".join([chunk async for chunk in client.content(REF, 100, 9000)]) == BODY[100:9000]


async def test_content_comes_in_parts_as_large_as_the_server_gives(web: Web) -> None:
    serve_cut(web, 1, most=3000)
    async with AsyncClient(web.url("")) as client:
        assert b"".join([chunk async for chunk in client.content(REF)]) == BODY
    serve_cut(web, 1, most=0)
    async with AsyncClient(web.url("")) as client:
        with pytest.raises(RequestTooLarge, match="too much"):
            _ = [chunk async for chunk in client.content(REF)]


async def test_content_of_a_server_that_ignores_ranges_is_not_passed_on_as_the_part(web: Web) -> None:
    serve_cut(web, 1)
    web.answers("/api/result/resolve", BODY)
    async with AsyncClient(web.url("")) as client:
        with pytest.raises(ResultUnavailable, match="ignores the requested range"):
            _ = [chunk async for chunk in client.content(REF, 10)]


class Log:
    """A run's events behind routes that break off and repeat themselves."""

    def __init__(self, web: Web, count: int) -> None:
        self.events: list[dict[str, Any]] = [
            {"seq": seq, "event_type": "task.done", "text": "\u2028 ü\n"} for seq in range(1, count + 1)
        ]
        self.streams = 0
        web.route(f"{RUN}/status")(self.status)
        web.route(f"{RUN}/events")(self.page)
        web.route(f"{RUN}/events/stream")(self.stream)

    async def status(self, _: ReceivedRequest, wire: Wire) -> None:
        over = self.streams >= 4
        body = {"execution_id": ID, "state": "RUNNING", "current_step": None, "started_at": None}
        body |= {"ended_at": "2026-01-01T00:00:00Z" if over else None, "terminal_event": None}
        await wire.answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    async def page(self, request: ReceivedRequest, wire: Wire) -> None:
        after = int(dict(request.query).get("after", "0"))
        rest = [event for event in self.events if event["seq"] > after][: int(dict(request.query)["limit"])]
        page = {"events": rest, "next": rest[-1]["seq"] if rest else after, "more": False}
        await wire.answer(200, json.dumps(page).encode(), {"Content-Type": "application/json"})

    async def stream(self, request: ReceivedRequest, wire: Wire) -> None:
        """The first breaks off amid an event, the second tells again what was told, the third and fourth stop early."""
        self.streams += 1
        after = int(dict(request.query).get("after", "0"))
        begin, end = {1: (after, 3), 2: (0, 6), 3: (after, 6), 4: (after, 8)}.get(
            self.streams, (after, len(self.events))
        )
        await wire.head(200, {"Content-Type": "text/event-stream", "Connection": "close"})
        await wire.raw(b": keep-alive\n\n")
        for event in self.events[begin:end]:
            await wire.raw(f"id: {event['seq']}\nevent: x\ndata: {json.dumps(event)}\n\n".encode())
        if self.streams == 1:
            await wire.raw(b'id: 4\ndata: {"seq": 4, "ev')
            wire.cut(reset=True)
        wire.cut()


async def test_a_stream_tells_every_event_once_and_in_order_whatever_breaks(web: Web) -> None:
    log = Log(web, 9)
    async with AsyncClient(web.url("")) as client:
        assert [event async for event in client.follow(ID)] == log.events
    assert log.streams >= 5


async def test_a_stream_goes_on_behind_a_seq(web: Web) -> None:
    log = Log(web, 9)
    log.streams = 4
    async with AsyncClient(web.url("")) as client:
        assert [event["seq"] async for event in client.follow(ID, after=5)] == [6, 7, 8, 9]


async def test_a_stream_that_is_none_ends_in_an_error(web: Web) -> None:
    log = Log(web, 1)
    web.answers(f"{RUN}/events/stream", b"{}", kind="application/json")
    async with AsyncClient(web.url(""), settings=Settings({"client.patience_s": 0.1})) as client:
        with pytest.raises(ServerUnavailable, match="text/event-stream"):
            _ = [event async for event in client.follow(ID)]
    assert not log.streams


def test_without_asyncio_it_is_the_same(web: Web) -> None:
    log = Log(web, 9)
    serve_cut(web, 3)
    client = Client(web.url(""))
    assert list(client.follow(ID)) == log.events
    assert b"".join(client.content(REF)) == BODY
    some = client.follow(ID)
    assert next(some)["seq"] == 1
    some.close()  # type: ignore[attr-defined]  # it is a generator
    web.answers(f"{RUN}/source", status=404, json={"title": "NotFound", "detail": "no"})
    with pytest.raises(NotFound):
        client.source(ID)
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.status(ID)


def test_the_package_names_its_two_clients_and_nothing_else() -> None:
    import arclog.client

    assert arclog.client.AsyncClient is AsyncClient
    with pytest.raises(AttributeError):
        _: Any = arclog.client.Nothing
