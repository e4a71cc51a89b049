"""What leaves: methods, queries, headers, bodies and credentials, as a server sees them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from email import message_from_bytes
from typing import Any

import pytest

from arclog.model.refs import DATA, LIST, RefMeta, ResultRef, ref_text
from arclog.ports.secrets import Credential
from arclog.tools.http.request import as_array
from tests.integration.tools.http.conftest import Task
from tests.servers.web import Web


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PURGE", "post"])
async def test_every_method_goes_out(web: Web, task: Task, method: str) -> None:
    web.answers("/x", b"" if method == "HEAD" else b"ok", kind="text/plain")

    outcome = await task(web.url("/x"), method=method)

    assert outcome.status == "ok"
    assert web.requests[0].method == method.upper()
    assert outcome.result["status_code"] == 200


async def test_a_request_says_who_asks_and_what_it_takes(web: Web, task: Task) -> None:
    web.answers("/x", json=1)
    await task(web.url("/x"))
    headers = web.requests[0].headers
    assert headers["user-agent"].startswith("arclog/")
    assert headers["host"] == f"127.0.0.1:{web.port}"
    assert headers["accept-encoding"] == "gzip, deflate, zstd"
    assert "content-length" not in headers


async def test_params_are_added_to_the_query(web: Web, task: Task) -> None:
    web.answers("/x", json=1)
    params = {"a": [1, 2.5], "b": True, "c": None, "d": "ä &=+/?#", "e": "", "f": 1.0}

    await task(web.url("/x?kept=%C3%A4&a=0"), params=params)

    assert web.requests[0].query == [
        ("kept", "ä"), ("a", "0"), ("a", "1"), ("a", "2.5"), ("b", "true"), ("d", "ä &=+/?#"), ("e", ""), ("f", "1.0"),
    ]  # fmt: skip


async def test_json_goes_out_as_json_also_null(web: Web, task: Task) -> None:
    web.answers("/x", json=1)
    values: list[Any] = [{"a": [1, None, "ä\0"]}, None, [], "text"]
    for value in values:
        await task(web.url("/x"), method="POST", json=value)
        request = web.requests[-1]
        assert json.loads(request.body) == value
        assert request.headers["content-type"] == "application/json"


async def test_form_and_text_bodies(web: Web, task: Task) -> None:
    web.answers("/x", json=1)

    await task(web.url("/x"), method="POST", form={"a": "x y&z", "b": [1, 2]})
    await task(web.url("/x"), method="PUT", body="grüße", headers={"Content-Type": "text/csv"})
    await task(web.url("/x"), method="POST")

    form, text, nothing = web.requests
    assert (form.body, form.headers["content-type"]) == (b"a=x+y%26z&b=1&b=2", "application/x-www-form-urlencoded")
    assert (text.body.decode(), text.headers["content-type"]) == ("grüße", "text/csv")
    assert nothing.headers["content-length"] == "0"


async def test_multipart_fields_and_files(web: Web, task: Task) -> None:
    web.answers("/x", json=1)
    parts = [
        {"name": "note", "content": "hä\r\n--x"},
        {"name": 'a"\r\nX: y', "content": "1,2", "filename": "d.csv", "content_type": "text/csv"},
        {"name": "n", "content": 7},
    ]

    await task(web.url("/x"), method="POST", multipart=parts)

    request = web.requests[0]
    whole = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode() + request.body
    payload: Any = message_from_bytes(whole).get_payload()
    assert [part.get_payload(decode=True).decode() for part in payload] == ["hä\r\n--x", "1,2", "7"]
    assert payload[0].get_param("name", header="content-disposition") == "note"
    assert payload[1].get_filename() == "d.csv"
    assert payload[1].get_content_type() == "text/csv"
    assert "X" not in payload[1]


async def test_a_stored_result_is_streamed_out(web: Web, task: Task) -> None:
    web.answers("/x", json=1)
    content = b"\0\xff" * 200_000
    writer = task.results.writer("default", content_type="application/octet-stream")
    await writer.write(content)
    made = await writer.commit()
    meta = RefMeta(made.bytes, made.sha256, made.content_type)
    ref = ResultRef(DATA, task.results.name, ref_text(1, "load", made.sha256), meta)

    await task(web.url("/x"), method="PUT", body=ref)

    request = web.requests[0]
    assert request.body == content
    assert request.headers["content-length"] == str(len(content))
    assert request.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("items", [[], [1], [{"a": "x\n"}, [], None, "ä"], list(range(5000))])
async def test_a_list_goes_out_as_json_stored_or_not(web: Web, task: Task, items: list[Any]) -> None:
    web.answers("/x", json=1)
    writer = task.results.writer("default", listed=True)
    await writer.add(items)
    made = await writer.commit()
    meta = RefMeta(made.bytes, made.sha256, made.content_type, rows=made.rows)
    ref = ResultRef(LIST, task.results.name, ref_text(1, "load", made.sha256), meta)

    await task(web.url("/x"), method="POST", body=ref)
    await task(web.url("/x"), method="POST", body=items)

    assert [json.loads(request.body) for request in web.requests] == [items, items]
    assert {request.headers["content-type"] for request in web.requests} == {"application/json"}


async def test_a_stored_list_is_cut_anywhere() -> None:
    whole = b'{"a":1}\n2\n"x"\n'
    for size in range(1, len(whole) + 1):

        async def lines(size: int = size) -> AsyncIterator[bytes]:
            for at in range(0, len(whole), size):
                yield whole[at : at + size]

        assert b"".join([chunk async for chunk in as_array(lines())]) == b'[{"a":1},2,"x"]'


async def test_a_stored_result_that_is_gone(web: Web, task: Task) -> None:
    web.answers("/x", json=1)
    ref = ResultRef(DATA, "memory", ref_text(1, "load", "0" * 64), RefMeta(5, "0" * 64))
    outcome = await task(web.url("/x"), method="PUT", body=ref)
    assert outcome.error is not None
    assert outcome.error.kind == "result"


@pytest.mark.parametrize(
    ("kind", "fields", "sent"),
    [
        ("bearer", {"token": "t0k"}, "Bearer t0k"),
        ("oauth2", {"access_token": "acc"}, "Bearer acc"),
        ("secret", {"value": "v"}, "Bearer v"),
        ("env", {"value": "v"}, "Bearer v"),
        ("file", {"value": "v"}, "Bearer v"),
        ("basic", {"username": "ü", "password": "p:q"}, "Basic w7w6cDpx"),
    ],
)
async def test_credentials(web: Web, task: Task, kind: str, fields: dict[str, Any], sent: str) -> None:
    web.answers("/x", json=1)
    await task(web.url("/x"), context={"auth": Credential("api", kind, fields, ())})
    assert web.requests[0].headers["authorization"] == sent


@pytest.mark.parametrize(
    ("credential", "says"),
    [
        (Credential("pg", "postgres_credential", {"password": "hunter2"}, ()), "pg is a postgres_credential"),
        (Credential("api", "file", {"value": "hunter2\n"}, ()), "a header must not contain"),
        (Credential("api", "bearer", {"token": ""}, ()), "has no token"),
    ],
)
async def test_credentials_that_cannot_be_sent(web: Web, task: Task, credential: Credential, says: str) -> None:
    outcome = await task(web.url("/x"), context={"auth": credential})
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert says in outcome.error.message
    assert "hunter2" not in outcome.error.message
    assert not web.requests


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"method": "GET /x HTTP/1.1\r\nX: y"}, "not a request method"),
        ({"method": ""}, "not a request method"),
        ({"method": "CONNECT"}, "not a request method"),
        ({"headers": {"X": "a\r\nY: b"}}, "headers.X: it contains a line break"),
        ({"headers": {"X": "a\0"}}, "control character"),
        ({"headers": {"X: a\r\nY": "b"}}, "cannot be the name of a header"),
        ({"headers": {"": "b"}}, "cannot be the name of a header"),
        ({"headers": {"X": "\ud800"}}, "surrogate"),
        ({"headers": {"X": {"a": 1}}}, "headers.X: it must be a text"),
        ({"headers": {"x": "1", "X": "2"}}, "is set twice"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "set by the client itself"),
        ({"headers": {"content-length": "3"}}, "set by the client itself"),
        ({"headers": {"Connection": "upgrade"}}, "set by the client itself"),
        ({"json": 1, "body": "x"}, "json and body cannot be combined"),
        ({"form": {}, "multipart": []}, "form and multipart cannot be combined"),
        ({"body": {"a": "\ud800"}}, "body: it contains a lone surrogate"),
        ({"body": "\udc00"}, "body: it contains a lone surrogate"),
        ({"json": ["\ud800"]}, "json: it contains a lone surrogate"),
        ({"form": {"a": "\ud800"}}, "form.a: it contains a lone surrogate"),
        ({"params": {"a": {"b": 1}}}, "params.a: it must be a text"),
        ({"multipart": [{"name": "f", "content": [1]}]}, "multipart[0].content"),
        ({"multipart": [{"name": "f", "content": "x", "content_type": "a\r\nb"}]}, "line break"),
        ({"verify": False}, "http.allow_insecure"),
        ({"decode": "xml"}, "decode"),
    ],
)
async def test_what_cannot_be_asked_is_refused_before_anything_is_sent(
    web: Web, task: Task, config: dict[str, Any], says: str
) -> None:
    outcome = await task(web.url("/x"), **config)
    assert outcome.error is not None
    assert outcome.error.kind == "config"
    assert not outcome.error.retryable
    assert says in outcome.error.message
    assert not web.requests


async def test_auth_and_a_header_of_ones_own_are_too_much(web: Web, task: Task) -> None:
    auth = Credential("api", "bearer", {"token": "t"}, ())
    outcome = await task(web.url("/x"), headers={"authorization": "Bearer u"}, context={"auth": auth})
    assert outcome.error is not None
    assert "remove one of them" in outcome.error.message


async def test_connections_are_reused_and_no_cookie_is_kept(web: Web, task: Task) -> None:
    web.answers("/in", json=1, headers=[("Set-Cookie", "session=1"), ("Set-Cookie", "b=2")])
    web.answers("/next", json=1)

    first = await task(web.url("/in"))
    await task(web.url("/next"))

    assert first.result["headers"]["set-cookie"] == "session=1, b=2"
    assert [request.connection for request in web.requests] == [1, 1]
    assert "cookie" not in web.requests[1].headers
