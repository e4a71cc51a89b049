"""TLS and HTTP/2 with a real handshake: names, authorities, and what is said when they do not fit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.integration.tools.http.conftest import Task
from tests.servers.certs import Certificate, certificate
from tests.servers.web import H2Wire, ReceivedRequest, Web


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("good"))


@pytest.fixture
def secure(good: Certificate) -> Iterator[Web]:
    with Web(good, http2=True) as server:
        server.answers("/x", json={"a": 1})
        yield server


async def test_http_2_over_a_trusted_certificate(secure: Web, good: Certificate, task: Task) -> None:
    task.set(http__ca_file=str(good.authority))

    outcomes = [await task(secure.url("/x", "localhost"))]
    outcomes += await asyncio.gather(*(task(secure.url("/x", "localhost"), params={"n": n}) for n in range(20)))
    sent = await task(secure.url("/x", "localhost"), method="POST", json={"b": "ä" * 9000}, headers={"X-A": "b"})

    assert {outcome.status for outcome in outcomes} == {"ok"}
    assert outcomes[0].result["data"] == {"a": 1}
    assert {request.protocol for request in secure.requests} == {"HTTP/2"}
    assert {request.connection for request in secure.requests[:21]} == {1}
    assert sent.error is None
    assert secure.requests[-1].headers["x-a"] == "b"
    assert len(secure.requests[-1].body) > 18_000


async def test_http_1_where_the_server_speaks_no_other(good: Certificate, task: Task) -> None:
    task.set(http__ca_file=str(good.authority))
    with Web(good) as server:
        server.answers("/x", json=1)
        assert (await task(server.url("/x"))).result["data"] == 1
    assert server.requests[0].protocol == "HTTP/1.1"


async def test_an_unknown_authority_is_not_trusted(secure: Web, task: Task) -> None:
    outcome = await task(secure.url("/x"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("connection", "CERTIFICATE", False)
    assert "http.ca_file" in outcome.error.message
    assert not secure.requests


@pytest.mark.parametrize(
    ("names", "expired", "says"),
    [(("other.example",), False, "127.0.0.1"), (("127.0.0.1",), True, "expired")],
)
async def test_certificates_that_do_not_fit(
    tmp_path: Path, task: Task, names: tuple[str, ...], expired: bool, says: str
) -> None:
    made = certificate(tmp_path / "certs", *names, expired=expired)
    task.set(http__ca_file=str(made.authority))
    with Web(made) as server:
        outcome = await task(server.url("/x"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("connection", "CERTIFICATE", False)
    assert says in outcome.error.message


async def test_verify_false_where_the_operator_allows_it(secure: Web, task: Task) -> None:
    task.set(http__allow_insecure=True)
    assert (await task(secure.url("/x"), verify=False)).status == "ok"
    assert (await task(secure.url("/x"))).status == "error"


@asynccontextmanager
async def plain(first: bytes) -> AsyncIterator[str]:
    """The https address of a server that says these bytes to everybody, and nothing more."""
    open_ones: list[asyncio.StreamWriter] = []

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.append(writer)
        writer.write(first)

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for writer in open_ones:
            writer.transport.abort()


async def test_a_server_without_tls(task: Task) -> None:
    async with plain(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        outcome = await task(url)
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code, outcome.error.retryable) == ("connection", "TLS", True)


async def test_a_greeting_that_stalls_is_left_after_the_connect_time(task: Task) -> None:
    async with plain(b"") as url:
        outcome = await task(url, context={"spec": {"timeout": {"connect": 0.05}}})
    assert outcome.error is not None
    assert outcome.error.kind == "timeout"
    assert "0.05 s (spec.timeout.connect)" in outcome.error.message


async def test_a_file_of_authorities_that_is_none(secure: Web, task: Task, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    for file in ("ca.pem", "missing.pem"):
        task.set(http__ca_file=str(tmp_path / file))
        outcome = await task(secure.url("/x"))
        assert outcome.error is not None
        assert outcome.error.kind == "config"
        assert f"http.ca_file: {tmp_path / file}" in outcome.error.message


@pytest.fixture
def trusting(task: Task, good: Certificate) -> Task:
    task.set(http__ca_file=str(good.authority))
    return task


async def test_a_large_download_over_http_2(secure: Web, trusting: Task) -> None:
    body = bytes(range(256)) * 20_000
    secure.answers("/large", body, kind="application/octet-stream")
    outcome = await trusting(secure.url("/large"), download=True)
    assert outcome.error is None
    assert trusting.content(outcome) == body
    assert secure.requests[0].protocol == "HTTP/2"


@pytest.mark.parametrize("how", ["reset", "cut"])
async def test_an_answer_that_is_broken_off_over_http_2(secure: Web, trusting: Task, how: str) -> None:
    @secure.route("/broken")
    async def broken(_: ReceivedRequest, wire: H2Wire) -> None:
        await wire.head(200, {"content-type": "text/plain", "content-length": "9"})
        await wire.raw(b"abc")
        getattr(wire, how)()

    outcome = await trusting(secure.url("/broken"))
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable) == ("connection", True)
    assert (await trusting(secure.url("/x"))).status == "ok"


async def test_a_body_over_http_2_that_is_not_as_long_as_it_says(secure: Web, trusting: Task) -> None:
    secure.answers("/lies", b"abc", kind="text/plain", headers={"content-length": "9"})
    outcome = await trusting(secure.url("/lies"))
    assert outcome.error is not None
    assert outcome.error.kind == "connection"


async def test_a_body_that_turns_out_to_be_of_another_length_after_its_head_was_read(
    secure: Web, trusting: Task
) -> None:
    begun, gate, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    @secure.route("/lies")
    async def lie(_: ReceivedRequest, wire: H2Wire) -> None:
        await wire.head(200, {"content-type": "text/plain", "content-length": "9"})
        loop.call_soon_threadsafe(begun.set)
        await asyncio.to_thread(gate.wait, 30)
        await wire.raw(b"abc", end=True)

    secure.answers("/other", b"x")
    lied_to = asyncio.ensure_future(trusting(secure.url("/lies")))
    await begun.wait()
    assert (await trusting(secure.url("/other"))).error is None  # on the same connection, so the head has come
    gate.set()
    outcome = await lied_to
    assert outcome.error is not None
    assert outcome.error.kind == "connection"


async def test_a_task_that_is_late_or_cancelled_does_not_hurt_others_on_its_connection(
    secure: Web, trusting: Task
) -> None:
    slow = asyncio.Event()
    loop = asyncio.get_running_loop()
    dropped = threading.Event()

    @secure.route("/slow")
    async def answer_late(_: ReceivedRequest, wire: H2Wire) -> None:
        await wire.head(200, {"content-type": "text/plain"})
        await wire.raw(b"begun")
        loop.call_soon_threadsafe(slow.set)
        await wire.dropped.wait()
        dropped.set()

    gate = threading.Event()

    @secure.route("/silent")
    async def silent(_: ReceivedRequest, wire: H2Wire) -> None:
        await wire.dropped.wait()

    @secure.route("/steady")
    async def steady(_: ReceivedRequest, wire: H2Wire) -> None:
        await wire.head(200, {"content-type": "text/plain"})
        await wire.raw(b"begun")
        await asyncio.to_thread(gate.wait, 30)
        await wire.raw(b" and done", end=True)

    other = asyncio.ensure_future(trusting(secure.url("/steady")))
    assert await asyncio.to_thread(secure.reached.wait, 30)
    late = asyncio.ensure_future(trusting(secure.url("/slow")))
    await slow.wait()
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    assert await asyncio.to_thread(dropped.wait, 30)
    for path in ("/slow", "/silent"):
        impatient = await trusting(secure.url(path), context={"spec": {"timeout": {"read": 0.05}}})
        assert impatient.error is not None
        assert "0.05 s (spec.timeout.read)" in impatient.error.message
    gate.set()
    assert (await other).result["data"] == "begun and done"
    assert {request.connection for request in secure.requests} == {1}


@pytest.mark.slow
async def test_what_is_given_up_does_not_use_the_connection_up(secure: Web, trusting: Task) -> None:
    """More is left unread than the connection's window holds (16 MiB): about 48 KiB of each answer."""
    secure.answers("/large", bytes(70_000), kind="text/plain")
    trusting.set(http__max_body_bytes=100)
    for _ in range(450):
        outcome = await trusting(secure.url("/large"))
        assert outcome.error is not None
        assert outcome.error.code == "http.max_body_bytes"
    assert (await trusting(secure.url("/x"))).status == "ok"
    assert {request.connection for request in secure.requests} == {1}
