"""Requests to a server that is away, busy, elsewhere, or none at all."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from arclog.client import AsyncClient
from arclog.client.connection import Connection, checked_url, checked_urls
from arclog.model import errors
from arclog.model.config.settings import Settings
from tests.servers.certs import certificate
from tests.servers.web import ReceivedRequest, Web, Wire

ID = "380452616754167808"
STATUS = {
    "execution_id": ID,
    "state": "RUNNING",
    "current_step": None,
    "started_at": None,
    "ended_at": None,
    "terminal_event": None,
    "completion_inferred": False,
}
PATH = f"/api/executions/{ID}/status"


def problem(status: int, title: str, detail: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        yield server


def busy_first(web: Web, path: str, status: int, times: int) -> None:
    """Answer as a server that is busy so many times, then well."""
    left = [times]

    @web.route(path)
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        if left[0]:
            left[0] -= 1
            await wire.answer(status, b"{}", {"Retry-After": "0", "Content-Type": "application/problem+json"})
        else:
            await wire.answer(200, b'{"ok":1}', {"Content-Type": "application/json"})


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_safe_request_is_repeated_while_the_server_is_busy(web: Web, status: int) -> None:
    busy_first(web, "/x", status, 3)
    connection = Connection(web.url(""), Settings())
    assert await connection.ask("GET", "/x") == b'{"ok":1}'
    assert len(web.requests) == 4
    await connection.close()


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_what_is_not_safe_is_never_sent_twice(web: Web, status: int) -> None:
    busy_first(web, "/x", status, 3)
    connection = Connection(web.url(""), Settings())
    with pytest.raises(errors.ServerUnavailable):
        await connection.ask("POST", "/x", body=b"{}")
    assert len(web.requests) == 1
    # 429 says that nothing was done.
    busy_first(web, "/x", 429, 1)
    assert await connection.ask("POST", "/x", body=b"{}") == b'{"ok":1}'
    await connection.close()


async def test_patience_ends_and_says_what_the_server_said(web: Web) -> None:
    web.answers(
        "/x", status=503, json=problem(503, "StoreUnavailable", "the disk is full"), kind="application/problem+json"
    )
    connection = Connection(web.url(""), Settings({"client.patience_s": 0.2}))
    with pytest.raises(errors.StoreUnavailable, match="the disk is full"):
        await connection.ask("GET", "/x")
    assert len(web.requests) > 1
    await connection.close()


async def test_an_answer_that_breaks_off_is_asked_for_again(web: Web) -> None:
    cut = [2]

    @web.route("/x")
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        if cut[0]:
            cut[0] -= 1
            await wire.head(200, {"Content-Length": "100"})
            await wire.raw(b"half")
            wire.cut(reset=True)
        else:
            await wire.answer(200, b"whole")

    web.answers("/first", b"ok")
    connection = Connection(web.url(""), Settings())
    await connection.ask("GET", "/first")
    assert await connection.ask("GET", "/x") == b"whole"
    await connection.close()


async def test_a_server_that_never_was_there_is_said_at_once() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        async with AsyncClient(url, settings=Settings({"client.patience_s": 3600.0})) as client:
            with pytest.raises(errors.ServerUnavailable, match=r"cannot be reached.*arclog up") as caught:
                await client.status(ID)
    assert url in str(caught.value)


async def test_a_server_that_went_away_is_waited_for() -> None:
    web = Web()
    with web:
        web.answers(PATH, json=STATUS)
        client = AsyncClient(web.url(""))
        assert (await client.status(ID)).state == "RUNNING"
    waiting_task = asyncio.ensure_future(client.status(ID))
    await asyncio.sleep(0)
    with Web(port=web.port) as again:
        again.answers(PATH, json={**STATUS, "state": "COMPLETED"})
        assert (await waiting_task).state == "COMPLETED"
    await client.close()


@pytest.mark.parametrize(
    ("status", "title", "kind"),
    [
        (404, "NotFound", errors.NotFound),
        (401, "Unauthenticated", errors.Unauthenticated),
        (403, "NotAllowed", errors.NotAllowed),
        (413, "RequestTooLarge", errors.RequestTooLarge),
        (409, "Conflict", errors.Conflict),
        (409, "StaleFence", errors.StaleFence),
        (422, "RequestRejected", errors.RequestRejected),
        (404, "ResultUnavailable", errors.ResultUnavailable),
        (422, "SomethingNew", errors.RequestRejected),
        (404, "HTTPException", errors.RequestRejected),
        (500, "InternalError", errors.ServerFailed),
    ],
)
async def test_a_problem_is_the_exception_that_the_server_raised(web: Web, status: int, title: str, kind: Any) -> None:
    web.answers(PATH, status=status, json=problem(status, title, "what, where, what to do"))
    async with AsyncClient(web.url(""), token="t") as client:
        with pytest.raises(kind, match="what, where, what to do") as caught:
            await client.status(ID)
        assert type(caught.value) is kind


async def test_a_gap_in_a_report_says_what_is_expected(web: Web) -> None:
    web.answers("/x", status=409, json=problem(409, "ReportGap", "send 3 first", expected=3))
    connection = Connection(web.url(""), Settings())
    with pytest.raises(errors.ReportGap, match=r"^send 3 first$") as caught:
        await connection.ask("GET", "/x")
    assert caught.value.expected == 3
    await connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        {"body": b"<html>hello</html>", "kind": "text/html"},
        {"body": b"<html>no</html>", "kind": "text/html", "status": 404},
        {"json": {"execution_id": 1}},
        {"json": [1]},
        {"body": b"{", "kind": "application/json"},
        {"body": b"[" * 100_000, "kind": "application/json"},
        {"body": b"{", "kind": "application/problem+json", "status": 422},
        {"status": 302, "headers": {"Location": "http://127.0.0.1:1/"}},
    ],
)
async def test_what_is_no_arclog_server_is_said(web: Web, answer: dict[str, Any]) -> None:
    web.answers(PATH, **answer)
    async with AsyncClient(web.url("")) as client:
        with pytest.raises(errors.ServerUnavailable):
            await client.status(ID)


async def test_the_token_goes_to_the_server_and_nowhere_else(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    with Web() as elsewhere:
        elsewhere.answers(PATH, json=STATUS)
        web.answers(PATH, status=307, headers={"Location": elsewhere.url(PATH)})
        async with AsyncClient(web.url(""), token="s3cret") as client:
            with pytest.raises(errors.ServerUnavailable, match="sends its callers on") as caught:
                await client.status(ID)
        assert elsewhere.requests == []
    assert web.requests[0].headers["authorization"] == "Bearer s3cret"
    assert "s3cret" not in str(caught.value)
    web.answers(PATH, json=STATUS)
    monkeypatch.setenv("ARCLOG_TOKEN", "from-env")
    async with AsyncClient(web.url("")) as client:
        await client.status(ID)
    assert web.requests[1].headers["authorization"] == "Bearer from-env"
    monkeypatch.delenv("ARCLOG_TOKEN")
    async with AsyncClient(web.url("")) as client:
        await client.status(ID)
    assert "authorization" not in web.requests[2].headers


async def test_a_token_comes_from_a_file(web: Web, tmp_path: Path) -> None:
    web.answers(PATH, json=STATUS)
    file = tmp_path / "token"
    file.write_text("from-file\n")
    async with AsyncClient(web.url(""), settings=Settings({"client.token_file": str(file)})) as client:
        await client.status(ID)
    assert web.requests[0].headers["authorization"] == "Bearer from-file"
    with pytest.raises(errors.SettingsError, match="no-such"):
        AsyncClient(web.url(""), settings=Settings({"client.token_file": str(tmp_path / "no-such")}))
    with pytest.raises(errors.SettingsError, match="contains invalid characters"):
        AsyncClient(web.url(""), token="two words")


async def test_who_has_no_token_is_told_where_to_put_one(web: Web) -> None:
    web.answers(PATH, status=401, json=problem(401, "Unauthenticated", "nobody can tell who asks"))
    async with AsyncClient(web.url("")) as client:
        with pytest.raises(errors.Unauthenticated, match="ARCLOG_TOKEN"):
            await client.status(ID)


async def test_certificates_are_verified(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    with Web(certificate=made) as web:
        web.answers(PATH, json=STATUS)
        async with AsyncClient(web.url("")) as client:
            with pytest.raises(errors.ServerUnavailable, match=r"(?i)certificate"):
                await client.status(ID)
        assert web.requests == []
        async with AsyncClient(web.url(""), settings=Settings({"client.ca_file": str(made.authority)})) as client:
            assert (await client.status(ID)).state == "RUNNING"
    with pytest.raises(errors.SettingsError, match=r"no-such\.pem"):
        AsyncClient("https://127.0.0.1:1", settings=Settings({"client.ca_file": str(tmp_path / "no-such.pem")}))


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8420", "ftp://x", "http://", "http://u:p@x", "http://x?a=1", "http://x:y"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(errors.SettingsError) as caught:
        checked_url(url)
    assert "u:p" not in str(caught.value)


def test_an_address_may_have_a_path() -> None:
    assert checked_url("https://x.example/arclog/") == "https://x.example/arclog"


async def test_an_id_stays_one_part_of_the_path(web: Web) -> None:
    async with AsyncClient(web.url("")) as client:
        with pytest.raises(errors.ArclogError):
            await client.status("../x?y#z")
    assert web.requests[0].target == "/api/executions/..%2Fx%3Fy%23z/status"


async def test_a_server_that_lets_go_of_a_wait_is_asked_again(web: Web) -> None:
    heads = [{"head": 3, "ended": False, "pausing": False}] * 2 + [{"head": 9, "ended": True, "pausing": False}]

    @web.route(f"/api/executions/{ID}/head")
    async def answer(_: ReceivedRequest, wire: Wire) -> None:
        await wire.answer(200, json.dumps(heads.pop(0)).encode(), {"Content-Type": "application/json"})

    async with AsyncClient(web.url("")) as client:
        assert await client.ended(ID)
    assert len(web.requests) == 3
    assert dict(web.requests[0].query)["until"] == "ended"
    assert float(dict(web.requests[0].query)["timeout_s"]) == Settings().number("client.poll_s")


async def test_of_several_servers_the_next_is_asked_when_one_is_away(web: Web, dead_port: int) -> None:
    web.answers("/x", b'{"ok":1}')
    for _ in range(8):  # whichever it begins with
        connection = Connection(f"http://127.0.0.1:{dead_port}, {web.url('')}", Settings())
        assert await connection.ask("GET", "/x") == b'{"ok":1}'
        assert connection.url == web.url("").rstrip("/")
        await connection.close()


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_server_that_cannot_work_now_is_left_for_another(web: Web, status: int) -> None:
    busy_first(web, "/x", status, 1_000_000)
    with Web() as other:
        other.answers("/x", b'{"ok":1}')
        for _ in range(8):
            connection = Connection(f"{web.url('')},{other.url('')}", Settings())
            assert await connection.ask("GET", "/x") == b'{"ok":1}'
            await connection.close()
        # What is not safe to send twice is not, whoever else is there; the next request goes elsewhere.
        connection = Connection(web.url(""), Settings())
        connection._urls = (web.url("").rstrip("/"), other.url("").rstrip("/"))
        connection._at = 0
        with pytest.raises(errors.ServerUnavailable):
            await connection.ask("POST", "/x", body=b"{}")
        assert not [request for request in other.requests if request.method == "POST"]
        assert await connection.ask("POST", "/x", body=b"{}") == b'{"ok":1}'
        await connection.close()


async def test_when_all_are_away_it_says_so(dead_port: int) -> None:
    connection = Connection(f"http://127.0.0.1:{dead_port},http://localhost:{dead_port}", Settings())
    with pytest.raises(errors.ServerUnavailable, match="cannot be reached"):
        await connection.ask("GET", "/x")
    await connection.close()


def test_several_addresses_are_checked_one_by_one() -> None:
    assert checked_urls("http://a:1/, http://b:2,http://a:1") == ("http://a:1", "http://b:2")
    with pytest.raises(errors.SettingsError, match="sent unencrypted"):
        checked_urls("http://a,https://b")
    with pytest.raises(errors.SettingsError, match="not an address"):
        checked_urls("http://a,,")


@pytest.fixture
def dead_port() -> Iterator[int]:
    """Bound, and nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


async def test_a_proxy_is_used_for_servers_on_other_machines(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", web.url(""))
    monkeypatch.delenv("NO_PROXY", raising=False)
    web.answers(PATH, json=STATUS)
    async with AsyncClient("http://arclog.invalid:8420", token="t") as client:
        assert (await client.status(ID)).state == "RUNNING"
    assert web.requests[0].target == f"http://arclog.invalid:8420{PATH}"
    with Web() as fake:
        fake.answers(PATH, json=STATUS)
        async with AsyncClient(fake.url("")) as client:
            assert (await client.status(ID)).state == "RUNNING"
    assert len(web.requests) == 1


@pytest.mark.parametrize("url", ["http://x\t.example", "http://x y", "http://[::1", "http://x\n"])
def test_an_odd_character_is_never_dropped_from_an_address(url: str) -> None:
    with pytest.raises(errors.SettingsError):
        checked_url(url)


def test_names_and_addresses_of_all_kinds_are_taken() -> None:
    assert checked_url("http://[::1]:8420") == "http://[::1]:8420"
    assert checked_url("https://bücher.example") == "https://xn--bcher-kva.example"
    assert checked_url("http://HOST:80/a b/".replace(" ", "%20")) == "http://host:80/a%20b"
