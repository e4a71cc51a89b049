"""Buckets: values with revisions, writes that only the right revision lets through, and that a retry is one write."""

from __future__ import annotations

from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig

from tests.integration.tools.nats.conftest import Open, Runner


@pytest.fixture
async def bucket(js: JetStreamContext, name: str) -> str:
    await js.create_key_value(KeyValueConfig(bucket=name, history=8))
    return name


async def test_a_value_and_its_revision(run: Runner, bucket: str) -> None:
    written = await run.result("kv_put", bucket=bucket, key="a.b", data={"n": 1})
    assert written == {"bucket": bucket, "key": "a.b", "data": {"revision": 1}}
    read = await run.result("kv_get", bucket=bucket, key="a.b")
    assert read.pop("time").endswith("Z")
    assert read == {"bucket": bucket, "key": "a.b", "revision": 1, "as": "json", "data": {"n": 1}}


async def test_other_clients_see_the_same(run: Runner, js: JetStreamContext, bucket: str) -> None:
    kv = await js.key_value(bucket)
    await run.data("kv_put", bucket=bucket, key="ours", data="text")
    assert (await kv.get("ours")).value == b"text"
    await kv.put("theirs", b"\xff")
    assert (await run.result("kv_get", bucket=bucket, key="theirs"))["as"] == "base64"
    await kv.delete("theirs")
    assert (await run.failure("kv_get", bucket=bucket, key="theirs")).code == "KEY_NOT_FOUND"


async def test_a_key_that_is_not_there(run: Runner, bucket: str) -> None:
    problem = await run.failure("kv_get", bucket=bucket, key="no")
    assert (problem.kind, problem.code, problem.retryable) == ("not_found", "KEY_NOT_FOUND", False)
    assert problem.message == f"key no of bucket {bucket} is not there"


@pytest.mark.parametrize(
    ("op", "config"),
    [
        ("kv_get", {"key": "k"}),
        ("kv_put", {"key": "k", "data": 1}),
        ("kv_create", {"key": "k", "data": 1}),
        ("kv_update", {"key": "k", "data": 1, "revision": 1}),
        ("kv_delete", {"key": "k"}),
        ("kv_keys", {}),
        ("kv_history", {"key": "k"}),
    ],
)
async def test_a_bucket_that_is_not_there(run: Runner, name: str, op: str, config: dict[str, Any]) -> None:
    problem = await run.failure(op, bucket=name, **config)
    assert (problem.kind, problem.code) == ("not_found", "BUCKET_NOT_FOUND")
    assert problem.message == f"there is no bucket {name}"


async def test_create_only_what_is_not_there(run: Runner, bucket: str) -> None:
    assert await run.data("kv_create", bucket=bucket, key="k", data=1) == {"revision": 1}
    problem = await run.failure("kv_create", bucket=bucket, key="k", data=2)
    assert (problem.kind, problem.code, problem.retryable) == ("conflict", "EXISTS", False)
    await run.data("kv_delete", bucket=bucket, key="k")
    assert await run.data("kv_create", bucket=bucket, key="k", data=3) == {"revision": 3}


async def test_update_only_what_nobody_changed(run: Runner, bucket: str) -> None:
    await run.data("kv_put", bucket=bucket, key="k", data=1)
    assert await run.data("kv_update", bucket=bucket, key="k", data=2, revision=1) == {"revision": 2}
    problem = await run.failure("kv_update", bucket=bucket, key="k", data=3, revision=1)
    assert (problem.kind, problem.code, problem.retryable) == ("conflict", "WRONG_REVISION", False)
    assert "its revision is not 1" in problem.message
    problem = await run.failure("kv_delete", bucket=bucket, key="k", revision=1)
    assert problem.code == "WRONG_REVISION"
    assert await run.data("kv_delete", bucket=bucket, key="k", revision=2) == {"revision": 3}


async def test_a_second_attempt_is_the_same_write(run: Runner, bucket: str) -> None:
    """Its acknowledgement was lost: what it meets is its own."""
    for _ in range(2):
        assert await run.data("kv_create", bucket=bucket, key="k", data=1, run_key="created") == {"revision": 1}
    for _ in range(2):
        again = {"bucket": bucket, "key": "k", "data": 2, "revision": 1, "run_key": "updated"}
        assert await run.data("kv_update", **again) == {"revision": 2}
    for _ in range(2):
        assert await run.data("kv_put", bucket=bucket, key="k", data=3, run_key="put") == {"revision": 3}
    for _ in range(2):
        assert await run.data("kv_delete", bucket=bucket, key="k", run_key="deleted") == {"revision": 4}


async def test_an_earlier_revision(run: Runner, bucket: str) -> None:
    for value in (10, 20):
        await run.data("kv_put", bucket=bucket, key="k", data=value)
    await run.data("kv_put", bucket=bucket, key="other", data=30)
    assert await run.data("kv_get", bucket=bucket, key="k", revision=1) == 10
    for revision in (3, 9):
        assert (await run.failure("kv_get", bucket=bucket, key="k", revision=revision)).code == "KEY_NOT_FOUND"


async def test_keys_that_are_there(run: Runner, bucket: str) -> None:
    assert await run.data("kv_keys", bucket=bucket) == []
    for key in ("a.1", "a.2", "b.1", "gone"):
        await run.data("kv_put", bucket=bucket, key=key, data=key)
    await run.data("kv_delete", bucket=bucket, key="gone")
    assert sorted(await run.data("kv_keys", bucket=bucket)) == ["a.1", "a.2", "b.1"]
    assert sorted(await run.data("kv_keys", bucket=bucket, filter="a.*")) == ["a.1", "a.2"]
    assert await run.data("kv_keys", bucket=bucket, filter="*.1.>") == []


async def test_many_keys_and_no_consumer_left(run: Runner, js: JetStreamContext, bucket: str) -> None:
    keys = [f"key.{index}" for index in range(1200)]
    messages = [{"subject": f"$KV.{bucket}.{key}", "data": 1} for key in keys]
    await run.data("publish", messages=messages, stream=f"KV_{bucket}")
    outcome = await run("kv_keys", bucket=bucket)
    assert (outcome.result["count"], outcome.stored.rows) == (1200, 1200)
    assert sorted(await run.results.items("default", outcome.stored.sha256, 0, 1200)) == sorted(keys)
    assert await js.consumers_info(f"KV_{bucket}") == []


async def test_history_with_what_was_done(run: Runner, bucket: str) -> None:
    await run.data("kv_put", bucket=bucket, key="k", data={"n": 1})
    await run.data("kv_put", bucket=bucket, key="k", data="text")
    await run.data("kv_delete", bucket=bucket, key="k")
    result = await run.result("kv_history", bucket=bucket, key="k")
    rows = result.pop("data")
    assert result == {"bucket": bucket, "key": "k", "count": 3}
    assert [(row["revision"], row["operation"], row.get("data")) for row in rows] == [
        (1, "put", {"n": 1}),
        (2, "put", "text"),
        (3, "delete", None),
    ]


async def test_history_of_values_that_must_be_json(run: Runner, bucket: str) -> None:
    await run.data("kv_put", bucket=bucket, key="k", data=[1])
    await run.data("kv_delete", bucket=bucket, key="k")
    rows = await run.data("kv_history", bucket=bucket, key="k", decode="json")
    assert [row.get("data") for row in rows] == [[1], None]
    await run.data("kv_put", bucket=bucket, key="k", data="no json")
    problem = await run.failure("kv_history", bucket=bucket, key="k", decode="json")
    assert (problem.code, "revision 3:" in problem.message) == ("NotJSON", True)


async def test_too_many_entries(opened: Open, run: Runner, js: JetStreamContext, bucket: str) -> None:
    for value in range(3):
        await run.data("kv_put", bucket=bucket, key="k", data=value)
    problem = await opened(run.url, nats__max_entries=2).failure("kv_history", bucket=bucket, key="k")
    assert (problem.kind, problem.code) == ("limit", "nats.max_entries")
    assert await js.consumers_info(f"KV_{bucket}") == []


async def test_a_key_that_expires(run: Runner, js: JetStreamContext, name: str) -> None:
    await js.add_stream(name=f"KV_{name}", subjects=[f"$KV.{name}.>"], allow_msg_ttl=True, max_msgs_per_subject=1)
    await run.data("kv_create", bucket=name, key="k", data=1, ttl_s=60)
    assert ((await js.get_msg(f"KV_{name}", 1)).headers or {})["Nats-TTL"] == "60s"


@pytest.mark.parametrize(
    ("op", "config", "said"),
    [
        ("kv_get", {"bucket": "a.b", "key": "k"}, "bucket must be a name"),
        ("kv_get", {"bucket": "b", "key": "a..b"}, "key: a key is made of"),
        ("kv_get", {"bucket": "b", "key": ">"}, "key: a key is made of"),
        ("kv_put", {"bucket": "b", "key": "é", "data": 1}, "key: a key is made of"),
        ("kv_keys", {"bucket": "b", "filter": "a b"}, "filter is a key with"),
        ("kv_update", {"bucket": "b", "key": "k", "data": 1}, "op kv_update needs `revision`"),
        (
            "kv_create",
            {"bucket": "b", "key": "k", "data": 1, "revision": 2},
            "revision belongs to op kv_get, kv_update",
        ),
    ],
)
async def test_what_cannot_be_asked(run: Runner, op: str, config: dict[str, Any], said: str) -> None:
    problem = await run.failure(op, **config)
    assert problem.kind == "config"
    assert said in problem.message
