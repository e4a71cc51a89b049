"""What kind object promises of every place: the same tests on files and on a real S3 server."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from arclog.model.config.settings import Settings
from arclog.tools.object.kind import KIND, ObjectConfig, ObjectTool
from tests.servers.s3 import S3Server, s3_server
from tests.unit.tools.object.support import NOWHERE, Runner


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture(params=["file", "s3"])
async def run(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Runner]:
    settings = Settings(
        {"object.file_root": str(tmp_path), "home": str(tmp_path / ".arclog"), "http.allow_networks": "loopback"}
    )
    tool = ObjectTool(settings, NOWHERE)
    if request.param == "file":
        runner = Runner(tool)
    else:
        server: S3Server = request.getfixturevalue("s3")
        runner = Runner(tool, endpoint=server.endpoint, allow_http=True)
        runner.base = f"s3://{server.bucket(f'bucket-{uuid4().hex}')}/"
    yield runner
    await tool.close()


def test_the_kind_says_what_the_config_takes() -> None:
    declared = {field.name: field.required for field in KIND.spec.fields}
    assert declared == {field.name: field.required for field in msgspec.structs.fields(ObjectConfig)}


@pytest.mark.parametrize(
    ("content", "content_type", "name"),
    [
        ("grüße\0\n", "text/plain; charset=utf-8", "a.txt"),
        ({"b": [1, 2.5, None, "x"]}, "application/json", "deep/er/a.json"),
        ([], "application/json", "empty list.json"),
        ("", "text/plain; charset=utf-8", "leer ü.txt"),
        (None, "application/json", "null.json"),
    ],
)
async def test_what_is_put_is_got_back(run: Runner, content: Any, content_type: str, name: str) -> None:
    put_data = await run.data("put", run.base + name, content=content)
    body = content.encode() if isinstance(content, str) else msgspec.json.encode(content)
    assert (put_data["size"], put_data["sha256"]) == (len(body), hashlib.sha256(body).hexdigest())
    assert put_data["content_type"] == content_type
    assert put_data["etag"]
    store = "file" if not run.base else run.base.rstrip("/")
    assert (put_data["url"], put_data["store"], put_data["key"]) == (run.base + name, store, name)

    outcome = await run("get", run.base + name)
    assert outcome.error is None
    assert outcome.data_at == "data"
    assert outcome.result["data"] == content
    assert (outcome.result["url"], outcome.result["size"]) == (run.base + name, len(body))
    assert outcome.result["etag"] == put_data["etag"]

    head = await run.data("head", run.base + name)
    assert (head["size"], head["etag"]) == (len(body), put_data["etag"])
    assert head["last_modified"].endswith("Z")


async def test_what_is_not_there(run: Runner) -> None:
    for action in ("get", "head"):
        problem = await run.failure(action, run.base + "nothing.txt")
        assert (problem.kind, problem.retryable) == ("not_found", False)
        assert problem.message == f"{run.base}nothing.txt: there is no such object"
    assert await run.data("delete", run.base + "nothing.txt") == {"deleted": 1}
    assert await run.data("list", run.base + "no/folder") == []


async def test_a_put_replaces_and_if_absent_does_not(run: Runner) -> None:
    await run.data("put", run.base + "a.txt", content="one")
    await run.data("put", run.base + "a.txt", content="two")
    problem = await run.failure("put", run.base + "a.txt", content="three", if_absent=True)
    assert (problem.kind, problem.code) == ("conflict", "EXISTS")
    assert await run.data("get", run.base + "a.txt") == "two"
    await run.data("put", run.base + "b.txt", content="three", if_absent=True)
    assert await run.data("get", run.base + "b.txt") == "three"


async def test_one_of_many_creators_wins(run: Runner) -> None:
    many = [run("put", run.base + "lock", content=str(n), if_absent=True) for n in range(8)]
    outcomes = await asyncio.gather(*many)
    won = [n for n, outcome in enumerate(outcomes) if outcome.error is None]
    assert len(won) == 1
    assert await run.data("get", run.base + "lock") == str(won[0])


@pytest.mark.parametrize(
    ("part", "wanted", "span"),
    [
        ({"start": 2, "end": 5}, "234", (2, 5)),
        ({"start": 7}, "789", (7, 10)),
        ({"end": 3}, "012", (0, 3)),
        ({"last": 4}, "6789", (6, 10)),
        ({"last": 40}, "0123456789", (0, 10)),
        ({"start": 5, "end": 500}, "56789", (5, 10)),
        ({"start": 50, "end": 500}, "", (10, 10)),
        ({"start": 3, "end": 3}, "", (3, 3)),
    ],
)
async def test_ranges(run: Runner, part: dict[str, int], wanted: str, span: tuple[int, int]) -> None:
    await run.data("put", run.base + "digits.txt", content="0123456789")
    outcome = await run("get", run.base + "digits.txt", range=part)
    assert outcome.result["data"] == wanted
    assert outcome.result["range"] == {"start": span[0], "end": span[1]}
    assert outcome.result["size"] == 10


async def test_lists(run: Runner) -> None:
    for name in ("a/1.txt", "a/b/2.txt", "ab.txt", "c.txt"):
        await run.data("put", run.base + name, content=name)
    outcome = await run("list", run.base or ".")
    assert [row["path"] for row in outcome.result["data"]] == ["a/1.txt", "a/b/2.txt", "ab.txt", "c.txt"]
    assert outcome.result["count"] == 4
    row = outcome.result["data"][0]
    assert (row["url"], row["size"]) == (run.base + "a/1.txt", 7)
    assert row["etag"]
    assert row["last_modified"]
    # A prefix is a folder: `a` is not `ab.txt`.
    for prefix in ("a", "a/"):
        assert [row["path"] for row in await run.data("list", run.base + prefix)] == ["a/1.txt", "a/b/2.txt"]
    shallow = await run("list", run.base + "a", recursive=False)
    assert [row["path"] for row in shallow.result["data"]] == ["a/1.txt"]
    assert shallow.result["folders"] == ["a/b"]


async def test_a_long_list_is_stored_and_too_long_a_one_is_refused(run: Runner) -> None:
    for n in range(12):
        await run.data("put", f"{run.base}many/{n:02}", content="x")
    outcome = await run("list", run.base + "many")
    assert outcome.stored.rows == 12
    assert "data" not in outcome.result
    rows = await run.results.items("default", outcome.stored.sha256, 0, 100)
    assert [row["path"] for row in rows] == [f"many/{n:02}" for n in range(12)]
    problem = await run.failure("list", run.base + "many", max_keys=11)
    assert (problem.kind, problem.code) == ("limit", "max_keys")
    assert "more than 11 objects" in problem.message


async def test_several_are_deleted_or_none_when_one_is_no_key(run: Runner) -> None:
    for name in ("d/1", "d/2", "d/3"):
        await run.data("put", run.base + name, content="x")
    problem = await run.failure("delete", run.base + "d", keys=["1", "../2"])
    assert problem.kind == "config"
    assert len(await run.data("list", run.base + "d")) == 3
    assert await run.data("delete", run.base + "d", keys=["1", "3", "never"]) == {"deleted": 3}
    assert [row["path"] for row in await run.data("list", run.base + "d")] == ["d/2"]


async def test_large_and_binary_content_is_stored(run: Runner) -> None:
    text = "line\n" * 500
    await run.data("put", run.base + "large.txt", content=text)
    outcome = await run("get", run.base + "large.txt")
    assert "data" not in outcome.result
    assert await run.stored(outcome) == text.encode()
    assert outcome.stored.content_type.startswith("text/plain")

    await run.data("put", run.base + "raw", content="AP+A", encoding="base64", content_type="image/png")
    outcome = await run("get", run.base + "raw", content_type="image/png")
    assert (await run.stored(outcome), outcome.stored.content_type) == (b"\x00\xff\x80", "image/png")
    outcome = await run("get", run.base + "raw", content_type="application/octet-stream")
    assert await run.stored(outcome) == b"\x00\xff\x80"


async def test_content_that_is_not_what_it_says(run: Runner) -> None:
    await run.data("put", run.base + "bad.json", content="{not json", content_type="application/json")
    problem = await run.failure("get", run.base + "bad.json")
    assert (problem.kind, problem.code) == ("exception", "NotJSON")
    assert "decode: text" in problem.message
    assert await run.data("get", run.base + "bad.json", decode="text") == "{not json"
    await run.data("put", run.base + "latin.txt", content="5A==", encoding="base64")
    problem = await run.failure("get", run.base + "latin.txt", decode="text")
    assert (problem.kind, problem.code) == ("exception", "NotText")


async def test_stored_results_are_streamed_up(run: Runner) -> None:
    body = b"0123456789abcdef" * 1_250_000  # 20 MB: three parts
    ref = await run.ref(body, "application/x-thing")
    put_data = await run.data("put", run.base + "big.bin", content=ref)
    assert (put_data["size"], put_data["sha256"]) == (len(body), ref.meta.sha256)
    assert put_data["content_type"] == "application/x-thing"
    done, total, unit = run.recorder.progress[-1]
    assert (done, total, unit) == (len(body), len(body), "bytes")
    outcome = await run("get", run.base + "big.bin", content_type="application/x-thing")
    assert outcome.stored.sha256 == ref.meta.sha256

    rows = await run.ref([{"n": 1}, {"n": 2}])
    assert (await run.data("put", run.base + "rows", content=rows))["content_type"] == "application/x-ndjson"
    assert await run.data("get", run.base + "rows", content_type="text/plain") == '{"n":1}\n{"n":2}\n'


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"action": "get", "content": "x"}, "content belongs to action put, not to get"),
        ({"action": "put"}, "action put needs `content`"),
        ({"action": "put", "content": "a\ud800b"}, "lone surrogate"),
        ({"action": "put", "content": "?", "encoding": "base64"}, "not base64"),
        ({"action": "put", "content": 1, "encoding": "base64"}, "must be a base64 text"),
        ({"action": "get", "range": {"start": 5, "end": 2}}, "not a range"),
        ({"action": "get", "range": {"start": 5, "last": 2}}, "range takes start and end"),
        ({"action": "get", "range": {}}, "range takes"),
        ({"action": "list", "max_keys": 0}, "below 1"),
    ],
)
async def test_configs_that_cannot_be_meant(run: Runner, config: dict[str, Any], message: str) -> None:
    rest = {name: value for name, value in config.items() if name != "action"}
    problem = await run.failure(config["action"], run.base + "x", **rest)
    assert problem.kind == "config"
    assert message in problem.message


@pytest.mark.parametrize("name", ["../x", "a/../../x", "a/..", "a\0b", "a\nb", "a\ud800", "", "a/"])
async def test_names_that_no_object_may_have(run: Runner, name: str) -> None:
    for action, more in (("get", {}), ("put", {"content": "x"}), ("delete", {}), ("head", {})):
        assert (await run.failure(action, run.base + name, **more)).kind == "config"


async def test_a_source_that_breaks_leaves_nothing(run: Runner) -> None:
    ref = await run.ref(b"x" * 20_000_000)
    run.results.kept.clear()
    problem = await run.failure("put", run.base + "a", content=ref)
    assert problem.kind == "result"
    assert await run.data("list", run.base or ".") == []
