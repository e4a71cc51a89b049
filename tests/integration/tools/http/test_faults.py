"""Servers that stall, drip, cut, lie, circle and send bombs: the ruled outcome, nothing half-stored, nothing left open."""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from contextlib import suppress
from typing import Any

import pytest
import zstandard

from arclog.model.outcome import Outcome, TaskError
from arclog.ports.secrets import Credential
from tests.integration.tools.http.conftest import Task
from tests.servers.web import ReceivedRequest, Web, Wire

OK_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


def error_of(outcome: Outcome) -> TaskError:
    assert outcome.status == "error"
    assert outcome.error is not None
    return outcome.error


@pytest.fixture(autouse=True)
def nothing_half_stored(task: Task) -> Any:
    yield
    assert not task.results.kept


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200", OK_HEAD + b"Content-Length: 9\r\n\r\nabc"])
async def test_a_server_that_stalls_is_left_after_the_read_time(web: Web, task: Task, first: bytes) -> None:
    web.stalls("/x", first)
    outcome = await task(web.url("/x"), context={"spec": {"timeout": {"read": 0.05}}})
    problem = error_of(outcome)
    assert (problem.kind, problem.retryable) == ("timeout", True)
    assert "0.05 s (spec.timeout.read)" in problem.message
    assert web.left.wait(30)


async def test_a_server_that_drips_is_left_after_the_total_time(web: Web, task: Task) -> None:
    @web.route("/x")
    async def drip(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        gone = asyncio.ensure_future(wire.gone())
        with suppress(ConnectionError):
            while not gone.done():
                await wire.raw(b"1\r\nx\r\n")
                await asyncio.wait({gone}, timeout=0.005)
            await gone
        web.left.set()
        wire.cut()

    outcome = await task(web.url("/x"), context={"timeout_s": 0.3})
    assert (error_of(outcome).kind, error_of(outcome).retryable) == ("timeout", True)
    assert await asyncio.to_thread(web.left.wait, 30)


async def test_a_cancelled_task_closes_its_connection(web: Web, task: Task) -> None:
    web.stalls("/x", OK_HEAD + b"Content-Length: 9\r\n\r\nabc")
    running = asyncio.ensure_future(task(web.url("/x")))
    assert await asyncio.to_thread(web.reached.wait, 30)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(web.left.wait, 30)


async def test_nobody_listens(task: Task) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        outcome = await task(f"http://127.0.0.1:{taken.getsockname()[1]}/x")
    problem = error_of(outcome)
    assert (problem.kind, problem.retryable) == ("connection", True)
    assert problem.message.endswith(": Connection refused")
    assert outcome.helper["http"]["status"] is None


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        OK_HEAD + b"Content-Length: 9\r\n\r\nabc",
        OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab",
        OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab",
        OK_HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        OK_HEAD + b"Content-Length: -3\r\n\r\nabc",
        b"SSH-2.0-OpenSSH_9.0\r\n",
    ],
)
async def test_answers_that_are_cut_or_no_http_are_connection_errors(web: Web, task: Task, sent: bytes) -> None:
    @web.route("/x")
    async def cut(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(sent)
        wire.cut()

    for download in (False, True):
        outcome = await task(web.url("/x"), download=download)
        assert (error_of(outcome).kind, error_of(outcome).retryable) == ("connection", True)
        assert web.url("/x") in error_of(outcome).message


@pytest.mark.parametrize("sent", [b"Content-Length: 9\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"])
async def test_a_body_that_ends_too_soon_has_a_code_of_its_own(web: Web, task: Task, sent: bytes) -> None:
    @web.route("/x")
    async def cut(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(OK_HEAD + sent)
        wire.cut()

    assert error_of(await task(web.url("/x"))).code == "CUT_BODY"


async def test_a_reset_connection(web: Web, task: Task) -> None:
    @web.route("/x")
    async def reset(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(OK_HEAD + b"Content-Length: 9\r\n\r\nabc")
        wire.cut(reset=True)

    outcome = await task(web.url("/x"))
    assert error_of(outcome).kind == "connection"
    assert outcome.helper["http"]["status"] == 200


async def test_a_body_that_is_longer_than_it_says_does_not_reach_the_next_answer(web: Web, task: Task) -> None:
    @web.route("/x")
    async def long(_: ReceivedRequest, wire: Wire) -> None:
        await wire.raw(OK_HEAD + b"Content-Length: 3\r\n\r\nabc" + OK_HEAD + b"Content-Length: 4\r\n\r\nevil")

    web.answers("/next", b"good", kind="text/plain")
    assert (await task(web.url("/x"))).result["data"] == "abc"
    assert (await task(web.url("/next"))).result["data"] == "good"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "malformed"),
        (b'{"a": 1', "truncated"),
        (b'{"a": NaN}', "malformed"),
        (b'"\xff"', "can't decode"),
        (b'["\\ud800"]', "not usable JSON"),
        (b"[" * 300 + b"]" * 300, "200 levels"),
        (b"[" * 90_000, "200 levels"),
        (b"1e999", "out of range"),
    ],
)
async def test_json_that_is_none_is_an_error_with_its_beginning(web: Web, task: Task, body: bytes, says: str) -> None:
    web.answers("/x", body, kind="application/json")

    outcome = await task(web.url("/x"), context={"inline_max_bytes": 1_000_000})

    problem = error_of(outcome)
    assert (problem.kind, problem.code, problem.retryable) == ("server_error", "BAD_BODY", False)
    assert says in problem.message
    assert problem.message.startswith(f"GET {web.url('/x')}: ")
    assert f"it begins {body[:2].decode('utf-8', 'replace')!r}"[:-1] in problem.message
    assert outcome.result["data"] == body.decode("utf-8", "replace")
    assert outcome.helper["http"]["status"] == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/octet-stream", "application/json", ""])
async def test_a_body_over_the_limit_is_not_read_further(web: Web, task: Task, kind: str) -> None:
    task.set(http__max_body_bytes=100_000)

    @web.route("/says")
    async def says(_: ReceivedRequest, wire: Wire) -> None:
        await wire.head(200, {"Content-Type": kind, "Content-Length": "100001"})
        await wire.gone()

    @web.route("/endless")
    async def endless(_: ReceivedRequest, wire: Wire) -> None:
        await wire.head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked"})
        with suppress(ConnectionError):
            while True:
                await wire.raw(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        web.left.set()
        wire.cut()

    for path in ("/says", "/endless"):
        outcome = await task(web.url(path))
        problem = error_of(outcome)
        assert (problem.kind, problem.code, problem.retryable) == ("limit", "http.max_body_bytes", False)
        assert "download: true" in problem.message
        assert outcome.result["status_code"] == 200
    assert await asyncio.to_thread(web.left.wait, 30)


async def test_a_download_is_bounded_by_the_store(web: Web, task: Task) -> None:
    task.set(http__max_body_bytes=10, results__max_bytes=1000)
    web.answers("/x", bytes(1001), headers={"Content-Encoding": "identity"})
    assert error_of(await task(web.url("/x"), download=True)).code == "results.max_bytes"


@pytest.mark.parametrize("count", [70, 600])
async def test_too_many_headers(web: Web, task: Task, count: int) -> None:
    web.answers("/x", json=1, headers=[(f"X-{n}", "y" * 1000) for n in range(count)])
    problem = error_of(await task(web.url("/x")))
    assert (problem.kind, problem.code) == ("limit", "http.max_header_bytes")


def _bombs() -> dict[str, bytes]:
    zeros = bytes(64 * 1024 * 1024)
    packed = gzip.compress(zeros, 9)
    return {
        "gzip": packed,
        "deflate": zlib.compress(zeros, 9),
        "zstd": zstandard.compress(zeros),
        "gzip, gzip": gzip.compress(packed, 9),
        "zstd, gzip": gzip.compress(zstandard.compress(zeros)),
    }


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "gzip, gzip", "zstd, gzip"])
async def test_a_bomb_is_stopped_by_what_it_unpacks_to(web: Web, task: Task, encoding: str) -> None:
    task.set(http__max_body_bytes=200_000)
    bomb = _bombs()[encoding]
    assert len(bomb) < 100_000
    web.answers("/x", bomb, kind="text/plain", headers={"Content-Encoding": encoding})
    assert error_of(await task(web.url("/x"))).code == "http.max_body_bytes"


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip, gzip", "compress", "x" * 500])
async def test_encodings_that_nobody_asked_for(web: Web, task: Task, encoding: str) -> None:
    web.answers("/x", b"abc", kind="text/plain", headers={"Content-Encoding": encoding})
    problem = error_of(await task(web.url("/x")))
    assert (problem.kind, problem.code, problem.retryable) == ("server_error", "BAD_BODY", False)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
async def test_encodings_that_are_none_or_do_not_end(web: Web, task: Task, encoding: str) -> None:
    text = b"abc" * 9000
    whole = {"gzip": gzip.compress(text), "deflate": zlib.compress(text), "zstd": zstandard.compress(text)}[encoding]
    web.answers("/none", b"\xff\xfe plainly not", kind="text/plain", headers={"Content-Encoding": encoding})
    web.answers("/cut", whole[:-6], kind="text/plain", headers={"Content-Encoding": encoding})

    none = error_of(await task(web.url("/none")))
    cut = error_of(await task(web.url("/cut")))

    assert (none.kind, none.code, none.retryable) == ("server_error", "BAD_BODY", False)
    assert (cut.kind, cut.code, cut.retryable) == ("connection", "CUT_BODY", True)


async def test_redirects_in_a_circle(web: Web, task: Task) -> None:
    web.answers("/a", status=302, headers={"Location": "/b"})
    web.answers("/b", status=302, headers={"Location": "/a"})
    problem = error_of(await task(web.url("/a")))
    assert (problem.kind, problem.code, problem.retryable) == ("limit", "http.max_redirects", False)
    assert len(web.requests) == 11


async def test_no_redirects_at_all(web: Web, task: Task) -> None:
    task.set(http__max_redirects=0)
    web.answers("/a", status=302, headers={"Location": "/b"})
    assert error_of(await task(web.url("/a"))).code == "http.max_redirects"
    assert (await task(web.url("/a"), follow_redirects=False)).result["headers"]["location"] == "/b"


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        (301, "POST", "GET", b""),
        (302, "POST", "GET", b""),
        (303, "PUT", "GET", b""),
        (303, "HEAD", "HEAD", b""),
        (302, "PUT", "PUT", b"x"),
        (307, "POST", "POST", b"x"),
        (308, "DELETE", "DELETE", b"x"),
    ],
)
async def test_what_a_redirect_makes_of_method_and_body(
    web: Web, task: Task, status: int, method: str, then: str, body: bytes
) -> None:
    web.answers("/a", status=status, headers={"Location": "b?q=1#part"})
    web.answers("/b")

    outcome = await task(web.url("/a"), method=method, body="x" if method != "HEAD" else None)

    assert outcome.status == "ok"
    assert (outcome.result["url"], outcome.meta["redirects"]) == (web.url("/b?q=1"), 1)
    last = web.requests[-1]
    assert (last.method, last.body) == (then, body)
    assert ("content-type" in last.headers) == bool(body)


async def test_no_credential_goes_to_another_origin(web: Web, task: Task) -> None:
    auth = Credential("api", "bearer", {"token": "t0k"}, ("t0k",))
    headers = {"X-Api-Key": "k", "Cookie": "c=1", "Accept": "text/csv"}
    with Web() as other:
        web.answers("/a", status=307, headers={"Location": "/same"})
        web.answers("/same", status=307, headers={"Location": other.url("/b").replace("http://", "http://u:p@")})
        other.answers("/b", status=307, headers={"Location": web.url("/back")})
        web.answers("/back", json=1)
        outcome = await task(web.url("/a"), method="POST", json={"a": 1}, headers=headers, context={"auth": auth})

    assert outcome.status == "ok"
    assert web.requests[1].headers["authorization"] == "Bearer t0k"
    assert web.requests[1].headers["x-api-key"] == "k"
    for request in (other.requests[0], web.requests[2]):
        assert not {"authorization", "x-api-key", "cookie"} & request.headers.keys()
        assert request.headers["accept"] == "text/csv"
        assert request.body == b'{"a":1}'


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://x/", "gopher://x", "//:0/", "http://[::1", "javascript:alert(1)"]
)
async def test_redirects_that_lead_nowhere(web: Web, task: Task, location: str) -> None:
    web.answers("/a", status=302, headers={"Location": location})
    problem = error_of(await task(web.url("/a")))
    assert (problem.kind, problem.code, problem.retryable) == ("server_error", "BAD_REDIRECT", False)


async def test_a_redirect_to_a_private_address_is_not_followed(web: Web, task: Task) -> None:
    web.answers("/a", status=302, headers={"Location": "http://169.254.169.254/latest/meta-data"})
    problem = error_of(await task(web.url("/a")))
    assert (problem.kind, problem.code) == ("config", "ADDRESS_REFUSED")
    assert "link-local" in problem.message


async def test_a_store_that_fails_leaves_nothing(web: Web, task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is the store's error; what was begun is given up, and the connection is not kept."""
    web.answers("/x", bytes(1_000_000))
    given_up = []
    begin = task.results.writer

    def failing(*args: Any, **kwargs: Any) -> Any:
        writer = begin(*args, **kwargs)

        async def write(_: bytes) -> None:
            raise OSError(28, "No space left on device")

        async def abandon() -> None:
            given_up.append(True)

        monkeypatch.setattr(writer, "write", write)
        monkeypatch.setattr(writer, "abandon", abandon)
        return writer

    monkeypatch.setattr(task.results, "writer", failing)
    with pytest.raises(OSError, match="No space left"):
        await task(web.url("/x"), download=True)
    assert given_up == [True]


async def test_many_at_once_share_the_connections_there_may_be(web: Web, task: Task) -> None:
    task.set(http__max_connections=3)
    web.answers("/x", json=1)
    outcomes = await asyncio.gather(*(task(web.url("/x")) for _ in range(40)))
    assert {outcome.status for outcome in outcomes} == {"ok"}
    assert web.connections <= 3
