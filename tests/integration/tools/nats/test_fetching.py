"""fetch and ack: nothing is acknowledged by being received, and what is acknowledged does not come again."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from arclog.tools.listing import Rows
from tests.integration.tools.nats.conftest import Open, Runner


@pytest.fixture
async def consumer(js: JetStreamContext, stream: str) -> str:
    await js.add_consumer(stream, ConsumerConfig(durable_name="work", ack_policy=AckPolicy.EXPLICIT, ack_wait=60))
    return "work"


async def filled(js: JetStreamContext, stream: str, count: int) -> None:
    for index in range(count):
        await js.publish(f"{stream}.n", str(index).encode(), headers={"X": "y"} if index == 0 else None)


async def waiting(js: JetStreamContext, stream: str) -> tuple[int, int]:
    """(not delivered yet, delivered and not acknowledged)"""
    info = await js.consumer_info(stream, "work")
    return info.num_pending or 0, info.num_ack_pending or 0


async def test_messages_with_what_is_known_of_them(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    await filled(js, stream, 3)
    result = await run.result("fetch", stream=stream, consumer=consumer, batch=2)
    rows = result.pop("data")
    assert result == {"stream": stream, "consumer": "work", "pending": 1, "count": 2}
    assert [(row["subject"], row["data"], row["as"], row["seq"], row["deliveries"]) for row in rows] == [
        (f"{stream}.n", 0, "json", 1, 1),
        (f"{stream}.n", 1, "json", 2, 1),
    ]
    assert [row["headers"] for row in rows] == [{"X": "y"}, {}]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", rows[0]["time"])
    assert rows[0]["ack"].startswith("$JS.ACK.")


async def test_what_is_fetched_stays_until_it_is_acknowledged(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    await filled(js, stream, 3)
    got = await run.data("fetch", stream=stream, consumer=consumer)
    assert await waiting(js, stream) == (0, 3)
    assert await run.data("ack", messages=got[:2]) == {"ack": 2}
    assert await waiting(js, stream) == (0, 1)
    # Its token alone, and a second attempt of the same task.
    for _ in range(2):
        assert await run.data("ack", messages=got[2]["ack"]) == {"ack": 1}
    assert await waiting(js, stream) == (0, 0)


async def test_an_early_delivery_acknowledges_the_message_for_good(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    """A run that goes on after a crash has the texts of the first delivery, and others may have the second by then."""
    await filled(js, stream, 1)
    first = await run.data("fetch", stream=stream, consumer=consumer)
    await run.data("ack", messages=first, how="nak")
    second = await run.data("fetch", stream=stream, consumer=consumer)
    assert second[0]["deliveries"] == 2
    await run.data("ack", messages=first)
    assert await waiting(js, stream) == (0, 0)
    await run.data("ack", messages=second)


async def test_acknowledged_at_once_when_the_task_says_so(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    await filled(js, stream, 2)
    assert len(await run.data("fetch", stream=stream, consumer=consumer, ack="now")) == 2
    assert await waiting(js, stream) == (0, 0)


async def test_a_message_given_back_comes_again_and_one_ended_does_not(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    await filled(js, stream, 3)
    first, second, third = await run.data("fetch", stream=stream, consumer=consumer)
    assert await run.data("ack", messages=first, how="nak") == {"nak": 1}
    assert await run.data("ack", messages=[second], how="term") == {"term": 1}
    assert await run.data("ack", messages=[third], how="progress") == {"progress": 1}
    (again,) = await run.data("fetch", stream=stream, consumer=consumer)
    assert (again["seq"], again["deliveries"]) == (1, 2)
    assert await waiting(js, stream) == (0, 2)
    await run.data("ack", messages=[again], how="nak", delay_s=60)
    assert await run.data("fetch", stream=stream, consumer=consumer) == []


async def test_nothing_there_is_an_empty_list(run: Runner, stream: str, consumer: str) -> None:
    result = await run.result("fetch", stream=stream, consumer=consumer)
    assert result == {"stream": stream, "consumer": "work", "pending": 0, "count": 0, "data": []}
    assert await run.data("fetch", stream=stream, consumer=consumer, wait_s=0.01) == []


async def test_a_first_message_is_waited_for_and_the_rest_is_not(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    going = asyncio.ensure_future(run.data("fetch", stream=stream, consumer=consumer, wait_s=60))
    while not (await js.consumer_info(stream, "work")).num_waiting:
        pass  # each look is an exchange with the server
    await filled(js, stream, 1)
    assert [row["data"] for row in await going] == [0]


async def test_a_cancelled_fetch_leaves_its_messages_to_others(
    run: Runner, js: JetStreamContext, stream: str, consumer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is broken off between the messages that it got and its end."""
    reached = asyncio.Event()

    async def held(*_: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    await filled(js, stream, 3)
    monkeypatch.setattr(Rows, "outcome", held)
    going = asyncio.ensure_future(run("fetch", stream=stream, consumer=consumer))
    await reached.wait()
    monkeypatch.undo()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    rows = await run.data("fetch", stream=stream, consumer=consumer, wait_s=10)
    assert [(row["seq"], row["deliveries"]) for row in rows] == [(1, 2), (2, 2), (3, 2)]


async def test_a_message_that_is_not_what_was_asked_for_goes_back(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    await filled(js, stream, 1)
    await js.publish(f"{stream}.n", b"no json")
    problem = await run.failure("fetch", stream=stream, consumer=consumer, decode="json")
    assert (problem.kind, problem.code) == ("exception", "NotJSON")
    assert "message 2:" in problem.message
    rows = await run.data("fetch", stream=stream, consumer=consumer, wait_s=10)
    assert [row["data"] for row in rows] == [0, "no json"]


async def test_many_messages_are_stored_as_a_list_and_acknowledged_from_there(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    from tests.unit.tools.object.support import ref_of

    await filled(js, stream, 300)
    outcome = await run("fetch", stream=stream, consumer=consumer, batch=300)
    assert "data" not in outcome.result
    assert (outcome.result["count"], outcome.stored.rows) == (300, 300)
    items = await run.results.items("default", outcome.stored.sha256, 0, 300)
    assert [item["data"] for item in items] == list(range(300))
    assert await run.data("ack", messages=ref_of(outcome.stored)) == {"ack": 300}
    assert await waiting(js, stream) == (0, 0)


async def test_a_fetch_ends_before_it_is_too_large(
    opened: Open, run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    small = opened(run.url, nats__max_bytes=3000)
    for size in (1000, 1000, 1000, 5000):
        await js.publish(f"{stream}.n", b"x" * size)
    got = await small("fetch", stream=stream, consumer=consumer)
    assert 1 <= got.result["count"] < 3
    while got.result["pending"] > 1:
        got = await small("fetch", stream=stream, consumer=consumer)
        assert got.error is None
    problem = await small.failure("fetch", stream=stream, consumer=consumer)
    assert (problem.kind, problem.code) == ("limit", "nats.max_bytes")
    problem = await opened(run.url, nats__max_messages=5).failure("fetch", stream=stream, consumer=consumer, batch=6)
    assert (problem.kind, problem.code) == ("limit", "nats.max_messages")


async def test_a_missing_stream_and_a_missing_consumer(run: Runner, stream: str, name: str) -> None:
    problem = await run.failure("fetch", stream=f"{name}no", consumer="work")
    assert (problem.kind, problem.code, problem.retryable) == ("not_found", "STREAM_NOT_FOUND", False)
    problem = await run.failure("fetch", stream=stream, consumer="work")
    assert (problem.kind, problem.code) == ("not_found", "CONSUMER_NOT_FOUND")


async def test_a_consumer_that_pushes_cannot_be_fetched_from(run: Runner, js: JetStreamContext, stream: str) -> None:
    await js.add_consumer(stream, ConsumerConfig(durable_name="work", deliver_subject="push.here"))
    problem = await run.failure("fetch", stream=stream, consumer="work")
    assert problem.kind == "config", problem


async def test_acknowledging_to_a_consumer_that_is_gone(
    run: Runner, js: JetStreamContext, stream: str, consumer: str
) -> None:
    await filled(js, stream, 1)
    got = await run.data("fetch", stream=stream, consumer=consumer)
    await js.delete_consumer(stream, consumer)
    problem = await run.failure("ack", messages=got)
    assert (problem.kind, problem.code) == ("not_found", "CONSUMER_NOT_FOUND")
    assert stream in problem.message


@pytest.mark.parametrize(
    ("op", "config", "said"),
    [
        ("ack", {"messages": ["orders.new"]}, "messages[0]: is neither a message of `fetch` nor its `ack`"),
        ("ack", {"messages": [{"data": 1}]}, "messages[0]: is neither"),
        ("ack", {"messages": ["$JS.ACK.a b"]}, "messages[0]: is neither"),
        ("ack", {"messages": 7}, "messages must be a list, not int"),
        ("ack", {}, "op ack needs `messages`"),
        ("ack", {"messages": [], "delay_s": 3}, "delay_s belongs to `how: nak`"),
        ("fetch", {"stream": "s"}, "op fetch needs `consumer`"),
        ("fetch", {"stream": True, "consumer": "c"}, "needs the name of its stream"),
        ("fetch", {"stream": "a.b", "consumer": "c"}, "stream must be a name without dots"),
        ("fetch", {"stream": "a", "consumer": "c.>"}, "consumer must be a name without dots"),
        ("fetch", {"stream": "a", "consumer": "c", "batch": 0}, "batch: 0 is below 1"),
        ("fetch", {"stream": "a", "consumer": "c", "wait_s": -1}, "wait_s: -1.0 is below 0"),
    ],
)
async def test_what_cannot_be_asked(run: Runner, op: str, config: dict[str, Any], said: str) -> None:
    problem = await run.failure(op, **config)
    assert problem.kind == "config"
    assert said in problem.message
