"""publish and request: what arrives, that a retry is one message, and what each refusal says."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext

from tests.integration.tools.nats.conftest import Open, Runner


async def received(other: Client, subject: str, count: int = 1) -> asyncio.Future[list[Msg]]:
    """The next messages to a subject, once they came."""
    came: asyncio.Future[list[Msg]] = asyncio.get_running_loop().create_future()
    got: list[Msg] = []

    async def hear(message: Msg) -> None:
        got.append(message)
        if len(got) == count:
            came.set_result(got)

    await other.subscribe(subject, cb=hear)
    await other.flush()
    return came


# -- publish to whoever listens


@pytest.mark.parametrize(
    ("config", "body"),
    [
        ({"data": {"a": [1, None, "é"]}}, '{"a":[1,null,"é"]}'.encode()),
        ({"data": "plain"}, b"plain"),
        ({"data": "plain", "encoding": "json"}, b'"plain"'),
        ({"data": None}, b"null"),
        ({"data": "", "encoding": "text"}, b""),
        ({"data": base64.b64encode(b"\x00\xff").decode(), "encoding": "base64"}, b"\x00\xff"),
    ],
)
async def test_what_arrives(run: Runner, other: Client, name: str, config: dict[str, Any], body: bytes) -> None:
    came = await received(other, name)
    assert await run.data("publish", subject=name, **config) == {"published": 1}
    assert (await came)[0].data == body


async def test_headers_arrive_as_text_and_null_is_left_out(run: Runner, other: Client, name: str) -> None:
    came = await received(other, name)
    headers = {"X-Text": "a: b é", "X-Number": 7, "X-Flag": True, "X-None": None}
    await run.data("publish", subject=name, data=1, headers=headers)
    assert (await came)[0].headers == {"X-Text": "a: b é", "X-Number": "7", "X-Flag": "true"}


async def test_a_list_arrives_in_order(run: Runner, other: Client, name: str) -> None:
    came = await received(other, f"{name}.*", 600)
    messages = [{"data": index} for index in range(599)]
    messages.append({"subject": f"{name}.last", "data": 599, "headers": {"X": "own"}})  # type: ignore[dict-item]
    done = await run.data("publish", subject=f"{name}.all", messages=messages, headers={"X": "common"})
    assert done == {"published": 600}
    got = await came
    assert [int(message.data) for message in got] == list(range(600))
    assert [got[0].headers, got[-1].headers] == [{"X": "common"}, {"X": "own"}]
    assert run.recorder.progress[-1] == (600, 600, "messages")


# -- publish to a stream


async def test_a_stream_has_the_message_and_says_where(run: Runner, js: JetStreamContext, stream: str) -> None:
    done = await run.data("publish", subject=f"{stream}.a", data={"n": 1}, stream=True)
    assert done == {"published": 1, "duplicates": 0, "stream": stream, "seq": 1}
    assert (await js.get_msg(stream, 1)).data == b'{"n":1}'


async def test_a_second_attempt_of_a_task_is_the_same_message(run: Runner, js: JetStreamContext, stream: str) -> None:
    again = {"subject": f"{stream}.a", "data": 1, "stream": stream, "run_key": "one task"}
    await run.data("publish", **again)
    assert await run.data("publish", **again) == {"published": 1, "duplicates": 1, "stream": stream, "seq": 1}
    await run.data("publish", subject=f"{stream}.a", data=1, stream=True)
    assert (await js.stream_info(stream)).state.messages == 2


async def test_a_second_attempt_of_a_list_sends_what_the_first_did_not(
    run: Runner, js: JetStreamContext, stream: str
) -> None:
    messages = [{"data": index} for index in range(300)]
    config = {"subject": f"{stream}.a", "stream": True, "run_key": "one list"}
    await run.data("publish", messages=messages[:120], **config)
    done = await run.data("publish", messages=messages, **config)
    assert done == {"published": 300, "duplicates": 120, "stream": stream, "seq": 300}
    assert [int((await js.get_msg(stream, seq)).data or b"") for seq in (1, 120, 121, 300)] == [0, 119, 120, 299]


async def test_an_id_of_ones_own(run: Runner, js: JetStreamContext, stream: str) -> None:
    for expected in (0, 1):
        done = await run.data("publish", subject=f"{stream}.a", data=1, stream=True, msg_id="order 7")
        assert done["duplicates"] == expected
    assert (await js.get_msg(stream, 1)).headers == {"Nats-Msg-Id": "order 7"}


async def test_a_stored_list_is_sent_piece_by_piece(run: Runner, js: JetStreamContext, stream: str) -> None:
    from tests.unit.tools.object.support import ref_of

    writer = run.results.writer("default", listed=True)
    await writer.add([{"subject": f"{stream}.{index % 3}", "data": index} for index in range(700)])
    ref = ref_of(await writer.commit())
    assert (await run.data("publish", messages=ref, stream=True))["published"] == 700
    info = await js.stream_info(stream, subjects_filter=f"{stream}.>")
    assert info.state.subjects == {f"{stream}.0": 234, f"{stream}.1": 233, f"{stream}.2": 233}


async def test_large_messages_go_in_small_windows(run: Runner, js: JetStreamContext, stream: str) -> None:
    messages = [{"data": "x" * 1_000_000} for _ in range(9)]
    assert (await run.data("publish", subject=f"{stream}.a", messages=messages, stream=True))["seq"] == 9
    assert [done for done, _, _ in run.recorder.progress] == [5, 9]


async def test_messages_that_expire(run: Runner, js: JetStreamContext, stream: str, name: str) -> None:
    problem = await run.failure("publish", subject=f"{stream}.a", data=1, stream=True, ttl_s=60)
    assert (problem.kind, problem.code) == ("config", "TTL_DISABLED")
    await js.add_stream(name=f"{name}ttl", subjects=[f"{name}ttl"], allow_msg_ttl=True)
    await run.data("publish", subject=f"{name}ttl", data=1, stream=True, ttl_s=60)
    assert ((await js.get_msg(f"{name}ttl", 1)).headers or {})["Nats-TTL"] == "60s"


async def test_no_stream_and_another_stream(run: Runner, stream: str, name: str) -> None:
    problem = await run.failure("publish", subject=f"nowhere.{name}", data=1, stream=True)
    assert (problem.kind, problem.code, problem.retryable) == ("not_found", "NO_STREAM", False)
    problem = await run.failure("publish", subject=f"{stream}.a", data=1, stream="OTHER")
    assert (problem.kind, problem.code) == ("conflict", "OTHER_STREAM")


async def test_a_full_stream_names_the_message(run: Runner, js: JetStreamContext, name: str) -> None:
    from nats.js.api import DiscardPolicy

    await js.add_stream(name=name, subjects=[name], max_msgs=2, discard=DiscardPolicy.NEW)
    messages = [{"data": index} for index in range(4)]
    problem = await run.failure("publish", subject=name, messages=messages, stream=True)
    assert (problem.kind, problem.code) == ("limit", "STREAM_FULL")
    assert f"publishing to {name} (message 3 of 4)" in problem.message


async def test_somebody_who_answers_is_no_stream(run: Runner, other: Client, name: str) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"thanks")

    await other.subscribe(name, cb=answer)
    await other.flush()
    problem = await run.failure("publish", subject=name, data=1, stream=True)
    assert (problem.kind, problem.code, problem.retryable) == ("server_error", "NO_STREAM", False)


# -- request


async def test_an_answer_is_data(run: Runner, other: Client, name: str) -> None:
    async def answer(message: Msg) -> None:
        assert message.headers == {"X-Ask": "1"}
        await other.publish(message.reply, b'{"got":' + message.data + b"}", headers={"X-Told": "2"})

    await other.subscribe(name, cb=answer)
    await other.flush()
    result = await run.result("request", subject=name, data={"n": 1}, headers={"X-Ask": 1})
    assert result == {"subject": name, "headers": {"X-Told": "2"}, "as": "json", "data": {"got": {"n": 1}}}


@pytest.mark.parametrize(
    ("body", "decode", "data", "taken"),
    [
        (b"", "auto", None, "json"),
        (b"12", "auto", 12, "json"),
        (b"12", "text", "12", "text"),
        (b"hello", "auto", "hello", "text"),
        (b"\xff", "auto", "/w==", "base64"),
        (b"hello", "base64", "aGVsbG8=", "base64"),
    ],
)
async def test_what_bytes_become(
    run: Runner, other: Client, name: str, body: bytes, decode: str, data: Any, taken: str
) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(body)

    await other.subscribe(name, cb=answer)
    await other.flush()
    result = await run.result("request", subject=name, decode=decode)
    assert (result["data"], result["as"]) == (data, taken)


@pytest.mark.parametrize(("decode", "code"), [("json", "NotJSON"), ("text", "NotText")])
async def test_an_answer_that_is_not_what_was_asked_for(
    run: Runner, other: Client, name: str, decode: str, code: str
) -> None:
    async def answer(message: Msg) -> None:
        await message.respond(b"\xff")

    await other.subscribe(name, cb=answer)
    await other.flush()
    problem = await run.failure("request", subject=name, decode=decode)
    assert (problem.kind, problem.code) == ("exception", code)


async def test_a_large_answer_is_stored(run: Runner, other: Client, name: str) -> None:
    body = b'"' + b"x" * 5000 + b'"'

    async def answer(message: Msg) -> None:
        await message.respond(body)

    await other.subscribe(name, cb=answer)
    await other.flush()
    outcome = await run("request", subject=name)
    assert "data" not in outcome.result
    assert outcome.stored.content_type == "application/json"
    assert b"".join([part async for part in run.results.chunks("default", outcome.stored.sha256)]) == body


async def test_nobody_listens_is_an_error_of_its_own(run: Runner, name: str) -> None:
    problem = await run.failure("request", subject=name)
    assert (problem.kind, problem.code, problem.retryable) == ("server_error", "NO_RESPONDERS", True)
    assert problem.message == f"the request to {name}: there is no subscriber"


async def test_nobody_answers_in_time(run: Runner, other: Client, name: str) -> None:
    came = await received(other, name)
    problem = await run.failure("request", subject=name, wait_s=0.01)
    assert (problem.kind, problem.retryable) == ("timeout", True)
    assert "no answer within 0.01 s (wait_s)" in problem.message
    await came
    # The connection is proved before it is used again, and is the same one.
    assert (await run.data("publish", subject=f"{name}.x", data=1)) == {"published": 1}


@pytest.mark.parametrize(
    ("code", "kind"), [("404", "not_found"), ("422", "client_error"), ("500", "server_error"), ("?", "server_error")]
)
async def test_a_service_that_says_no(run: Runner, other: Client, name: str, code: str, kind: str) -> None:
    async def answer(message: Msg) -> None:
        headers = {"Nats-Service-Error": "no such order", "Nats-Service-Error-Code": code}
        await other.publish(message.reply, b'{"id": 7}', headers=headers)

    await other.subscribe(name, cb=answer)
    await other.flush()
    outcome = await run("request", subject=name)
    assert outcome.status == "error"
    assert outcome.error is not None
    assert (outcome.error.kind, outcome.error.code) == (kind, code)
    assert "no such order" in outcome.error.message
    assert outcome.result["data"] == {"id": 7}


async def test_a_cancelled_request_ends_and_leaves_the_connection_whole(run: Runner, other: Client, name: str) -> None:
    came = await received(other, name)
    going = asyncio.ensure_future(run("request", subject=name, wait_s=60))
    await came
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert await run.data("publish", subject=name, data=1) == {"published": 1}


# -- what cannot be sent


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"subject": "a b", "data": 1}, "subject must be made of parts"),
        ({"subject": "a..b", "data": 1}, "subject must be made of parts"),
        ({"subject": "a\r\nPUB x 0", "data": 1}, "subject must be made of parts"),
        ({"subject": "a.*", "data": 1}, "must not contain a wildcard"),
        ({"subject": "a", "data": 1, "headers": {"X": "a\r\nY: b"}}, "header X: its value contains a line break"),
        ({"subject": "a", "data": 1, "headers": {"X: Y": "a"}}, "the name of a header"),
        ({"subject": "a", "data": 1, "headers": {"X": {}}}, "must be a text or a number, not dict"),
        ({"subject": "a", "data": "!", "encoding": "base64"}, "data is not base64 text"),
        ({"subject": "a", "data": 1, "encoding": "base64"}, "data is not base64 text"),
        ({"subject": "a", "data": 1, "encoding": "text"}, "data must be a text"),
        ({"subject": "a", "data": "\ud800"}, "a lone surrogate"),
        ({"subject": "a", "messages": 7}, "messages must be a list, not int"),
        ({"subject": "a", "messages": [{"dta": 1}]}, "messages[0]: Object contains unknown field `dta`"),
        ({"messages": [{"data": 1}]}, "messages[0].subject must be made of parts"),
        ({"subject": "a"}, "needs `subject` and `data`, or `messages`"),
        ({"subject": "a", "messages": [], "data": 1}, "belong in the entries of `messages`"),
        ({"subject": "a", "data": 1, "msg_id": "x"}, "msg_id requires a stream"),
        (
            {"subject": "a", "data": 1, "stream": True, "msg_id": "a\nb"},
            "header Nats-Msg-Id: its value contains a line break",
        ),
        ({"subject": "a", "data": 1, "stream": "a.b"}, "stream must be a name"),
        ({"subject": "a", "data": 1, "bucket": "x"}, "bucket belongs to op kv_get"),
        ({"subject": "a", "data": 1, "stream": True, "ttl_s": 0}, "ttl_s: 0 is below 1"),
    ],
)
async def test_what_cannot_be_sent(run: Runner, config: dict[str, Any], said: str) -> None:
    problem = await run.failure("publish", **config)
    assert (problem.kind, problem.retryable) == ("config", False)
    assert said in problem.message


async def test_a_message_that_is_too_large_is_not_sent(run: Runner, opened: Open, other: Client, name: str) -> None:
    most = other.max_payload
    for config in ({"data": "x" * (most + 1)}, {"data": "x" * most, "headers": {"X": "y"}}):
        problem = await run.failure("publish", subject=name, **config)
        assert (problem.kind, problem.code) == ("limit", "MAX_PAYLOAD")
        assert f"accepts at most {most:,}" in problem.message
    came = await received(other, name)
    await run.data("publish", subject=name, data="x" * most)
    assert len((await came)[0].data) == most


async def test_a_message_that_just_fits_with_its_headers(run: Runner, other: Client, name: str) -> None:
    room = other.max_payload - len("NATS/1.0\r\nX-Size: é\r\n\r\n".encode())
    came = await received(other, name)
    await run.data("publish", subject=name, data="x" * room, headers={"X-Size": "é"})
    assert len((await came)[0].data) == room
