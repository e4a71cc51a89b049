"""Answers of HTTP/1.1, read from whatever pieces they arrive in."""

from __future__ import annotations

import pytest

from arclog.drivers.http.direct import Answer, Origin, _Reader, _request

WHOLE = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\nx-a: 2\r\n\r\nhello", 200, b"hello"),
    "empty": (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", 503, b""),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx", 200, b"x"),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: 1\r\n\r\n",
        200,
        b"abc0123456789",
    ),
    "after 100": (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\nContent-Length: 2\r\n\r\nok", 201, b"ok"),
}


def read(text: bytes, size: int) -> tuple[Answer | None, bytearray, _Reader]:
    """Read in pieces of this size."""
    reader, received, answer = _Reader(), bytearray(), None
    for at in range(0, len(text), size):
        assert answer is None, "complete before its end"
        received += text[at : at + size]
        answer = reader.read(received)
    return answer, received, reader


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("name", WHOLE)
def test_an_answer_is_read_from_pieces_of_any_size(name: str, size: int) -> None:
    text, status, body = WHOLE[name]
    answer, unread, reader = read(text, size)
    assert answer is not None
    assert (answer.status, answer.body, bytes(unread)) == (status, body, b"")
    assert reader.may_stay


def test_headers_of_one_name_are_joined() -> None:
    answer, _, _ = read(WHOLE["length"][0], 1000)
    assert answer is not None
    assert answer.headers["x-a"] == "1, 2"


def test_what_follows_an_answer_stays_unread() -> None:
    _, unread, _ = read(WHOLE["length"][0] + b"HTTP/1.1 200 OK\r\n", 1000)
    assert bytes(unread) == b"HTTP/1.1 200 OK\r\n"


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    reader, received = _Reader(), bytearray(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    assert reader.read(received) is None
    answer = reader.at_end(received)
    assert answer is not None
    assert answer.body == b"all of it"
    assert not reader.may_stay


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Len",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
)
def test_half_an_answer_is_none(text: bytes) -> None:
    reader, received = _Reader(), bytearray(text)
    assert reader.read(received) is None
    assert reader.at_end(received) is None


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK", b"HTTP/1.1 200 OK\r\nConnection: Close"])
def test_a_connection_that_the_server_closes_is_not_kept(head: bytes) -> None:
    answer, _, reader = read(head + b"\r\nContent-Length: 1\r\n\r\nx", 1000)
    assert answer is not None
    assert not reader.may_stay


@pytest.mark.parametrize(
    "text",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20x OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabcdef\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"answer|server switches"):
        read(text, 1000)


@pytest.mark.parametrize("header", ["a\r\nX: y", "a\nb", "\0"])
def test_a_header_cannot_start_another(header: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        _request(Origin("x", 80), "GET", "/", {"A": header}, None)


@pytest.mark.parametrize(
    ("host", "port", "expected"), [("x", 80, "x"), ("x", 8420, "x:8420"), ("::1", 80, "[::1]"), ("::1", 1, "[::1]:1")]
)
def test_the_host_header_names_host_and_port(host: str, port: int, expected: str) -> None:
    assert f"Host: {expected}\r\n".encode() in _request(Origin(host, port), "GET", "/x", {}, None)


def test_a_post_without_a_body_says_so() -> None:
    assert b"Content-Length: 0\r\n" in _request(Origin("x", 80), "POST", "/", {}, None)
    assert b"Content-Length" not in _request(Origin("x", 80), "GET", "/", {}, None)
