"""What comes back: bodies by content type, small and large, whole and encoded; statuses; Retry-After."""

from __future__ import annotations

import gzip
import json
import zlib
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
import zstandard

from arclog.model.outcome import Outcome
from tests.integration.tools.http.conftest import Task
from tests.servers.web import ReceivedRequest, Web, Wire


async def test_the_result_is_status_headers_url_and_data(web: Web, task: Task) -> None:
    web.answers("/x", json={"a": [1, 2.0, None]}, headers={"ETag": "v1"})

    outcome = await task(web.url("/x"), params={"q": 1})

    url = web.url("/x?q=1")
    assert outcome.status == "ok"
    assert outcome.data_at == "data"
    assert outcome.result["status_code"] == 200
    assert outcome.result["url"] == url
    assert outcome.result["data"] == {"a": [1, 2.0, None]}
    assert outcome.result["headers"]["etag"] == "v1"
    assert outcome.helper == {"http": {"status": 200, "headers": outcome.result["headers"], "url": url}}


@pytest.mark.parametrize(
    ("kind", "body", "data"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/problem+json; charset=utf-8", b"[1]", [1]),
        ("APPLICATION/JSON", b'"x"', "x"),
        ("application/json", b"\xef\xbb\xbf[1]", [1]),
        ("application/json; charset=utf-16", '["ä"]'.encode("utf-16"), ["ä"]),
        ("application/json", b'"a\\u0000b"', "a\0b"),
        ("application/json", b"  \n", None),
        ("application/json", b"123456789012345678901234567890", 123456789012345678901234567890),
        ("text/plain", "grüße\0".encode(), "grüße\0"),
        ("text/html; charset=ISO-8859-1", b"gr\xfc\xdfe", "grüße"),
        ('text/plain; charset="shift_jis"', "日本".encode("shift_jis"), "日本"),
        ("text/plain; charset=base64", b"eA==", "eA=="),
        ("text/plain; charset=unicode_escape", b"\\ud800", "\\ud800"),
        ("text/plain; charset=zip", b"x", "x"),
        ("text/plain; charset=utf-7", b"+2AA-", "+2AA-"),
        ("application/xml", b"<a/>", "<a/>"),
        ("image/svg+xml", b"<svg/>", "<svg/>"),
        ("", "ä".encode(), "ä"),
        ("text/plain", b"", None),
        ("application/octet-stream", b"", None),
        ("", b"", None),
    ],
)
async def test_small_bodies_by_content_type(web: Web, task: Task, kind: str, body: bytes, data: Any) -> None:
    web.answers("/x", body, kind=kind)
    outcome = await task(web.url("/x"))
    assert outcome.status == "ok"
    assert outcome.result["data"] == data
    assert outcome.stored is None


@pytest.mark.parametrize(("kind", "stored_as"), [("image/png", "image/png"), ("", "application/octet-stream")])
async def test_bytes_are_always_stored(web: Web, task: Task, kind: str, stored_as: str) -> None:
    web.answers("/x", b"\x89\xff\0", kind=kind)
    outcome = await task(web.url("/x"))
    assert "data" not in outcome.result
    assert outcome.stored.content_type == stored_as
    assert task.content(outcome) == b"\x89\xff\0"


async def test_text_that_is_not_what_it_says_is_mended_and_told(web: Web, task: Task) -> None:
    web.answers("/x", b"a\xffb", kind="text/plain")
    outcome = await task(web.url("/x"))
    assert outcome.result["data"] == "a\ufffdb"
    assert any("U+FFFD" in text for _, text in task.recorder.lines)


async def test_a_character_may_be_cut_by_a_piece(web: Web, task: Task) -> None:
    @web.route("/x")
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        await wire.head(200, {"Content-Type": "text/plain", "Transfer-Encoding": "chunked"})
        for byte in "ü€".encode():
            await wire.raw(b"1\r\n%c\r\n" % byte)
        await wire.raw(b"0\r\n\r\n")

    outcome = await task(web.url("/x"))
    assert outcome.result["data"] == "ü€"
    assert not task.recorder.lines


async def test_a_large_list_is_stored_item_by_item(web: Web, task: Task) -> None:
    items = [{"n": n, "pad": "x" * 40} for n in range(3000)]
    web.answers("/x", json=items)

    outcome = await task(web.url("/x"))

    assert outcome.stored.rows == 3000
    assert await task.results.items("default", outcome.stored.sha256, 2998, 3000) == items[2998:]


async def test_other_large_bodies_are_stored_whole(web: Web, task: Task) -> None:
    value = {"pad": "x" * 500_000}
    web.answers("/json", json=value)
    web.answers("/text", "ü".encode("latin-1") * 70_000, kind="text/plain; charset=latin-1")

    outcome = await task(web.url("/json"))
    text = await task(web.url("/text"))

    assert json.loads(task.content(outcome)) == value
    assert outcome.stored.content_type == "application/json"
    assert task.content(text).decode() == "ü" * 70_000
    assert text.stored.content_type == "text/plain; charset=utf-8"


async def test_download_stores_whatever_comes(web: Web, task: Task) -> None:
    web.answers("/small", json=[1])
    web.answers("/empty", b"", kind="text/csv")
    small = await task(web.url("/small"), download=True)
    empty = await task(web.url("/empty"), download=True)
    assert (task.content(small), small.stored.content_type, small.stored.rows) == (b"[1]", "application/json", None)
    assert (task.content(empty), empty.stored.bytes) == (b"", 0)


@pytest.mark.parametrize(
    ("decode", "kind", "body", "data"),
    [
        ("json", "text/plain", b"[1]", [1]),
        ("text", "application/json", b"[1]", "[1]"),
        ("none", "text/plain", b"x", None),
    ],
)
async def test_decode_says_what_a_body_becomes(
    web: Web, task: Task, decode: str, kind: str, body: bytes, data: Any
) -> None:
    web.answers("/x", body, kind=kind)
    outcome = await task(web.url("/x"), decode=decode)
    assert outcome.result["data"] == data


async def test_decode_bytes_stores_text_as_it_came(web: Web, task: Task) -> None:
    web.answers("/x", b"\xe4", kind="text/plain; charset=latin-1")
    outcome = await task(web.url("/x"), decode="bytes")
    assert task.content(outcome) == b"\xe4"


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


TEXT = b"tell me more " * 5000
ENCODED = {
    "gzip": gzip.compress(TEXT),
    "x-gzip": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]) + b"\0\0",
    "deflate": zlib.compress(TEXT),
    "Deflate": _raw_deflate(TEXT),
    "zstd": zstandard.compress(TEXT[:50_000]) + zstandard.compress(TEXT[50_000:]),
    "gzip, zstd": zstandard.compress(gzip.compress(TEXT)),
    "identity": TEXT,
}


@pytest.mark.parametrize("encoding", ENCODED)
async def test_encodings_are_undone(web: Web, task: Task, encoding: str) -> None:
    web.answers("/x", ENCODED[encoding], kind="text/plain", headers={"Content-Encoding": encoding})
    outcome = await task(web.url("/x"), context={"inline_max_bytes": 100_000})
    assert outcome.error is None
    assert outcome.result["data"] == TEXT.decode()


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "client_error", False),
        (401, "auth", False),
        (403, "auth", False),
        (404, "not_found", False),
        (408, "client_error", False),
        (409, "client_error", False),
        (410, "not_found", False),
        (418, "client_error", False),
        (429, "rate_limit", True),
        (451, "client_error", False),
        (500, "server_error", True),
        (502, "server_error", True),
        (503, "server_error", True),
        (599, "server_error", True),
        (999, "server_error", True),
    ],
)
async def test_statuses_are_errors_that_keep_their_body(
    web: Web, task: Task, status: int, kind: str, retryable: bool
) -> None:
    web.answers("/x", json={"error": "because"}, status=status)

    outcome = await task(web.url("/x"))

    assert outcome.status == "error"
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.retryable, outcome.error.code) == (kind, retryable, str(status))
    assert f"GET {web.url('/x')} answered {status}" in outcome.error.message
    assert outcome.error.message.endswith(": because")
    assert outcome.result["data"] == {"error": "because"}
    assert outcome.helper["http"]["status"] == status


@pytest.mark.parametrize("status", [200, 201, 204, 299, 304, 399])
async def test_lower_statuses_are_fine(web: Web, task: Task, status: int) -> None:
    web.answers("/x", status=status)
    outcome = await task(web.url("/x"))
    assert (outcome.status, outcome.result["status_code"], outcome.result["data"]) == ("ok", status, None)


async def test_the_body_of_an_error_may_be_anything(web: Web, task: Task) -> None:
    web.answers("/lies", b"<html>bad gateway</html>", status=502, kind="application/json")
    web.answers("/large", b"x" * 100_000, status=500, kind="text/plain")

    lies = await task(web.url("/lies"))
    large = await task(web.url("/large"))

    assert lies.error is not None
    assert lies.error.code == "502"
    assert lies.result["data"] == "<html>bad gateway</html>"
    assert large.error is not None
    assert large.error.code == "500"
    assert large.stored.bytes == 100_000


async def _asked_to_wait(web: Web, task: Task, status: int, value: str, **headers: str) -> Any:
    web.answers("/x", status=status, headers={"Retry-After": value, **headers})
    return (await task(web.url("/x"))).meta.get("retry_after_s")


async def test_retry_after(web: Web, task: Task) -> None:
    now = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    date = format_datetime(now, usegmt=True)
    later = format_datetime(now + timedelta(seconds=90), usegmt=True)

    assert await _asked_to_wait(web, task, 429, "7") == 7.0
    assert await _asked_to_wait(web, task, 503, " 0 ") == 0.0
    assert await _asked_to_wait(web, task, 503, later, Date=date) == 90.0
    assert await _asked_to_wait(web, task, 503, date, Date=later) == 0.0
    assert await _asked_to_wait(web, task, 429, "9" * 400) == 3600.0
    assert await _asked_to_wait(web, task, 429, "-1") is None
    assert await _asked_to_wait(web, task, 429, "soon") is None
    assert await _asked_to_wait(web, task, 429, "Fri, 99 Foo 2031 99:99:99 GMT") is None
    assert await _asked_to_wait(web, task, 500, "7") is None
    assert await _asked_to_wait(web, task, 200, "7") is None


async def test_retry_after_by_our_clock_when_the_server_shows_none(web: Web, task: Task) -> None:
    assert await _asked_to_wait(web, task, 503, "Sat, 01 Jan 2000 00:00:00 GMT") == 0.0
    assert await _asked_to_wait(web, task, 503, "Sat, 01 Jan 2124 00:00:00 GMT") == 3600.0


async def test_progress_of_a_long_body_is_told(web: Web, task: Task) -> None:
    web.answers("/x", bytes(3 * 1024 * 1024), kind="application/octet-stream")
    outcome: Outcome = await task(web.url("/x"))
    assert outcome.status == "ok"
    done, total, unit = task.recorder.progress[-1]
    assert total == 3 * 1024 * 1024
    assert 2 * 1024 * 1024 <= done <= total
    assert unit == "bytes"


async def test_latin_1_headers_are_read(web: Web, task: Task) -> None:
    web.answers("/x", json=1, headers={"X-Name": "J\xfcrgen"})
    assert (await task(web.url("/x"))).result["headers"]["x-name"] == "Jürgen"
