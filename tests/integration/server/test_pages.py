"""Pages for a browser: they need nothing from elsewhere, allow nothing of anybody else, and hold every operation."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import AsyncIterator
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx2
import pytest

from arclog.server import console
from arclog.server.pages.reference import reference_page
from tests.servers.arclog import RunningServer, running


class Page(HTMLParser):
    """What stands in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        #: addresses that a browser would fetch by itself
        self.loaded: list[str] = []
        self.inline: dict[str, list[str]] = {"style": [], "script": []}
        self.handlers: list[str] = []
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self._open = tag
        self.ids += [attributes["id"] or ""] if "id" in attributes else []
        self.links += [attributes["href"] or ""] if tag == "a" and "href" in attributes else []
        self.loaded += [str(attributes[name]) for name in ("src", "srcset", "action") if name in attributes]
        self.loaded += [str(attributes["href"])] if tag == "link" else []
        self.handlers += [name for name in attributes if name.startswith("on") or name == "style"]

    def handle_data(self, data: str) -> None:
        if self._open in self.inline and data.strip():
            self.inline[self._open].append(data)

    def handle_endtag(self, tag: str) -> None:
        self._open = ""


async def fetched(server: RunningServer, path: str) -> httpx2.Response:
    async with httpx2.AsyncClient(trust_env=False, verify=False) as client:
        return await client.get(f"{server.url}{path}")


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RunningServer]:
    """A server without the console, whether it is built here or not."""
    monkeypatch.setattr(console.Console.__init__, "__defaults__", (tmp_path / "nothing", None))
    async with running(tmp_path / "home", worker=False) as started:
        yield started


@pytest.mark.parametrize("path", ["/", "/api/docs"])
async def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing_of_others(server: RunningServer, path: str) -> None:
    answer = await fetched(server, path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    page = Page(answer.text)
    assert page.loaded == []
    assert page.handlers == []
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert "unsafe" not in answer.headers["content-security-policy"]
    for kind in ("style", "script"):
        for text in page.inline[kind]:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert policy[f"{kind}-src"] == f"'sha256-{digest}'"
    assert "prefers-color-scheme: dark" in page.inline["style"][0]


async def test_the_root_names_the_reference(server: RunningServer) -> None:
    text = (await fetched(server, "/")).text
    assert "./x ui build" in text
    page = Page(text)
    assert "/api/docs" in page.links
    for link in page.links:
        assert (await fetched(server, link)).status_code == 200


async def test_the_reference_has_every_operation_and_every_type_once(server: RunningServer) -> None:
    document = (await fetched(server, "/api/openapi.json")).json()
    answer = await fetched(server, "/api/docs")
    page = Page(answer.text)
    assert len(page.ids) == len(set(page.ids))
    anchors = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert anchors <= set(page.ids), "every link leads somewhere"
    operations = sum(len(methods) for methods in document["paths"].values())
    assert answer.text.count('<article class="operation"') == operations
    assert answer.text.count('<article class="schema"') == len(document["components"]["schemas"])
    assert "/api/docs" not in document["paths"], "pages are not part of the API"


async def test_examples_for_curl_are_commands_that_the_api_takes(server: RunningServer) -> None:
    """Each is a command; those that only look, and need nothing filled in, are answered."""
    text = (await fetched(server, "/api/docs")).text
    commands = [unescape(match) for match in re.findall(r"<pre>(curl .*?)</pre>", text, re.DOTALL)]
    assert len(commands) > 50
    tried = 0
    for command in commands:
        words = shlex.split(command)
        assert words[1].startswith("$ARCLOG_SERVER/")
        if "-d" in words and "application/json" in command:
            json.loads(words[words.index("-d") + 1])
        if "/api/session/" in command:
            continue  # where browsers go to sign in at an issuer, of which there is none here
        if "<" not in command and "-X" not in words and "-d" not in words and "--data-binary" not in words:
            answer = await fetched(server, words[1].removeprefix("$ARCLOG_SERVER"))
            assert answer.status_code == 200, command
            tried += 1
    assert tried > 5


def document(**operation: Any) -> dict[str, Any]:
    described = {"responses": {"200": {"description": "Done."}}, **operation}
    return {"info": {"version": "1"}, "paths": {"/x/{name}": {"post": described}}, "components": {"schemas": {}}}


def test_whatever_the_document_says_is_text() -> None:
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    page = reference_page(
        document(
            description=hostile,
            tags=[hostile],
            parameters=[{"name": hostile, "in": "query", "required": True, "schema": {"type": hostile}}],
            requestBody={"content": {"application/json": {"schema": {"enum": [hostile]}, "example": {"a": hostile}}}},
        ),
        "/api/openapi.json",
        "http://127.0.0.1:8420",
    )
    parsed = Page(page)
    assert len(parsed.inline["script"]) == 1
    assert (parsed.loaded, parsed.handlers) == ([], [])


def test_an_example_is_quoted_for_the_shell() -> None:
    body = {"content": {"application/json": {"schema": {}, "example": {"text": "it's $HOME `x`"}}}}
    page = reference_page(document(requestBody=body), "/d", "http://h")
    (command,) = [unescape(match) for match in re.findall(r"<pre>(curl .*?)</pre>", page, re.DOTALL)]
    words = shlex.split(command)
    assert json.loads(words[words.index("-d") + 1]) == {"text": "it's $HOME `x`"}
