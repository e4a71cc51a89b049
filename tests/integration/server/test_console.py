"""The console's files: what browsers get at which address, how long they keep it, and what stays the API's."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from arclog.server import console
from arclog.server.auth.sessions import check_host
from tests.servers.arclog import RunningServer

HTML = {"accept": "text/html,application/xhtml+xml"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    built = tmp_path / "static"
    (built / "assets").mkdir(parents=True)
    (built / "index.html").write_text("<!doctype html><title>arclog</title>")
    (built / "theme.js").write_text("1;")
    (built / "logo.svg").write_text("<svg/>")
    (built / "assets/index-abc123.js").write_text("console;" * 1000)
    (built / "assets/index-abc123.js.gz").write_bytes(gzip.compress(b"console;" * 1000))
    (built / "assets/index-abc123.js.br").write_bytes(b"brotli")
    (built / "built-from").write_text("digest")
    return built


@pytest.fixture
async def client(folder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async def api(request: object) -> JSONResponse:
        return JSONResponse({"api": True})

    app = Starlette(routes=[Route("/api/executions", api), Route("/health", api)])
    transport = httpx2.ASGITransport(app=console.Console(app, folder))
    async with httpx2.AsyncClient(transport=transport, base_url="http://console", verify=False) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/runs", "/runs/380452616754167808", "/runs?state=FAILED", "/a/b.c/d", "/index.html"]
)
async def test_every_place_of_the_console_is_its_page(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path, headers=HTML)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<title>arclog</title>" in answer.text
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["content-security-policy"] == console.POLICY
    assert "unsafe" not in console.POLICY
    for name in ("x-frame-options", "cross-origin-opener-policy", "cross-origin-resource-policy", "permissions-policy"):
        assert answer.headers[name]
    again = await client.get(path, headers={**HTML, "if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


async def test_files_with_a_hash_in_their_names_are_kept_for_ever(client: httpx2.AsyncClient) -> None:
    path = "/assets/index-abc123.js"
    plain = await client.get(path, headers={"accept-encoding": "identity"})
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8"
    assert plain.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert plain.content == b"console;" * 1000
    packed = await client.get(path, headers={"accept-encoding": "gzip, deflate"})
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert packed.content == plain.content
    request = client.build_request("GET", path, headers={"accept-encoding": "gzip, br"})
    best = await client.send(request, stream=True)
    assert best.headers["content-encoding"] == "br"
    await best.aclose()
    head = await client.head(path)
    assert (head.status_code, head.content) == (200, b"")


async def test_what_is_no_page_stays_the_apis(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/api/executions", headers=HTML)).json() == {"api": True}
    assert (await client.get("/health", headers=HTML)).json() == {"api": True}
    for path in ("/api", "/api/", "/api/nothing", "/assets/other.js"):
        assert (await client.get(path, headers=HTML)).status_code == 404, path
    for path in ("/nothing", "/built-from"):
        assert (await client.get(path)).status_code == 404, path
    assert (await client.post("/", headers=HTML)).status_code in (404, 405)
    assert (await client.get("/theme.js")).headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path", ["/../server/app.py", "/assets/%2e%2e/built-from", "/..%2fapp.py", "/static/index.html", "//etc/passwd"]
)
async def test_nothing_outside_of_the_folder_is_served(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code == 404 or "<title>arclog</title>" in answer.text


async def test_a_real_server_keeps_the_apis_answers_as_they_are(control_plane: RunningServer) -> None:
    async with control_plane.client() as client:
        answer = await client.get("/api/nothing", headers=HTML)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:8420", 200), ("localhost", 200), ("rebound.example", 403), ("10.0.0.7", 403)]
)
async def test_a_server_can_refuse_its_pages_by_the_name_it_is_called(folder: Path, host: str, status: int) -> None:
    async def is_open(headers: Mapping[str, str]) -> bool:
        check_host(headers)
        return True

    transport = httpx2.ASGITransport(app=console.Console(Starlette(), folder, is_open))
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", verify=False) as client:
        for path in ("/", "/runs/1", "/assets/index-abc123.js"):
            answer = await client.get(path, headers=HTML)
            assert answer.status_code == status, path
            assert ("arclog</title>" in answer.text) is (status == 200 and path != "/assets/index-abc123.js")
            assert answer.headers.get("server-timing") == ("open" if status == 200 else None)
